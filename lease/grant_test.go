package lease_test

import (
	"context"
	"errors"
	"strings"
	"testing"

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

// A cut driver carries out releases, and loses the replies.
type cut struct{ refdb.Driver }

func (d cut) Release(ctx context.Context, r driver.ReleaseRequest) (driver.Released, error) {
	if _, err := d.Driver.Release(ctx, r); err != nil {
		return driver.Released{}, err
	}
	return driver.Released{}, driver.ErrOutcomeUnknown
}

func TestAGrantWhoseEntryLockMayStandIsUnknownAndARepeatTells(t *testing.T) {
	onEach(t, func(e *env) {
		r := asking("one", lease.Shared, false)
		_, _, err := lease.Grant(e.Context(), e.openOn(cut{e.database.Open(e)}, nil), r)
		e.wantIs(err, refdb.ErrOutcomeUnknown)
		if _, existing := e.grant(e.b, r); !existing {
			e.Error("the repeat is a new acquisition")
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
