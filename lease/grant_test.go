package lease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/grants"
)

func asking(client string, mode lease.Mode, queue bool) lease.GrantRequest {
	return lease.GrantRequest{
		Project: project, Name: name, Mode: mode, Owner: "/" + client + "/" + client, Row: client, StaleAfter: staleAfter, Queue: queue,
	}
}

// grant makes a request, whose outcome must be known.
func (e *env) grant(db *refdb.DB, r lease.GrantRequest) (grants.Grant, bool) {
	e.Helper()
	g, existing, err := lease.Grant(e.Context(), db, r)
	e.must(err)
	return g, existing
}

func (e *env) wantRefused(db *refdb.DB, r lease.GrantRequest, refs ...string) {
	e.Helper()
	_, _, err := lease.Grant(e.Context(), db, r)
	var locked *refdb.LockedError
	if !errors.As(err, &locked) || len(locked.Holders) != len(refs) {
		e.Errorf("got %v, want a refusal by %q", err, refs)
		return
	}
	for i, h := range locked.Holders {
		if h.Ref != refs[i] {
			e.Errorf("refused by %s, want %s", h.Ref, refs[i])
		}
	}
}

func TestGrantsAndLeasesOfProcessesExcludeEachOther(t *testing.T) {
	onEach(t, func(e *env) {
		held := e.acquire(e.a, lease.Shared)
		shared, _ := e.grant(e.b, asking("one", lease.Shared, false))
		e.wantRefused(e.b, asking("two", lease.Exclusive, false), held.Ref(), shared.Refs[0])
		e.wantRows("shared holds", "shared holds") // nothing is left of the request
		e.must(held.Release(e.Context()))
		_, err := tryAcquire(e.Context(), e.a, project, name, lease.Exclusive)
		e.wantIs(err, refdb.ErrLocked)
		e.must(e.b.Grants().Release(e.Context(), shared))

		exclusive, _ := e.grant(e.a, asking("three", lease.Exclusive, false))
		_, err = tryAcquire(e.Context(), e.b, project, name, lease.Shared)
		e.wantIs(err, refdb.ErrLocked)
		e.must(e.a.Grants().Release(e.Context(), exclusive))
		l := e.acquire(e.b, lease.Exclusive)
		e.wantRefused(e.a, asking("four", lease.Shared, false), l.Ref())
		e.must(l.Release(e.Context()))
		e.wantNoLocks()
	})
}

func TestAGrantIsRepeatedByAnyProcess(t *testing.T) {
	onEach(t, func(e *env) {
		g, existing := e.grant(e.a, asking("one", lease.Exclusive, false))
		again, found := e.grant(e.b, asking("one", lease.Exclusive, false))
		if existing || !found || again.Token != g.Token || again.Refs[0] != g.Refs[0] {
			e.Errorf("%+v, %t, then %+v, %t", g, existing, again, found)
		}
		e.must(e.b.Grants().Extend(e.Context(), again))
		update := []refdb.Update{{Ref: mainRef, New: value}}
		e.must(e.a.Update(e.Context(), project, update, refdb.Under(g.Owner, g.Token, g.Refs...), refdb.AnyRef()))
		e.must(e.a.Grants().Release(e.Context(), g))
		e.wantIs(e.b.Update(e.Context(), project, update, refdb.Under(g.Owner, g.Token, g.Refs...), refdb.AnyRef()), refdb.ErrLockLost)
		e.wantNoLocks()
	})
}

// A place in the queue is a row: those that ask later wait for it, and it becomes the lease.
func TestAPlaceInTheQueueKeepsTheOrder(t *testing.T) {
	onEach(t, func(e *env) {
		reader, _ := e.grant(e.a, asking("reader", lease.Shared, false))
		writer := asking("writer", lease.Exclusive, true)
		e.wantRefused(e.a, writer, reader.Refs[0])
		e.wantRows("shared holds", "exclusive waits")
		e.wantRefused(e.b, asking("late", lease.Shared, false), strings.Replace(reader.Refs[0], "shared-reader", "exclusive-writer", 1))
		e.wantRefused(e.b, writer, reader.Refs[0])
		e.must(e.a.Grants().Release(e.Context(), reader))
		g, existing := e.grant(e.b, writer)
		if !existing {
			e.Errorf("a new acquisition: %+v", g)
		}
		e.wantRows("exclusive holds")
		e.must(e.a.Grants().Release(e.Context(), g))
		e.wantNoLocks()
	})
}

// While the entry lock stands with the row, the process that took both may still remove them.
func TestAnUndecidedRequestIsNotRepeated(t *testing.T) {
	onEach(t, func(e *env) {
		r := asking("one", lease.Exclusive, false)
		l := e.acquire(e.a, lease.Shared)
		entry := entryLockOf(l)
		e.must(l.Release(e.Context()))
		row := strings.TrimSuffix(entry, "turn") + "exclusive-one"
		both, err := e.a.Grants().Acquire(e.Context(), r.Owner, staleAfter, project, entry, row)
		e.must(err)
		e.wantRefused(e.b, r, entry)
		both.Refs = []string{entry}
		e.must(e.a.Grants().Release(e.Context(), both.Grant))
		if g, existing := e.grant(e.b, r); !existing || g.Token != both.Token {
			e.Errorf("%+v, %t", g, existing)
		}
	})
}

// A failing driver carries requests out and loses the replies of some, or can't be reached for others.
type failing struct {
	refdb.Driver
	acquire, release error
	list             error       // once locks were acquired
	acquired         atomic.Bool // locks
}

