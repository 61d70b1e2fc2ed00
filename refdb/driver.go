package refdb

import (
	"context"
	"time"
)

// Limits of one request. They keep a commit below Cloud Spanner's 80,000 mutations
// (https://cloud.google.com/spanner/quotas): an updated ref costs 7 of them (5 columns, and an
// index entry taken out and put in), a lock that is released or was stale 1, or 7 if somebody
// waits for it, an acquired one 7, and 5 more if it was stale; a place in a queue 3; an intent
// 8, and its end 1. Only an update of nearly 10,000 refs that also ends thousands of locks,
// and a preparation of thousands of refs with stale ones, can come to more; the Spanner driver
// counts, and refuses it with ErrTooMany.
const (
	MaxUpdateRefs = 10_000
	MaxLockRefs   = 5_000
)

// A Driver is a database that refs, locks and intents live in. Applications
// don't call it: they hand it to [New]. It is what a new database has to
// implement, role by role, and package refdbtest is the suite that it must pass.
//
// Each method is one atomic transaction, linearizable per (project, ref) with
// every other, of all roles; it takes and returns slices, so that n refs cost
// one round trip where the database allows it. Methods may be called
// concurrently. The arguments were validated: refs are sorted by bytes and
// distinct. A driver changes none of the arguments, and keeps no reference to
// them after it returns, except where the outcome is unknown to it.
//
// A driver keeps nothing between two calls that an answer depends on: two calls of
// one client may go through two drivers on the same database.
//
// Whoever acts is named. A lock or intent is meant by its owner and its token
// together: a row that another owner or another token stands in does not match.
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
	RefStore
	LockStore
	IntentStore

	// Now returns the database's time.
	Now(ctx context.Context) (time.Time, error)

	// Close ends the driver's connections and goroutines, and waits for them.
	// It may be called more than once.
	Close() error
}

// A RefStore holds the value of every ref.
type RefStore interface {
	// Get returns the rows of those refs that have one, in any order.
	Get(ctx context.Context, project string, refs []string) ([]Ref, error)

	// List returns a page of a project's refs in byte order of their names.
	List(ctx context.Context, q RefQuery) (RefPage, error)

	// States returns what there is about those of refs that have a row, or a
	// lock, or both, in any order, as of one point in time.
	States(ctx context.Context, project string, refs []string) ([]State, error)

	// Update writes all of r.Updates, or nothing and returns, in this order of
	// precedence, a *LostError (fence), a *LockedError (locks of others) or a
	// *MismatchError.
	Update(ctx context.Context, r UpdateRequest) error

	// Remove deletes at most r.Limit rows of a project's refs and, with the last
	// of them, its locks. It returns how many refs it deleted. With [MandatoryLocks]
	// it deletes nothing, and returns a *LockedError, while a fresh lock stands on
	// any ref of the project.
	Remove(ctx context.Context, r RemoveRequest) (int, error)

	// PurgeTombstones deletes at most r.Limit rows of deleted refs, and returns
	// how many. It neither looks at locks nor removes any.
	PurgeTombstones(ctx context.Context, r TombstoneRequest) (int, error)
}

