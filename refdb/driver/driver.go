// Package driver is the contract between package refdb and the databases that it works on, and the
// vocabulary that both speak: values, refs, locks, intents, changes, errors, names and their
// limits.
//
// The contract is closed: only this module's databases implement it, in packages postgres, spanner,
// sqlite and memory. Whose turn a waiter's is, and what becomes of a lost change, is decided in
// internal packages that all of them share, and package refdbtest tests every rule. The contract
// changes without notice. Applications use package refdb, which has the names that they need.
package driver

import (
	"context"
	"time"
)

// A SchemaChecker is a Driver that can check the schema again after it opened the database: while
// this program runs others may migrate it, restore a table without its triggers, or disable them.
type SchemaChecker interface {
	// CheckSchema returns an error wrapping ErrSchema if this program doesn't work with the schema
	// that the database has now, or if a table, key or trigger is missing without which writes
	// succeed and are wrong.
	CheckSchema(ctx context.Context) error
}

// An AddressReader is a Driver whose database's address may change while it runs: the user, the
// password and the files of certificates that it names, and what is in these files.
type AddressReader interface {
	// ReadAddress has each new connection be made as the address says that read returns then. Open
	// connections go on. As long as no connection succeeds with what has changed, or if read fails
	// or takes longer than a connection may, or if its address leads to another database or names a
	// role for another site, connections are made as before. read is called concurrently, and ends
	// with its context.
	ReadAddress(read func(context.Context) (string, error))

	// Reread reads the address and connects once, even if the server has only just refused that. The
	// error says why connections are made as before.
	Reread(ctx context.Context) (AddressRead, error)
}

// An AddressRead is what an AddressReader has taken from an address.
type AddressRead struct {
	User string // that connections are made as
	// Ignored are the names of the parameters that differ from those of the start and apply only
	// after a restart.
	Ignored []string
}

// Limits of one request. They keep a commit below Cloud Spanner's 80,000 mutations
// (https://cloud.google.com/spanner/quotas). In mutations,
//   - an updated ref costs 7: 5 columns, and an index entry removed and added;
//   - a lock that is released or was stale costs 1, or 7 if somebody waits for it;
//   - an acquired lock costs 7, and 5 more if it was stale;
//   - a place in a queue costs 3;
//   - an intent costs 9, and its end 1.
//
// With the history an update on Spanner has room for no more refs than a lock. A request there that
// also ends thousands of stale locks can exceed the limit: the driver counts, and refuses it with
// ErrTooMany.
const (
	MaxUpdateRefs = 10_000
	MaxLockRefs   = 3_500
)

// A Driver is a database that stores refs, locks and intents. Applications don't
// call it: they hand it to refdb.New. A new database implements it, role by role, and
// must pass the suite in package refdbtest.
//
// Each method is one atomic transaction, linearizable per (project, ref) with
// every other, of all roles; it takes and returns slices, so that n refs cost
// one round trip where the database allows it. Methods may be called
// concurrently. The arguments are valid: refs are sorted by bytes and distinct. A
// driver changes none of the arguments, and keeps no reference to them after it
// returns, except where the outcome is unknown to it.
//
// A driver may have more roles: [Notifier], [PackStore], [SchemaChecker], [AddressReader], [Diagnoser],
// [Meter]. One that wraps another has those of that one, too, if its method Unwrap() Driver returns
// it: see [RoleOf].
//
// No answer depends on state that a driver keeps between two calls: two calls of
// one client may go through two drivers on the same database.
//
// A lock or intent is identified by its owner and its token together: a row with
// another owner or another token does not match.
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
//     ErrNotAdmitted, which is one, if it writes and the server is not admitted;
//   - ErrOutcomeUnknown, from a method that writes, if it may have been carried
//     out: the connection or ctx ended after the request was sent and before
//     its answer came; ErrUnconfirmed, which is one, if it was carried out, and
//     shows, but may be lost in a failover;
//   - ctx's error, wrapped, whenever ctx ended;
//   - anything else, wrapped with what was being done, as permanent.
//
// Drivers tell errors apart by the database's error codes, never by their text.
type Driver interface {
	RefStore
	LockStore
	IntentStore
	ProjectStore
	AuditStore
	HistoryStore
	AdmissionStore

	// Now returns the database's time.
	Now(ctx context.Context) (time.Time, error)

	// Close ends the driver's connections and goroutines, and waits for them.
	// It may be called more than once.
	Close() error
}

// RoleOf returns d if it has the role R, such as [Notifier], or else the first that has it of the
// drivers that it wraps: a driver says which one it wraps by a method Unwrap() Driver.
func RoleOf[R any](d Driver) (r R, ok bool) {
	for d != nil {
		if r, ok = d.(R); ok {
			return r, true
		}
		wrapper, wraps := d.(interface{ Unwrap() Driver })
		if !wraps {
			break
		}
		d = wrapper.Unwrap()
	}
	return r, false
}

