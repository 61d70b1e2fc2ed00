// Package driver is the contract between package refdb and the databases that it uses. It also
// defines the types that both sides share: values, refs, locks, intents, changes, errors, and names
// with their limits.
//
// The contract is closed: only this module's databases implement it, in packages postgres, spanner,
// sqlite and memory. The decisions about the next waiter for a lock and about lost changes are in
// internal packages that all drivers share, and package refdbtest tests every rule. The contract
// changes without notice. Applications use package refdb, which declares every name that they need.
package driver

import (
	"context"
	"time"
)

// A SchemaChecker is a Driver that can check the schema again after it has opened the database,
// because others may migrate the schema, restore a table without its triggers, or disable triggers
// while this program runs.
type SchemaChecker interface {
	// CheckSchema returns an error wrapping ErrSchema if this program doesn't support the
	// database's present schema version, or if a table, key or trigger is missing without which
	// writes would succeed with a wrong result.
	CheckSchema(ctx context.Context) error
}

// An AddressReader is a Driver that can read its database's address again while it runs. The user,
// the password, the paths of the certificate files and the contents of these files may change.
type AddressReader interface {
	// ReadAddress makes the driver use, for each new connection, the address that read then
	// returns. Existing connections stay open. The driver continues to connect with the previous
	// address until a connection with the changed one succeeds, and also if read fails or takes
	// longer than a connection may take, or if the new address leads to another database or names a
	// role for another site. The driver calls read concurrently; read must return when its context
	// ends.
	ReadAddress(read func(context.Context) (string, error))

	// Reread reads the address and tries to connect once, even if the server has only just refused
	// these credentials. An error says why the driver continues to use the previous address.
	Reread(ctx context.Context) (AddressRead, error)
}

// An AddressRead is the result of [AddressReader].Reread.
type AddressRead struct {
	User string // the user of new connections
	// Ignored are the names of the parameters that have changed since the start, and take effect
	// only after a restart.
	Ignored []string
}

// Limits of one request. They keep a commit below Cloud Spanner's 80,000 mutations
// (https://cloud.google.com/spanner/quotas). In mutations,
//   - an updated ref costs 7: 5 columns, and an index entry removed and added;
//   - a lock that is released or was stale costs 1, or 7 if it has waiters;
//   - an acquired lock costs 7, and 5 more if it was stale;
//   - a place in a queue costs 3;
//   - an intent costs 9, and its end 1.
//
// With the history, an update on Spanner has room for no more refs than a lock request. A request
// on Spanner that also ends thousands of stale locks can exceed the limit: the driver counts the
// mutations, and refuses the request with ErrTooMany.
const (
	MaxUpdateRefs = 10_000
	MaxLockRefs   = 3_500
)

// A Driver is a database that stores refs, locks and intents. Applications don't call its methods:
// they pass the Driver to refdb.New. The driver of a new database implements the interface role by
// role, and must pass the suite in package refdbtest.
//
// Each method is one atomic transaction, linearizable per (project, ref) with every other
// transaction, of all roles. Methods take and return slices, so that n refs cost one round trip
// where the database allows it. Methods may be called concurrently. The arguments are valid: refs
// are sorted by bytes and distinct. A driver never modifies its arguments, and keeps no reference
// to them after it has returned, except where it does not know the outcome.
//
// A driver may have additional roles: [Notifier], [PackStore], [SchemaChecker], [AddressReader],
// [Diagnoser], [Meter]. A driver that wraps another one also has the roles of the wrapped driver if
// its method Unwrap() Driver returns that driver: see [RoleOf].
//
// No result depends on state that a driver keeps between two calls, because two calls of one client
// may go through two drivers on the same database.
//
// A lock or intent is identified by its owner and its token together. A row matches a request only
// if both are equal.
//
// All times and ages are the database's own, read after the rows' locks were taken; a driver never
// compares them with this machine's clock. A NULL token reads as 0, a NULL heartbeat as the epoch,
// a NULL stale_after as [DefaultStaleAfter].
//
// Errors. In addition to the errors that a method's comment names, every method returns
//   - ErrUnavailable if the request was certainly not carried out and may succeed later: connection
//     refused, deadlock, serialization failure, server shutting down (a driver may retry a few
//     times itself). A method that writes returns ErrNotAdmitted, which wraps ErrUnavailable, if
//     the server is not admitted;
//   - ErrOutcomeUnknown, from a method that writes, if the request may have been carried out: the
//     connection or ctx ended after the request was sent and before its reply arrived. The error is
//     ErrUnconfirmed, which wraps ErrOutcomeUnknown, if the request was carried out and is visible,
//     but may be lost in a failover;
//   - ctx's error, wrapped, whenever ctx ended;
//   - any other error, wrapped with a description of the operation, as permanent.
//
// Drivers distinguish errors by the database's error codes, never by their text.
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

	// Close ends the driver's connections and goroutines, and waits until they have ended. It may
	// be called more than once.
	Close() error
}

