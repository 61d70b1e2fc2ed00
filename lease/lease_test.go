package lease_test

import (
	"context"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
)

func TestSharedLeasesAreHeldTogetherAndAnExclusiveOneAlone(t *testing.T) {
	onEach(t, func(e *env) {
		for _, c := range []struct {
			held, asked lease.Mode
			granted     bool
		}{
			{lease.Shared, lease.Shared, true},
			{lease.Shared, lease.Exclusive, false},
			{lease.Exclusive, lease.Shared, false},
			{lease.Exclusive, lease.Exclusive, false},
		} {
			held := e.acquire(e.a, c.held)
			for _, db := range []*refdb.DB{e.a, e.b} { // it is not reentrant
				l, err := tryAcquire(e.Context(), db, project, name, c.asked)
				if !c.granted {
					e.wantBlockedBy(err, held)
					continue
				}
				e.must(err)
				if l.Ticket() <= held.Ticket() || l.Err() != nil {
					e.Errorf("the ticket %d after %d: %v", l.Ticket(), held.Ticket(), l.Err())
				}
				e.must(l.Release(e.Context()))
			}
			e.wantRows(c.held.String() + " holds")
			e.must(held.Release(e.Context()))
		}
		e.wantNoLocks()
	})
}

func TestOtherNamesAndProjectsHaveOtherLeases(t *testing.T) {
	onEach(t, func(e *env) {
		e.acquire(e.a, lease.Exclusive)
		for _, other := range [][2]string{{project, name + "/"}, {project, "docs"}, {project + "/" + name, name}} {
			l, err := tryAcquire(e.Context(), e.b, other[0], other[1], lease.Exclusive)
			e.must(err)
			if l.Project() != other[0] || l.Name() != other[1] || l.Mode() != lease.Exclusive {
				e.Errorf("it is the %s lease %q of %s", l.Mode(), l.Name(), l.Project())
			}
		}
	})
}

// Neither side starves: a reader that comes later waits for a writer that waits.
func TestWaitersAreServedInTheOrderOfTheirTickets(t *testing.T) {
	onEach(t, func(e *env) {
		first := e.acquire(e.a, lease.Shared)
		writer := e.waiter(e.Context(), e.b, lease.Exclusive)
		readerA, readerB := e.waiter(e.Context(), e.a, lease.Shared), e.waiter(e.Context(), e.b, lease.Shared)
		last := e.waiter(e.Context(), e.a, lease.Exclusive)
		e.wantRows("shared holds", "exclusive waits", "shared waits", "shared waits", "exclusive waits")

		e.must(first.Release(e.Context()))
		w := e.receive(writer)
		e.wantRows("exclusive holds", "shared waits", "shared waits", "exclusive waits")
		e.must(w.Release(e.Context()))
		a, b := e.receive(readerA), e.receive(readerB)
		e.wantRows("shared holds", "shared holds", "exclusive waits")
		e.must(a.Release(e.Context()))
		e.wantRows("shared holds", "exclusive waits")
		e.must(b.Release(e.Context()))
		l := e.receive(last)
		if !(first.Ticket() < w.Ticket() && w.Ticket() < a.Ticket() && a.Ticket() < b.Ticket() && b.Ticket() < l.Ticket()) {
			e.Errorf("the tickets are %d, %d, %d, %d, %d", first.Ticket(), w.Ticket(), a.Ticket(), b.Ticket(), l.Ticket())
		}
		e.must(l.Release(e.Context()))
		e.wantNoLocks()
	})
}

func TestARefusedTryDelaysNoOtherRequest(t *testing.T) {
	onEach(t, func(e *env) {
		reader := e.acquire(e.a, lease.Shared)
		_, err := tryAcquire(e.Context(), e.b, project, name, lease.Exclusive)
		e.wantBlockedBy(err, reader)
		if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), e.a.Owner()) {
			e.Errorf("%q names neither the lease nor its holder", err)
		}
		e.wantRows("shared holds")
		another, err := tryAcquire(e.Context(), e.b, project, name, lease.Shared)
		e.must(err)
		e.must(another.Release(e.Context()))
		e.must(reader.Release(e.Context()))
		e.wantNoLocks()
	})
}

func TestAWaiterThatGivesUpRemovesItsRow(t *testing.T) {
	onEach(t, func(e *env) {
		holder := e.acquire(e.a, lease.Exclusive)
		ctx, cancel := context.WithCancel(e.Context())
		looks := make(chan struct{}, 2)
		db := e.openOn(e.database.Open(e), func(o refdb.Event) {
			if o.Op == driver.OpList {
				select {
				case looks <- struct{}{}:
				default:
				}
			}
		})
		waiter := e.waiter(ctx, db, lease.Shared)
		e.wantRows("exclusive holds", "shared waits")
		<-looks // it knows whom it waits for
		<-looks
		cancel()
		a := <-waiter
		e.wantIs(a.err, context.Canceled, refdb.ErrLocked)
		e.wantBlockedBy(a.err, holder)
		e.eventually(func() bool { return len(e.rows()) == 1 }) // it returns earlier if the database is slow
		e.wantRows("exclusive holds")
		e.must(holder.Release(e.Context()))
		e.wantNoLocks()
	})
}