// A LockStore holds the locks on refs, and the queues of those who wait for them.
//
// Where a lock ends by Release, Abandon, Purge, Update or Finish, its row goes to the first
// who waits: see [Waiter]. If that one polls, and nobody in the queue was passed [MaxPassed]
// times, it goes to nobody: whoever asks takes it. A Prepare that takes a row passes everybody
// in its queue. A reservation that is purged is deleted. Whatever else ends a lock may delete
// its row, and the queue with it.
type LockStore interface {
	// Acquire takes the locks on all of r.Refs, or none and returns a
	// *LockedError with every lock that stands on them. A reservation for r.Waiter, or
	// for one with a later ticket, is not in the way, and is not returned.
	//
	// A reservation whose turn is over, and whose row has a queue, goes to the first in that
	// before anything else.
	//
	// If it takes the locks, r.Waiter leaves the rows' queues, and everybody with an earlier
	// ticket in them is passed once more. If not, r.Waiter gets a place in the queue of each
	// row in the way, and yields the rows that are reserved for it: to whoever came next after
	// it, or else the first in the queue; but once it was passed MaxPassed times it keeps
	// them, and its turn begins anew. Yielding to nobody deletes the row. To yield counts as
	// being passed. If an intent is in the way, which may be so for ever, r.Waiter waits in
	// the queues of intents alone, and what is reserved for it ends as by a Release.
	Acquire(ctx context.Context, r AcquireRequest) (Acquired, error)

	// Beat sets the heartbeat of every lock that still matches to the database's
	// time, and returns what became of each, in the same order. No other row's
	// heartbeat is touched. A lock that stands for an intent does not match.
	// There may be any number of locks: a driver cuts them into as many
	// transactions as suit its database, the one exception to the rule above. A
	// row that another transaction keeps locked makes only itself BeatUnknown, a
	// transaction that failed only its own rows; an error means that nothing was
	// learned of any.
	Beat(ctx context.Context, locks []LockID) ([]BeatResult, error)

	// Release deletes the rows of a lock that still match, and says which did not:
	// those are left alone. A row that stands for an intent does not match.
	Release(ctx context.Context, r ReleaseRequest) (Released, error)

	// Purge deletes the locks, of any owners, that still match, and says which
	// did, in the same order. The others are left alone. A row that stands for an
	// intent does not match.
	Purge(ctx context.Context, locks []StandingLock) ([]bool, error)

	// Abandon deletes the rows that an Acquire took whose answer was lost, or came
	// too late: those that carry its owner and its nonce. It does not overtake that
	// Acquire: one that the database is still carrying out is waited for; one that the
	// driver has not sent when its ctx ends is never sent; and if the driver goes on with one
	// after it returned, as part of a batch, it gives back by itself what that takes. What is
	// left is a request on a connection that broke, or a commit on Cloud Spanner, which the
	// server has not begun with: its rows then stand until they are stale. A row
	// that stands for an intent does not match.
	//
	// It also takes r.Waiter out of the queues of r.Refs, and ends what is reserved for it, as
	// a Release would.
	Abandon(ctx context.Context, r AbandonRequest) error

	// Locks returns a page of locks in byte order of project, then ref.
	Locks(ctx context.Context, q LockQuery) (LockPage, error)
}

// An IntentStore holds the intents, each with the lock that it was recorded with.
type IntentStore interface {
	// Prepare takes the locks on the refs of all of r.Updates and records those as
	// intents, or does nothing and returns, in this order of precedence, a
	// *LockedError with every lock that stands on them, or a *MismatchError. After
	// Revoke of r it does nothing, and the error is one of those or wraps ErrReleased.
	Prepare(ctx context.Context, r PrepareRequest) (Prepared, error)

	// Finish ends intents and their locks: the refs of r.Done take their new
	// values, those of r.Dropped keep what they hold. Or it does nothing and returns,
	// in this order of precedence, a *LostError with the refs on which no lock of an
	// intent stands under r's owner and token, or a *MismatchError. The lock tells: whatever
	// ends an intent deletes its lock in the same transaction.
	Finish(ctx context.Context, r FinishRequest) error

	// Revoke makes sure that r, whose outcome is unknown, has no effect: the locks
	// and intents that it recorded are deleted, and if it is carried out later, it
	// does nothing and the error wraps ErrReleased. That is kept as an intent on
	// r's first ref, of the decision Revoked, until Forget.
	Revoke(ctx context.Context, r PrepareRequest) error

	// Resolve ends every one of r.Intents that is still pending, and says which
	// were, in the same order: the row of the ref is written (TakeNew), the lock
	// deleted, the decision recorded with the database's time. The others are
	// left alone.
	Resolve(ctx context.Context, r ResolveRequest) ([]bool, error)

	// Forget deletes the records of those intents that are not pending.
	Forget(ctx context.Context, intents []LockID) error

	// Intents returns a page of intents in byte order of project, then ref, then
	// by token.
	Intents(ctx context.Context, q IntentQuery) (IntentPage, error)
}

// A Notifier is a Driver that can wake those who wait for a lock, by the channel that they
// name. Its hints may be lost, late or wrong: waiters poll as well.
//
// It wakes whoever a lock is kept for from now on, and tells whoever comes after it in the
// queue when that turn is over. For the next of the same owner it does neither: that hands a
// lock over without a wake-up. Where a lock is kept for nobody, it wakes the first in the
// queue who can be woken; where a row with a queue is deleted, the first.
type Notifier interface {
	// Listen calls wake for each wake-up that is sent to the channel. It calls
	// started once it will miss none, and returns when ctx ends or the connection
	// is lost, with the error, or with errors.ErrUnsupported if hints can't arrive
	// here at all (behind a transaction pooler). Called once at a time for a channel.
	Listen(ctx context.Context, channel string, started func(), wake func(Wakeup)) error
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
