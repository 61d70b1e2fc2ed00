package refdb

import (
	"context"
	"time"
)

// Limits of one request. They keep a commit below Cloud Spanner's 80,000
// mutations (https://cloud.google.com/spanner/quotas): an updated ref costs 7
// of them (5 columns, and an index entry taken out and put in), a lock that is
// released or was stale 1, an acquired one 7, and 5 more if it was stale; an
// intent 8, and its end 1. Only an update of nearly 10,000 refs that also ends
// thousands of locks, and a preparation of thousands of refs with stale ones, can
// come to more; the Spanner driver counts, and refuses it with ErrTooMany.
const (
	MaxUpdateRefs = 10_000
	MaxLockRefs   = 5_000
)

// A Driver is a database that refs and locks live in. Applications don't call
// it: they hand it to [New]. It is what a new database has to implement, and
// package refdbtest is the suite that it must pass.
//
// Each method is one atomic transaction, whole in itself and linearizable per
// (project, ref) with every other; it takes and returns slices, so that n refs
// cost one round trip where the database allows it. Methods may be called
// concurrently. The arguments were validated: refs are sorted by bytes and
// distinct. A driver changes none of the arguments, and keeps no reference to
// them after it returns, but where the outcome is unknown to it.
//
// All times and ages are the database's own, read after the rows' locks were
// taken; a driver never compares them with this machine's clock. A NULL token
// reads as 0, a NULL heartbeat as the epoch, a NULL stale_after as
// [DefaultStaleAfter].
//
// Errors. Beside those that a method names, every method returns
//   - ErrUnavailable if the request was certainly not carried out and may
//     succeed later: connection refused, deadlock, serialization failure,
//     server shutting down (small numbers of retries inside are welcome);
//   - ErrOutcomeUnknown, from a method that writes, if it may have been carried
//     out: the connection or ctx ended after the request was sent and before
//     its answer came; ErrUnconfirmed, which is one, if it was carried out, and
//     shows, but may be lost in a failover;
//   - ctx's error, wrapped, whenever ctx ended;
//   - anything else, wrapped with what was being done, as permanent.
//
// They are told apart by the database's error codes, never by their text.
type Driver interface {
	// Get returns the rows of those refs that have one, in any order.
	Get(ctx context.Context, project string, refs []string) ([]Ref, error)

	// List returns a page of a project's refs in byte order of their names.
	List(ctx context.Context, q RefQuery) ([]Ref, error)

	// Update writes all of t.Updates, or nothing and returns, in this order of precedence,
	// a *LostError (fence), a *LockedError (mandatory locks) or a *MismatchError.
	Update(ctx context.Context, t Transaction) error

	// Remove deletes rows, at most r.Limit of refs, and returns how many refs
	// it deleted. Unless r.Force is set it deletes nothing, and returns a
	// *LockedError, while a fresh lock stands on any ref of the project.
	Remove(ctx context.Context, r RemoveRequest) (int, error)

	// Acquire takes the locks on all of r.Refs, or none and returns a
	// *LockedError with every lock that stands on them. With r.Intents it records
	// those too; then, if nothing is locked, a *MismatchError is the other reason for none.
	Acquire(ctx context.Context, r AcquireRequest) (Acquired, error)

	// Beat sets the heartbeat of every held row that still matches to the
	// database's time, and returns what became of each, in the same order. All
	// of held were acquired with that owner. No other row's heartbeat is touched.
	// There may be any number of them: a driver cuts them into as many
	// transactions as suit its database, the one exception to the rule above. A
	// row that another transaction keeps locked makes only itself BeatUnknown, a
	// transaction that failed only its own rows; an error means that nothing was
	// learned of any.
	Beat(ctx context.Context, owner string, held []Held) ([]BeatResult, error)

	// Release deletes the held rows that still match, and says which did, in the
	// same order. Rows that don't match are left alone.
	Release(ctx context.Context, held []Held) ([]bool, error)

	// Locks returns a page of locks in byte order of project, then ref.
	Locks(ctx context.Context, q LockQuery) ([]LockInfo, error)

	// Intents returns a page of intents in byte order of project, then ref, then
	// by token.
	Intents(ctx context.Context, q IntentQuery) ([]Intent, error)

	// Resolve ends every one of r.Intents that is still pending under its token,
	// and says which were, in the same order: the row of the ref is written
	// (TakeNew), the lock deleted, the decision recorded with the database's
	// time. The others are left alone.
	Resolve(ctx context.Context, r ResolveRequest) ([]bool, error)

	// Forget deletes the records of those intents that are not pending.
	Forget(ctx context.Context, intents []Intent) error

	// Revoke makes sure that r, an Acquire with Intents whose outcome is unknown,
	// has no effect: the locks and intents that it recorded are deleted, and if it is
	// carried out later, it does nothing and the error wraps ErrReleased. That is
	// kept as an intent on r's first ref, of the decision Revoked, until Forget.
	Revoke(ctx context.Context, r AcquireRequest) error

	// States returns what there is about those of refs that have a row, or a
	// lock, or both, in any order, as of one point in time.
	States(ctx context.Context, project string, refs []string) ([]State, error)

	// Now returns the database's time.
	Now(ctx context.Context) (time.Time, error)

	// Close ends the driver's connections and goroutines, and waits for them.
	Close() error
}