// A RefStore holds the value of every ref.
type RefStore interface {
	// Get returns the rows of those refs that have one, in any order.
	Get(ctx context.Context, project string, refs []string) ([]Ref, error)

	// List returns a page of a project's refs in byte order of their names.
	List(ctx context.Context, q RefQuery) (RefPage, error)

	// Summaries returns a page of the projects that have a ref, even a deleted one,
	// or a lock, in byte order of their names. Markers do not count as locks.
	Summaries(ctx context.Context, q SummaryQuery) (SummaryPage, error)

	// States returns the states of those refs that have a row, a lock or both, in any order, as of
	// one point in time. As if it wrote, it compares the server: see AdmissionStore.
	States(ctx context.Context, project string, refs []string) ([]State, error)

	// Update writes all of r.Updates, or nothing and returns, in this order of
	// precedence, a *LostError (fence), a *FrozenError, a *LockedError (locks of others), a
	// *MismatchError or, with r.GitNames, a *NameConflictError as Prepare does.
	Update(ctx context.Context, r UpdateRequest) error

	// Remove deletes at most r.Limit rows of a project's refs and, with the last
	// of them, its locks. It returns how many refs it deleted. With [MandatoryLocks]
	// it deletes nothing, and returns a *LockedError, while a fresh lock stands on
	// any ref of the project.
	Remove(ctx context.Context, r RemoveRequest) (int, error)

	// PurgeTombstones deletes at most r.Limit rows of deleted refs, and returns
	// how many. It neither heeds locks nor removes any.
	PurgeTombstones(ctx context.Context, r TombstoneRequest) (int, error)
}

// A LockStore holds the locks on refs, and the queues of their waiters.
//
// When a lock ends, its row becomes a reservation for the first waiter: see [Waiter]. If that
// waiter polls, and no waiter in the queue was passed [MaxPassed] times, the row is reserved for
// nobody, and the next Acquire takes the lock. A row without waiters is deleted. This holds for
// Release, Abandon, Purge, Update (of the locks in its fence, and of stale ones that it passes),
// Finish, Resolve and Revoke. A Prepare that takes a row passes all waiters in its queue.
//
// An Update that passes a reservation whose turn is over hands the row on as if a lock had ended.
// It leaves a row that is reserved for nobody as it is.
//
// Purge deletes a reservation with its queue. Remove and Recover delete rows with their queues.
type LockStore interface {
	// Acquire takes the locks on all of r.Refs, or none and returns a *LockedError with
	// every lock that stands on them. A reservation for r.Waiter, or for a waiter with a
	// later ticket, is not in the way, and is not returned.
	//
	// Before anything else, each reservation whose turn is over goes to the first waiter
	// in its row's queue, if there is one.
	//
	// If Acquire takes the locks, r.Waiter leaves the rows' queues, and every waiter in them
	// with an earlier ticket is passed once more.
	//
	// If it is refused, r.Waiter gets a place in the queue of each row in the way, and yields
	// the rows that are reserved for it: to the waiter with the next ticket after its own, or
	// else to the first in the queue. A row without such a waiter is deleted. Yielding
	// counts as being passed. A waiter that was passed MaxPassed times does not yield: it
	// keeps the rows, and its turn begins anew.
	//
	// An intent may be in the way for ever. Then r.Waiter waits only in the queues of
	// intents, and its reservations end as by a Release.
	Acquire(ctx context.Context, r AcquireRequest) (Acquired, error)

	// Beat sets the heartbeat of every lock that still matches to the database's
	// time, and returns what became of each, in the same order. It touches no other
	// row's heartbeat. A lock that stands for an intent does not match.
	//
	// There may be any number of locks. A driver divides them into as many
	// transactions as suit its database: Beat alone need not be one transaction. If
	// another transaction keeps a row locked, only that row is BeatUnknown; if a
	// transaction fails, only its own rows are. An error means that nothing is known
	// of any.
	Beat(ctx context.Context, locks []LockID) ([]BeatResult, error)

	// Release deletes the rows of a lock that still match, and says which did not:
	// those are left alone. A row that stands for an intent does not match.
	Release(ctx context.Context, r ReleaseRequest) (Released, error)

	// Purge deletes the locks, of any owners, that still match, and says which
	// did, in the same order. The others are left alone. A row that stands for an
	// intent does not match.
	Purge(ctx context.Context, locks []StandingLock) ([]bool, error)

	// Abandon deletes the rows of an Acquire whose answer was lost or came too late:
	// those with its owner and its nonce. A row that stands for an intent does not match.
	//
	// It does not overtake that Acquire:
	//   - if the database is still carrying it out, Abandon waits for it;
	//   - if the driver has not sent it when its ctx ends, it is never sent;
	//   - if it goes on in a batch after it returned, the driver itself releases what it takes.
	//
	// One case remains: a request on a connection that broke, or a commit on Cloud Spanner,
	// that the server has not begun. Its rows then stand until they are stale.
	//
	// Abandon also takes r.Waiter out of the queues of r.Refs, and ends its reservations, as
	// a Release would.
	Abandon(ctx context.Context, r AbandonRequest) error

	// Locks returns a page of locks in byte order of project, then ref.
	Locks(ctx context.Context, q LockQuery) (LockPage, error)
}