// RoleOf returns d as R if d has the role R, such as [Notifier]. Otherwise it returns the first
// driver with that role among those that d wraps. A driver returns the driver that it wraps by a
// method Unwrap() Driver.
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
	// Get returns the rows that exist for refs, in any order.
	Get(ctx context.Context, project string, refs []string) ([]Ref, error)

	// List returns a page of a project's refs in byte order of their names.
	List(ctx context.Context, q RefQuery) (RefPage, error)

	// Summaries returns a page of the projects that have a ref, including a deleted ref, or a lock,
	// in byte order of their names. Markers do not count as locks.
	Summaries(ctx context.Context, q SummaryQuery) (SummaryPage, error)

	// States returns the states of those refs that have a row, a lock or both, in any order, as of
	// one point in time. It compares the server as a method that writes does: see AdmissionStore.
	States(ctx context.Context, project string, refs []string) ([]State, error)

	// Update writes all of r.Updates, or it writes nothing and returns, in this order of
	// precedence, a *LostError (the fence), a *FrozenError, a *LockedError (locks of others), a
	// *MismatchError or, with r.GitNames, a *NameConflictError as Prepare does.
	Update(ctx context.Context, r UpdateRequest) error

	// Remove deletes at most r.Limit rows of a project's refs and, together with the last row, the
	// project's locks. It returns the number of refs that it deleted. With [MandatoryLocks] it
	// deletes nothing, and returns a *LockedError, while any ref of the project has a fresh lock.
	Remove(ctx context.Context, r RemoveRequest) (int, error)

	// PurgeTombstones deletes at most r.Limit rows of deleted refs, and returns their number. It
	// ignores locks, and deletes none.
	PurgeTombstones(ctx context.Context, r TombstoneRequest) (int, error)
}