// A Notifier is a Driver that can wake those who wait for a lock. Its hints
// may be lost, late or wrong: waiters poll as well.
type Notifier interface {
	// Listen calls wake for each lock, waited for through this driver
	// (AcquireRequest.Wait), that was released. It calls started once it will
	// miss none, and returns when ctx ends or the connection is lost, with the
	// error, or with errors.ErrUnsupported if hints can't arrive here at all
	// (behind a transaction pooler). Called once at a time.
	Listen(ctx context.Context, started func(), wake func(project, ref string)) error

	// PassOn says that nobody waits for a lock through this driver any more. If it
	// was the one to be woken, the next is. It does not block.
	PassOn(project, ref string)
}

// A Diagnoser is a Driver that can check the settings its promises rest on.
type Diagnoser interface {
	Diagnose(ctx context.Context) ([]Diagnosis, error)
}

// A Diagnosis is one line of a doctor's report.
type Diagnosis struct {
	Name   string // what was looked at, such as "synchronous_commit"
	OK     bool
	Detail string // what was found and, unless OK, what to do
}

// A Ref is a row of the table of refs.
type Ref struct {
	Name  string
	Value Value
	Time  time.Time // of the last change, by the database's clock; zero if not recorded
	Op    string    // the operation that last wrote it through this package, or ""
}

// A RefQuery selects a page of a project's refs.
type RefQuery struct {
	Project string
	Prefix  string // of the name, compared as bytes; "" for all
	After   string // only names greater than this; "" to start
	Limit   int    // at most this many
	Deleted bool   // tombstones too
}

// A Transaction is an atomic update of several refs of one project.
type Transaction struct {
	Project string
	// ID names this update; it is stored in every row it writes, so that a
	// lost reply can be resolved by reading the rows.
	ID string
	// Updates are sorted by ref. An absent Old matches an unknown or deleted
	// ref, any other Old only an equal value. New is never Unknown.
	Updates []Update
	// Fence, unless nil: every row of it must still match, or *LostError.
	// Rows of it are no obstacle to the updates.
	Fence *Fence
	// Release also deletes the rows of Fence. Next and Back are as in Held.
	Release, Next, Back bool
	// Adopt makes any Old match an unknown ref.
	Adopt bool
	// Advisory ignores locks, but for those that stand for an intent (their
	// stale_after is NeverStale). Otherwise a fresh lock on a ref of Updates, not
	// of Fence, is a *LockedError, and a stale one is deleted.
	Advisory bool
}

// A Fence is a lock that must still be held.
type Fence struct {
	Refs  []string // sorted
	Token Token
	// Intents says that there is a pending intent with each row: Transaction.Release
	// deletes it, too. Without it, a row that stands for an intent does not match.
	Intents bool
}

// A RemoveRequest selects rows to delete for good.
type RemoveRequest struct {
	Project string
	Limit   int  // at most this many refs
	Force   bool // in spite of fresh locks, but not of those that stand for an intent
	// Tombstones removes only refs deleted at least OlderThan ago, and neither
	// looks at locks nor removes any. Otherwise the project's locks go too,
	// with its last ref.
	Tombstones bool
	OlderThan  time.Duration
}