// An IntentStore holds the intents, each with the lock that it was recorded with.
type IntentStore interface {
	// Prepare takes the locks on the refs of all of r.Updates and records those as
	// intents, or does nothing and returns, in this order of precedence, a *FrozenError, a
	// *LockedError with every lock that stands on them, a *MismatchError or a
	// *NameConflictError. After Revoke of r it does nothing, and the error is one of those or
	// wraps ErrReleased. The *LockedError also names the first intent on a ref that excludes
	// one that r creates. If two requests create such refs at once, one is refused.
	Prepare(ctx context.Context, r PrepareRequest) (Prepared, error)

	// Finish ends intents and their locks: the refs of r.Done take their new
	// values, those of r.Dropped keep what they hold. Or it does nothing and returns,
	// in this order of precedence, a *LostError with the refs on which no lock of an
	// intent stands under r's owner and token, or a *MismatchError. Only the locks need
	// checking: whatever ends an intent deletes its lock in the same transaction.
	Finish(ctx context.Context, r FinishRequest) error

	// Revoke makes sure that r, whose outcome is unknown, has no effect: the locks
	// and intents that it recorded are deleted, and if it is carried out later, it
	// does nothing and the error wraps ErrReleased. An intent on r's first ref, with
	// the decision Revoked, records that until Forget.
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

// A ProjectStore holds each project's rules and mode, and which of its objects the database
// keeps, for all sites.
type ProjectStore interface {
	// Projects returns the rows that q selects, in the order of their revisions, at most
	// q.Limit. Of two changes the one with the larger revision was committed later, so that
	// a reader of all rows up to a revision has missed no change before it.
	Projects(ctx context.Context, q ProjectQuery) ([]Project, error)

	// PutProject writes the row of r.Project, with the database's time and a revision one
	// larger than that of any row, and returns it. If the row's revision is not r.Revision,
	// 0 for no row, it writes nothing and returns a *ProjectChangedError. But a row that
	// carries r.Op was written by this request before: then that row is returned.
	//
	// If r.Rules begins with the line of a [Freeze], then after PutProject has returned, no Update or
	// Prepare of the project commits a change of refs, locks or intents. Each either committed earlier,
	// or reads the freeze and returns a *FrozenError. The exception is a repeated request whose first
	// attempt committed earlier: it returns its original result. Finish, Resolve, Revoke, Remove and
	// PurgeTombstones ignore the freeze.
	PutProject(ctx context.Context, r ProjectRequest) (Project, error)
}

// An AuditStore records the operators' actions.
type AuditStore interface {
	// Record writes e with the database's time instead of e.Time, and without an outcome.
	// It returns that time. Entries are ordered by time, then ID.
	Record(ctx context.Context, e AuditEntry) (time.Time, error)

	// Conclude writes an entry's outcome and the database's time, unless the entry has an
	// outcome. It reports whether the entry exists.
	Conclude(ctx context.Context, e AuditCursor, outcome string) (bool, error)

	// Audit returns a page of entries in their order.
	Audit(ctx context.Context, q AuditQuery) (AuditPage, error)
}

// A Notifier is a Driver that can wake waiters, each on the channel that it names. Its
// notifications may be lost, late or wrong: waiters poll as well.
//
// When a lock is reserved, the driver wakes the waiter that it is reserved for. It also tells
// the waiter after that one in the queue when the turn will be over, unless the lock is
// reserved for the Next of its release. When a lock is not reserved, the driver wakes
//   - the first in the queue with a channel;
//   - the first in the queue, if the row was deleted with its queue;
//   - the Next of the release, if the row had no queue.
type Notifier interface {
	// Listen calls wake for each notification that is sent to the channel. It calls
	// started once it will miss none. It returns an error when ctx ends or the
	// connection is lost, and errors.ErrUnsupported if notifications can't arrive at all
	// (behind a transaction pooler). There is one call at a time for a channel.
	Listen(ctx context.Context, channel string, started func(), wake func(Wakeup)) error
}

// A Diagnoser is a Driver that can check the settings its promises rest on.
type Diagnoser interface {
	Diagnose(ctx context.Context) ([]Diagnosis, error)
}

// A RightsChecker is a Driver whose user may be allowed some steps of a command, and not the
// others.
type RightsChecker interface {
	// CheckRights returns nil if the user may do all that a command of refdbctl, such as "project
	// remove", does in the database, as far as can be known. Else the error says what is lacking,
	// and who has it.
	CheckRights(ctx context.Context, command string) error
}

// A Diagnosis is the result of one check.
type Diagnosis struct {
	Name   string // what was checked, such as "synchronous_commit"
	OK     bool
	Note   bool   // it is OK, and worth knowing
	Detail string // what was found and, unless OK, what to do
}