// A LockStore holds the locks on refs, and the queues of their waiters.
//
// When a lock ends, its row becomes a reservation for the first waiter: see [Waiter]. If the first
// waiter polls, and no waiter in the queue has been passed [MaxPassed] times, the row is reserved
// for nobody, and the next Acquire takes the lock. A row without waiters is deleted. These rules
// apply to Release, Abandon, Purge, Update (to the locks of its fence, and to stale locks that it
// passes), Finish, Resolve and Revoke. A Prepare that takes a row passes all waiters in the row's
// queue.
//
// An Update that passes a reservation whose turn is over treats the row as if a lock had ended. It
// does not change a row that is reserved for nobody.
//
// Purge deletes a reservation together with its queue. Remove and Recover delete rows with their
// queues.
type LockStore interface {
	// Acquire takes the locks on all of r.Refs, or it takes none and returns a *LockedError with
	// every existing lock on these refs. A reservation for r.Waiter, or for a waiter with a later
	// ticket, neither prevents the acquisition nor is returned.
	//
	// Acquire first gives each reservation whose turn is over to the first waiter in the row's
	// queue, if there is one.
	//
	// If Acquire takes the locks, r.Waiter leaves the rows' queues, and every waiter in these
	// queues with an earlier ticket is passed once more.
	//
	// If Acquire is refused, r.Waiter gets a place in the queue of each row that refuses it, and
	// yields the rows that are reserved for it. A row is yielded to the waiter with the next ticket
	// after that of r.Waiter, or else to the first waiter in the queue. A row without such a waiter
	// is deleted. Yielding counts as being passed. A waiter that has been passed MaxPassed times
	// does not yield: it keeps its rows, and its turn starts again.
	//
	// An intent may exist for any length of time. If an intent refuses the request, r.Waiter waits
	// only in the queues of intents, and its reservations end as by a Release.
	Acquire(ctx context.Context, r AcquireRequest) (Acquired, error)

	// Beat sets the heartbeat of every lock that still matches to the database's time, and returns
	// the result for each lock, in the same order. It changes the heartbeat of no other row. A lock
	// that belongs to an intent does not match.
	//
	// The number of locks is not limited. A driver divides them into as many transactions as suit
	// its database: Beat alone need not be one transaction. If another transaction keeps a row
	// locked, only the result of that row is BeatUnknown; if a transaction fails, only the results
	// of its own rows are. An error means that the result is unknown for all locks.
	Beat(ctx context.Context, locks []LockID) ([]BeatResult, error)

	// Release ends the lock on all rows that still match, and returns the refs whose rows did not
	// match; it leaves these rows unchanged. A row that belongs to an intent does not match.
	Release(ctx context.Context, r ReleaseRequest) (Released, error)

	// Purge ends the locks, of any owners, that still match, and reports which did, in the same
	// order. It leaves the other rows unchanged. A row that belongs to an intent does not match.
	Purge(ctx context.Context, locks []StandingLock) ([]bool, error)

	// Abandon ends the locks of an Acquire whose reply was lost or arrived too late: the rows with
	// its owner and its nonce. A row that belongs to an intent does not match.
	//
	// Abandon does not overtake that Acquire:
	//   - if the database is still executing the Acquire, Abandon waits for it;
	//   - if the ctx of the Acquire ends before the driver has sent the request, the driver never
	//     sends it;
	//   - if the Acquire continues in a batch after it has returned, the driver itself releases the
	//     locks that the Acquire takes.
	//
	// One case remains: a request on a broken connection, or a commit on Cloud Spanner, that the
	// server has not begun to execute when Abandon is called. Its rows then remain until they are
	// stale.
	//
	// Abandon also removes r.Waiter from the queues of r.Refs, and ends its reservations as a
	// Release would.
	Abandon(ctx context.Context, r AbandonRequest) error

	// Locks returns a page of locks in byte order of project, then ref.
	Locks(ctx context.Context, q LockQuery) (LockPage, error)
}

// An IntentStore holds the intents. Each intent has the lock that was taken when it was recorded.
type IntentStore interface {
	// Prepare takes the locks on the refs of all of r.Updates and records the updates as intents,
	// or it does nothing and returns, in this order of precedence, a *FrozenError, a *LockedError
	// with every existing lock on these refs, a *MismatchError or a *NameConflictError. After a
	// Revoke of r, Prepare does nothing, and the error is one of these or wraps ErrReleased. The
	// *LockedError also names the first intent on a ref that excludes a ref that r creates. If two
	// concurrent requests create refs that exclude each other, one of them is refused.
	Prepare(ctx context.Context, r PrepareRequest) (Prepared, error)

	// Finish ends intents and their locks: the refs of r.Done take their new values, and the refs
	// of r.Dropped keep their values. Or it does nothing and returns, in this order of precedence,
	// a *LostError with the refs that have no lock of an intent under r's owner and token, or a
	// *MismatchError. A driver needs to check only the locks, because every transaction that ends
	// an intent also deletes its lock.
	Finish(ctx context.Context, r FinishRequest) error

	// Revoke ensures that r, whose outcome is unknown, has no effect: it deletes the locks and
	// intents that r recorded, and if the database executes r later, r does nothing and its error
	// wraps ErrReleased. An intent on r's first ref, with the decision Revoked, records the
	// revocation until Forget.
	Revoke(ctx context.Context, r PrepareRequest) error

	// Resolve ends every one of r.Intents that is still pending, and reports which ones were, in
	// the same order. It writes the row of the ref (TakeNew), ends the lock, and records the
	// decision with the database's time. It leaves the other intents unchanged.
	Resolve(ctx context.Context, r ResolveRequest) ([]bool, error)

	// Forget deletes the records of those of the given intents that are not pending.
	Forget(ctx context.Context, intents []LockID) error

	// Intents returns a page of intents in byte order of project, then ref, then
	// by token.
	Intents(ctx context.Context, q IntentQuery) (IntentPage, error)
}