// An AcquireRequest asks for the locks on several refs of one project.
type AcquireRequest struct {
	Project string
	Refs    []string // sorted
	Owner   string
	// Nonce names this acquisition. Rows that carry it are ours already, from
	// a request whose reply was lost: if all rows do, the answer is that
	// acquisition's; if only some do, those are deleted and the request starts over.
	// A row of another owner is never ours: Gerrit's plugin, which knows of no
	// nonces, leaves them in the locks that it takes over.
	Nonce string
	// StaleAfter is recorded with the lock: the age from which others may
	// reclaim it. It is at least a millisecond.
	StaleAfter time.Duration
	// Wait says that the caller will wait if refused: a Notifier then marks the
	// locks, so that their release wakes it.
	Wait bool
	// Intents, unless nil, are recorded with the locks: one for each of Refs, in
	// the same order, Old as in a Transaction. StaleAfter is NeverStale then,
	// which marks the locks. Rows that carry Nonce count as the lock of somebody
	// else then, unless all do.
	Intents []Update
	Agent   string // recorded with each intent
}

// Acquired is the answer to an AcquireRequest.
type Acquired struct {
	// Token is larger than that of any earlier acquisition of any of the refs.
	Token Token
	// Refs are the rows of those refs that have one, as of the acquisition.
	Refs []Ref
	// Reclaimed are the stale locks that were taken over, as they were.
	Reclaimed []LockInfo
}

// Held names a row of the table of locks and the version of it that is meant.
type Held struct {
	Project string
	Ref     string
	// Token must be the row's; but where Nonce is set, that and Owner must be, instead.
	Token        Token
	Nonce, Owner string
	// Heartbeat, unless zero, must be the row's too.
	Heartbeat time.Time
	// Next says, to a release, that a waiter of this driver will ask for the lock
	// right after it: a Notifier then wakes nobody else. Back says that one waits
	// for its turn behind all others: a Notifier wakes it then, without having been asked.
	Next, Back bool
	// Intent says that the row may stand for an intent, which is deleted with it.
	// Without it, a row that does (its stale_after is NeverStale) does not match.
	Intent bool
}

// A BeatResult says what became of one held row.
type BeatResult int

const (
	BeatUnknown BeatResult = iota // neither renewed nor known to be lost
	Beaten                        // renewed
	BeatLost                      // gone, or another's
)

// A LockFilter selects locks. Zero fields select everything.
type LockFilter struct {
	Project string
	Ref     string // exactly this one
	Prefix  string // of the ref, compared as bytes
	// Owner selects the locks of one owner and, given a site's name, those of
	// all its processes: those whose owner is Owner, or starts with Owner and "/".
	Owner     string
	Stale     bool          // only stale ones
	OlderThan time.Duration // only those with an age above this
}

// A LockQuery selects a page of locks.
type LockQuery struct {
	LockFilter
	// Markers selects the rows whose project starts with ReclaimPrefix, and no
	// lock; without it there are only locks.
	Markers bool
	// Only what comes after this project and ref, and at most Limit rows.
	AfterProject, AfterRef string
	Limit                  int
}

// An IntentQuery selects a page of intents.
type IntentQuery struct {
	IntentFilter
	// Only what comes after this project, ref and token, and at most Limit rows.
	AfterProject, AfterRef string
	AfterToken             Token
	Limit                  int
}

// A ResolveRequest ends intents in their owner's place.
type ResolveRequest struct {
	Intents    []Intent // Project, Ref and Token name them; in any order
	Decision   Decision // KeepOld or TakeNew
	By, Reason string   // recorded
}

// LockInfo is a row of the table of locks.
type LockInfo struct {
	Project    string
	Ref        string
	Owner      string
	Token      Token
	Heartbeat  time.Time     // of the last beat, by the database's clock
	Age        time.Duration // the database's now − Heartbeat
	StaleAfter time.Duration // what its holder relies on; older is stale
}

// Stale reports whether the lock may be reclaimed.
func (l LockInfo) Stale() bool { return l.Age > l.StaleAfter }