func (d *failing) Unwrap() refdb.Driver { return d.Driver }

func (d *failing) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	a, err := d.Driver.Acquire(ctx, r)
	if err == nil && d.acquire != nil {
		return driver.Acquired{}, d.acquire
	}
	d.acquired.Store(true)
	return a, err
}

func (d *failing) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	if errors.Is(d.release, driver.ErrUnavailable) {
		return driver.Released{}, d.release
	}
	released, err := d.Driver.Release(ctx, r)
	if err == nil && d.release != nil {
		return driver.Released{}, d.release
	}
	return released, err
}

func (d *failing) Locks(ctx context.Context, q driver.LockQuery) (driver.LockPage, error) {
	if d.list != nil && d.acquired.Load() {
		return driver.LockPage{}, d.list
	}
	return d.Driver.Locks(ctx, q)
}

// A repeat tells, unless it is refused by what the first request has left.
func TestAGrantIsUnknownWhenItMayHaveLeftARow(t *testing.T) {
	for what, row := range map[string]struct {
		d    *failing
		held bool // exclusively, by another process
	}{
		"the reply to the acquisition is lost":                        {&failing{acquire: driver.ErrOutcomeUnknown}, false},
		"no standby has the acquisition":                              {&failing{acquire: driver.ErrUnconfirmed}, false},
		"the entry lock may stand":                                    {&failing{release: driver.ErrOutcomeUnknown}, false},
		"the rows can't be listed, the locks not be released":         {&failing{list: driver.ErrUnavailable, release: driver.ErrUnavailable}, false},
		"conflicting rows are ahead, and the locks can't be released": {&failing{release: driver.ErrUnavailable}, true},
	} {
		onEach(t, func(e *env) {
			if row.held {
				e.acquire(e.a, lease.Exclusive)
			}
			d := &failing{Driver: e.database.Open(e), acquire: row.d.acquire, list: row.d.list, release: row.d.release}
			_, _, err := lease.Grant(e.Context(), e.openOn(d, nil), asking("one", lease.Shared, false))
			if !errors.Is(err, refdb.ErrOutcomeUnknown) {
				e.Errorf("%s: %v", what, err)
			}
			if what != "the entry lock may stand" {
				return
			}
			if _, existing := e.grant(e.b, asking("one", lease.Shared, false)); !existing {
				e.Error("the repeat is a new acquisition")
			}
		})
	}
}

func TestAGrantIsUnavailableWhenItHasLeftNothing(t *testing.T) {
	onEach(t, func(e *env) {
		d := &failing{Driver: e.database.Open(e), list: driver.ErrUnavailable}
		_, _, err := lease.Grant(e.Context(), e.openOn(d, nil), asking("one", lease.Shared, false))
		if !errors.Is(err, refdb.ErrUnavailable) || errors.Is(err, refdb.ErrOutcomeUnknown) {
			e.Errorf("%v", err)
		}
		e.wantNoLocks()
	})
}

// Each look of a waiter lists all rows.
func TestAQueueOfClientsIsBounded(t *testing.T) {
	onEach(t, func(e *env) {
		e.grant(e.a, asking("holder", lease.Exclusive, false))
		for i := range 99 {
			_, _, err := lease.Grant(e.Context(), e.a, asking(fmt.Sprint("waiter", i), lease.Shared, true))
			e.wantIs(err, refdb.ErrLocked)
		}
		for range 2 {
			_, _, err := lease.Grant(e.Context(), e.b, asking("last", lease.Shared, true))
			e.wantIs(err, refdb.ErrLocked)
			if n := len(e.rows()); n != 100 {
				e.Errorf("%d rows", n)
			}
		}
	})
}

func TestARecentPlaceIsNotExtended(t *testing.T) {
	onEach(t, func(e *env) {
		held := e.acquire(e.a, lease.Exclusive)
		var beats atomic.Int64
		db := e.openOn(e.database.Open(e), func(event refdb.Event) {
			if event.Op == driver.OpBeat {
				beats.Add(1)
			}
		})
		r := asking("one", lease.Exclusive, true)
		r.StaleAfter = time.Hour
		for range 3 {
			e.wantRefused(db, r, held.Ref())
		}
		if n := beats.Load(); n != 0 {
			e.Errorf("%d extensions", n)
		}
		e.database.Age(e, project, strings.TrimSuffix(entryLockOf(held), "turn")+"exclusive-one", 30*time.Minute)
		e.wantRefused(db, r, held.Ref())
		if n := beats.Load(); n != 1 {
			e.Errorf("%d extensions of an old one", n)
		}
		e.must(held.Release(e.Context()))
		e.grant(db, r)
		if n := beats.Load(); n != 2 {
			e.Errorf("%d extensions when the lease is the client's", n)
		}
	})
}

func TestAGrantNeedsANameAModeAndAnOwner(t *testing.T) {
	onEach(t, func(e *env) {
		for what, change := range map[string]func(*lease.GrantRequest){
			"no mode":  func(r *lease.GrantRequest) { r.Mode = 0 },
			"no name":  func(r *lease.GrantRequest) { r.Name = "" },
			"no owner": func(r *lease.GrantRequest) { r.Owner = "" },
			"no time":  func(r *lease.GrantRequest) { r.StaleAfter = 0 },
		} {
			r := asking("one", lease.Shared, false)
			change(&r)
			if _, _, err := lease.Grant(e.Context(), e.a, r); !errors.Is(err, refdb.ErrInvalid) {
				e.Errorf("%s: %v", what, err)
			}
		}
		e.wantNoLocks()
	})
}
