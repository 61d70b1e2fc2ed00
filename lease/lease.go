// Package lease provides shared and exclusive leases: any number of processes hold a lease
// together, or one process holds it alone. It is built on the locks of package refdb, and gives the
// same guarantees.
//
// Conflicting requests are served in the order of their tickets: a process that requests an
// exclusive lease waits for all earlier requests, and later requests, including shared ones, wait
// for it. So neither readers nor writers starve.
//
// A lease can't be upgraded, and it is not reentrant: a holder that requests the same lease again,
// in a conflicting mode, waits for itself until its context ends.
//
// # Writing under a lease
//
// [Lease.Update] moves any refs of the project while the lease is held, in one transaction. A
// resource outside the database has to compare tickets itself ([Lease.Ticket]): it accepts a shared
// lease if its ticket is larger than that of any exclusive lease that the resource has seen, and an
// exclusive lease if its ticket is larger than any that the resource has seen.
package lease

import (
	"context"
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A Mode says whether a lease can be shared.
type Mode int

const (
	Shared    Mode = iota + 1 // together with other shared leases
	Exclusive                 // alone
)

// String returns "shared" or "exclusive".
func (m Mode) String() string {
	switch m {
	case Shared:
		return "shared"
	case Exclusive:
		return "exclusive"
	}
	return fmt.Sprintf("Mode(%d)", int(m))
}

// conflicts reports whether leases of the two modes can't be held together.
func (m Mode) conflicts(other Mode) bool { return m == Exclusive || other == Exclusive }

// A Lease is held from [Acquire] or [TryAcquire] until it is released or lost. It is a [refdb.Lock]
// on a row of its own, which is renewed and lost like any lock: a holder whose process runs learns
// of the loss before others can hold the lease. Its methods may be called concurrently.
type Lease struct {
	lock      *refdb.Lock
	name, ref string
	mode      Mode
}

// Project returns the lease's project.
func (l *Lease) Project() string { return l.lock.Project() }

// Name returns the name of the lease.
func (l *Lease) Name() string { return l.name }

// Mode returns the mode of the lease.
func (l *Lease) Mode() Mode { return l.mode }

// Ref returns the ref of the lease's lock. No other lease has the same ref.
func (l *Lease) Ref() string { return l.ref }

// Ticket returns the token of the lease's lock. It is larger than that of any lease of this name
// that was requested earlier; conflicting leases are held in the order of their tickets.
func (l *Lease) Ticket() refdb.Token { return l.lock.Token() }

// Owner returns the owner of the lease, which is the DB's owner.
func (l *Lease) Owner() string { return l.lock.Owner() }

// Done is closed when the lease is lost or released.
func (l *Lease) Done() <-chan struct{} { return l.lock.Done() }

// Err returns nil while the lease is held; then an error wrapping [refdb.ErrLockLost],
// [refdb.ErrReleased] or [refdb.ErrClosed]. It reads the clock itself, so that in a process that
// was frozen it reports the loss before any timer has fired.
func (l *Lease) Err() error { return l.lock.Err() }

// Context returns a context that ends when the lease is lost or released, with Err as its cause. It
// has the values of the context with which the lease was acquired, but does not end with that
// context.
func (l *Lease) Context() context.Context { return l.lock.Context() }

// Update moves any refs of the project, all or none, in one transaction that checks that the lease
// is still held. If it is not, nothing is written and the error wraps [refdb.ErrLockLost]. The
// lease does not prevent others from moving these refs: as with [refdb.DB.Update], locks of others
// refuse the update, values that differ are a [*refdb.MismatchError], and a lost reply may be
// [refdb.ErrOutcomeUnknown].
func (l *Lease) Update(ctx context.Context, updates []refdb.Update, opts ...refdb.UpdateOption) error {
	return l.lock.Update(ctx, updates, append(slices.Clip(opts), refdb.AnyRef())...)
}

// Release ends the lease, as [refdb.Lock.Release] ends a lock: it may be called any number of
// times, continues in the background if ctx ends or the database can't be reached, and returns an
// error that wraps [refdb.ErrLockLost] if the lease was not held until now.
func (l *Lease) Release(ctx context.Context) error {
	if err := l.lock.Release(ctx); err != nil {
		return fmt.Errorf("the %s lease %q: %w", l.mode, l.name, err)
	}
	return nil
}
