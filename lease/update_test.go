package lease_test

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/projects"
)

func (e *env) wantValue(want refdb.Value) {
	e.Helper()
	got, err := e.b.Get(e.Context(), project, mainRef)
	e.must(err)
	if got != want {
		e.Errorf("the ref holds %q, want %q", got, want)
	}
}

func TestALeaseUpdatesAnyRefWhileItIsHeld(t *testing.T) {
	onEach(t, func(e *env) {
		l := e.acquire(e.a, lease.Shared)
		create := []refdb.Update{{Ref: mainRef, New: value}, {Ref: "refs/heads/other", New: value}}
		e.must(l.Update(e.Context(), create, refdb.By("somebody")))
		e.wantValue(value)
		e.wantIs(l.Update(e.Context(), create), refdb.ErrMismatch)
		e.wantIs(l.Update(e.Context(), nil), refdb.ErrInvalid)
		e.must(l.Update(e.Context(), []refdb.Update{{Ref: mainRef, Old: value, New: refdb.Deleted}}))
		e.wantValue(refdb.Deleted)

		lock, err := e.b.TryLock(e.Context(), project, mainRef)
		e.must(err)
		e.wantIs(l.Update(e.Context(), []refdb.Update{{Ref: mainRef, New: value}}), refdb.ErrLocked)
		e.must(lock.Release(e.Context()))
		if l.Err() != nil {
			e.Errorf("a refused update cost the lease: %v", l.Err())
		}
	})
}

// The process was frozen, and another has the lease.
func TestALeaseThatWasTakenOverWritesNothing(t *testing.T) {
	onEach(t, func(e *env) {
		l := e.acquire(e.a, lease.Exclusive)
		e.database.Age(e, project, l.Ref(), stale)
		successor, err := tryAcquire(e.Context(), e.b, project, name, lease.Exclusive)
		e.must(err)
		if successor.Ticket() <= l.Ticket() {
			e.Errorf("the ticket %d after %d", successor.Ticket(), l.Ticket())
		}
		err = l.Update(e.Context(), []refdb.Update{{Ref: mainRef, New: value}})
		e.wantIs(err, refdb.ErrLockLost)
		if !strings.Contains(err.Error(), project+" "+l.Ref()) {
			e.Errorf("%q does not name the row", err)
		}
		e.wantValue(refdb.Unknown)
		<-l.Done()
		e.wantIs(l.Err(), refdb.ErrLockLost)
		e.wantIs(l.Release(e.Context()), refdb.ErrLockLost)
		e.must(successor.Update(e.Context(), []refdb.Update{{Ref: mainRef, New: value}}))
		e.must(successor.Release(e.Context()))
		e.wantNoLocks()
	})
}

func TestAProjectIsNotRemovedUnderALeaseUnlessForced(t *testing.T) {
	onEach(t, func(e *env) {
		l := e.acquire(e.a, lease.Exclusive)
		e.must(l.Update(e.Context(), []refdb.Update{{Ref: mainRef, New: value}}))
		_, err := e.b.Projects().Remove(e.Context(), project)
		e.wantBlockedBy(err, l)
		e.wantValue(value)
		waiter := e.waiter(e.Context(), e.b, lease.Shared)

		_, err = e.b.Projects().Remove(e.Context(), project, projects.Force())
		e.must(err)
		err = l.Update(e.Context(), []refdb.Update{{Ref: mainRef, New: value}})
		e.wantIs(err, refdb.ErrLockLost)
		if strings.Contains(err.Error(), "\n") {
			e.Errorf("more than a line: %q", err)
		}
		e.wantValue(refdb.Unknown)
		// The one that waited begins again, and nobody is ahead of it. Or it had the lease already when force
		// took that, too.
		if err := e.receive(waiter).Release(e.Context()); err != nil {
			e.wantIs(err, refdb.ErrLockLost)
		}
		e.wantNoLocks()
	})
}