func TestAWaiterThatLosesItsRowStartsOver(t *testing.T) {
	onEach(t, func(e *env) {
		holder := e.acquire(e.a, lease.Exclusive)
		waiter := e.waiter(e.Context(), e.b, lease.Shared)
		lost := e.rows()[1]
		purged, err := e.a.Operator().Purge(e.Context(), []refdb.LockInfo{lost.LockInfo}, operator.PurgeFresh())
		if err != nil || len(purged) != 1 {
			e.Fatalf("%d rows were removed: %v", len(purged), err)
		}
		e.eventually(func() bool { return len(e.rows()) == 2 })
		e.must(holder.Release(e.Context()))
		if l := e.receive(waiter); l.Ticket() <= lost.Token || l.Err() != nil {
			e.Errorf("the ticket %d after %d: %v", l.Ticket(), lost.Token, l.Err())
		}
	})
}

// A row of a dead reader keeps no reader out, and would stand until a writer comes.
func TestEveryRequestRemovesStaleRowsOfBothModes(t *testing.T) {
	onEach(t, func(e *env) {
		dead := e.open()
		l := e.acquire(dead, lease.Shared)
		e.acquire(dead, lease.Shared)
		_, err := dead.TryLock(e.Context(), project, strings.TrimSuffix(entryLockOf(l), "turn")+"exclusive-X") // of one that waited
		e.must(err)
		dying := e.rows()
		e.must(dead.Close())
		for _, r := range dying {
			e.database.Age(e, project, r.Ref, stale)
		}
		for _, ask := range asks() {
			l, err := ask(e.Context(), e.a, project, name, lease.Shared)
			e.must(err)
			e.wantRows("shared holds")
			e.must(l.Release(e.Context()))
		}
		e.wantNoLocks()
	})
}

func TestNoRequestRemovesAFreshRow(t *testing.T) {
	onEach(t, func(e *env) {
		dead := e.open()
		held := e.acquire(dead, lease.Exclusive)
		e.must(dead.Close())
		_, err := tryAcquire(e.Context(), e.a, project, name, lease.Shared)
		e.wantBlockedBy(err, held)
		e.wantRows("exclusive holds")
	})
}

// The process ended between the two requests by which one asks.
func TestAStaleEntryLockIsTakenOver(t *testing.T) {
	onEach(t, func(e *env) {
		l := e.acquire(e.a, lease.Exclusive)
		entry, own := entryLockOf(l), l.Ref()+"x"
		e.must(l.Release(e.Context()))
		dead := e.open()
		_, err := dead.TryLock(e.Context(), project, entry, own)
		e.must(err)
		e.must(dead.Close())
		for _, ref := range []string{entry, own} {
			e.database.Age(e, project, ref, stale)
		}
		e.must(e.acquire(e.a, lease.Exclusive).Release(e.Context()))
		e.wantNoLocks()
	})
}

func TestAReleasedLeaseHasEnded(t *testing.T) {
	onEach(t, func(e *env) {
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(e.Context(), key{}, "x"))
		l, err := lease.Acquire(ctx, e.a, project, name, lease.Shared)
		e.must(err)
		guarded := l.Context()
		cancel()
		if guarded.Value(key{}) != "x" || guarded.Err() != nil || l.Err() != nil || l.Owner() != e.a.Owner() {
			e.Errorf("of %s, with %v: %v, %v", l.Owner(), guarded.Value(key{}), guarded.Err(), l.Err())
		}
		e.must(l.Release(e.Context()))
		e.must(l.Release(e.Context()))
		<-l.Done()
		<-guarded.Done()
		e.wantIs(context.Cause(guarded), refdb.ErrReleased)
		e.wantIs(l.Err(), refdb.ErrReleased)
		e.wantIs(l.Update(e.Context(), []refdb.Update{{Ref: mainRef, New: value}}), refdb.ErrReleased)
	})
}

func TestRowsListHoldersAndWaiters(t *testing.T) {
	onEach(t, func(e *env) {
		e.wantRows()
		l := e.acquire(e.a, lease.Exclusive)
		e.waiter(e.Context(), e.b, lease.Shared)
		rows := e.rows()
		if r := rows[0]; r.Ref != l.Ref() || r.Token != l.Ticket() || r.Owner != e.a.Owner() || r.Mode != lease.Exclusive || r.Waits {
			e.Errorf("the holder is %+v", r)
		}
		if r := rows[1]; r.Owner != e.b.Owner() || r.Mode != lease.Shared || !r.Waits {
			e.Errorf("the waiter is %+v", r)
		}
		e.must(l.Release(e.Context()))
	})
}