// A ProjectStore holds each project's rules, its mode, and the setting that says which of its
// objects the database keeps. They apply at all sites.
type ProjectStore interface {
	// Projects returns the rows that q selects, in the order of their revisions, at most q.Limit.
	// Of two changes, the change with the larger revision was committed later. So a reader of all
	// rows up to a revision has missed no earlier change.
	Projects(ctx context.Context, q ProjectQuery) ([]Project, error)

	// PutProject writes the row of r.Project, with the database's time and a revision one larger
	// than that of any row, and returns the row. If the row's present revision is not r.Revision (0
	// for no row), PutProject writes nothing and returns a *ProjectChangedError. There is one
	// exception: if the row carries r.Op, this request wrote it before, and PutProject returns that
	// row.
	//
	// If r.Rules begins with the line of a [Freeze], then after PutProject has returned, no Update
	// or Prepare of the project commits a change of refs, locks or intents. Each either committed
	// earlier, or reads the freeze and returns a *FrozenError. The exception is a repeated request
	// whose first attempt committed earlier: it returns its original result. Finish, Resolve,
	// Revoke, Remove and PurgeTombstones ignore the freeze.
	PutProject(ctx context.Context, r ProjectRequest) (Project, error)
}

// An AuditStore records the operators' actions.
type AuditStore interface {
	// Record writes e with the database's time instead of e.Time, and without an outcome. It
	// returns the database's time. Entries are ordered by time, then ID.
	Record(ctx context.Context, e AuditEntry) (time.Time, error)

	// Conclude writes an entry's outcome and the database's time, unless the entry already has an
	// outcome. It reports whether the entry exists.
	Conclude(ctx context.Context, e AuditCursor, outcome string) (bool, error)

	// Audit returns a page of entries in their order.
	Audit(ctx context.Context, q AuditQuery) (AuditPage, error)
}

// A Notifier is a Driver that can wake each waiter on the waiter's channel. Notifications may be
// lost, late or spurious, so waiters also poll.
//
// When a lock becomes a reservation for a waiter, the driver wakes that waiter. It also notifies
// the following waiter in the queue of the time when the turn will be over, unless the reservation
// is for the Next of the release. When a lock ends without a reservation for a waiter, the driver
// wakes
//   - the first waiter in the queue that has a channel;
//   - the first waiter in the queue, if the row was deleted with its queue;
//   - the Next of the release, if the row had no queue.
type Notifier interface {
	// Listen calls wake for each notification that is sent to the channel. It calls started once no
	// later notification can be missed. It returns an error when ctx ends or the connection is
	// lost, and errors.ErrUnsupported if notifications can't arrive at all (behind a transaction
	// pooler). For each channel there is at most one call at a time.
	Listen(ctx context.Context, channel string, started func(), wake func(Wakeup)) error
}

// A Diagnoser is a Driver that can check the settings on which its guarantees depend.
type Diagnoser interface {
	Diagnose(ctx context.Context) ([]Diagnosis, error)
}

// A RightsChecker is a Driver whose database user may have the privileges for some steps of a
// command but not for others.
type RightsChecker interface {
	// CheckRights returns nil if, as far as can be determined, the user has the privileges for all
	// steps of a command of refdbctl, such as "project remove". Otherwise the error names the
	// missing privileges, and the role that has them.
	CheckRights(ctx context.Context, command string) error
}

// A Diagnosis is the result of one check.
type Diagnosis struct {
	Name   string // what was checked, such as "synchronous_commit"
	OK     bool
	Note   bool   // OK, but worth reporting
	Detail string // what was found and, unless OK, what to do
}
