package grants_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

func TestAUniqueAcquisitionIsRepeatedThroughAnyProcess(t *testing.T) {
	onEach(t, func(t *testing.T, one, other *refdb.DB) {
		ctx := t.Context()
		first, err := one.Grants().AcquireUnique(ctx, "/ci/x", time.Hour, "p", nextRef, mainRef)
		if err != nil || first.Existing {
			t.Fatal(first, err)
		}
		again, err := other.Grants().AcquireUnique(ctx, "/ci/x", time.Hour, "p", mainRef, nextRef)
		if err != nil || !again.Existing || again.Token != first.Token || !slices.Equal(again.Refs, first.Refs) {
			t.Errorf("repeated: %+v, %v", again, err)
		}
		if _, err := other.Grants().AcquireUnique(ctx, "/ci/y", time.Hour, "p", mainRef); !errors.Is(err, driver.ErrLocked) {
			t.Errorf("another owner: %v", err)
		}
		// Other refs are another acquisition: the owner has not got both.
		if _, err := other.Grants().AcquireUnique(ctx, "/ci/x", time.Hour, "p", mainRef, "refs/heads/third"); !errors.Is(err, driver.ErrLocked) {
			t.Errorf("other refs: %v", err)
		}
		if err := other.Grants().Release(ctx, first.Grant); err != nil {
			t.Fatal(err)
		}
		later, err := one.Grants().AcquireUnique(ctx, "/ci/x", time.Hour, "p", mainRef, nextRef)
		if err != nil || later.Existing || later.Token <= first.Token {
			t.Errorf("after the release: %+v, %v", later, err)
		}
	})
}

// lossy is a driver that loses the replies of its first acquisitions.
type lossy struct {
	driver.Driver
	lose   int
	arrive bool // whether the requests whose replies are lost are carried out
	ended  bool // a request was given a context that ends
}

func (d *lossy) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	d.ended = d.ended || ctx.Done() != nil
	if d.lose == 0 {
		return d.Driver.Acquire(ctx, r)
	}
	d.lose--
	if d.arrive {
		if _, err := d.Driver.Acquire(ctx, r); err != nil {
			return driver.Acquired{}, err
		}
	}
	return driver.Acquired{}, driver.ErrOutcomeUnknown
}

func TestAUniqueAcquisitionWithALostReplyIsNotReleased(t *testing.T) {
	for _, arrive := range []bool{true, false} {
		m := memory.New()
		open := func(d driver.Driver) *refdb.DB {
			db, err := refdb.New(d, refdb.Options{Site: "service"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			return db
		}
		d := &lossy{Driver: m.Open(), lose: 1, arrive: arrive}
		one, other := open(d), open(m.Open())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if a, err := one.Grants().AcquireUnique(ctx, "/ci/once", time.Hour, "p", nextRef); err != nil || a.Existing {
			t.Errorf("a single lost reply: %+v, %v", a, err)
		}
		d.lose = 1000
		_, err := one.Grants().AcquireUnique(ctx, "/ci/x", time.Hour, "p", mainRef)
		if !errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Errorf("without a reply: %v", err)
		}
		one.Close() // whatever would go on in the background has ended
		a, err := other.Grants().AcquireUnique(ctx, "/ci/x", time.Hour, "p", mainRef)
		if err != nil || a.Existing != arrive {
			t.Errorf("repeated: %+v, %v", a, err)
		}
		if d.ended {
			t.Error("a driver gives locks back when the context of their request ends")
		}
	}
}

func TestAUniqueAcquisitionBeginsNothingAfterItsContextHasEnded(t *testing.T) {
	db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "service"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.Grants().AcquireUnique(ctx, "/ci/x", time.Hour, "p", mainRef); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := db.Grants().Acquire(t.Context(), "other", time.Hour, "p", mainRef); err != nil {
		t.Errorf("the ref is not free: %v", err)
	}
}

// A waiter keeps its place though its calls come from several processes, and the locks are kept for it.
func TestAWaiterHasTheSamePlaceInEveryProcess(t *testing.T) {
	onEach(t, func(t *testing.T, one, two *refdb.DB) {
		ctx := t.Context()
		held, err := one.Grants().Acquire(ctx, "/a/1", time.Hour, "p", mainRef)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range []struct {
			db     *refdb.DB
			waiter string
		}{{one, "early"}, {two, "late"}, {one, "gone"}, {two, "early"}} {
			_, err := call.db.Grants().AcquireInTurn(ctx, call.waiter, "/"+call.waiter+"/x", time.Hour, "p", mainRef)
			if !errors.Is(err, refdb.ErrLocked) {
				t.Errorf("%s: %v", call.waiter, err)
			}
		}
		if err := two.Grants().Leave(ctx, "gone", "/gone/x", "p", mainRef); err != nil {
			t.Fatal(err)
		}
		row := func() (only refdb.LockInfo) {
			t.Helper()
			for l, err := range one.Locks(ctx, refdb.LockFilter{Project: "p"}) {
				if err != nil {
					t.Fatal(err)
				}
				only = l
			}
			return only
		}
		before := row()
		if before.Waiters != 2 {
			t.Errorf("%d waiters", before.Waiters)
		}
		if err := two.Grants().Release(ctx, held.Grant); err != nil {
			t.Fatal(err)
		}
		l := row()
		if l.Owner != driver.ReservedFor("/early/x") || l.Waiters != 1 {
			t.Errorf("%+v", l)
		}
		// The lock became free after the first look, however slow the machine is. Drivers round to microseconds.
		kept := l.Heartbeat.Add(l.StaleAfter).Sub(before.Heartbeat.Add(before.Age))
		if kept < 5*time.Second-time.Millisecond {
			t.Errorf("the lock is kept for %s", kept)
		}
		if err := one.Grants().Leave(ctx, "early", "/early/x", "p", mainRef); err != nil {
			t.Fatal(err)
		}
		if l := row(); l.Owner != driver.ReservedFor("/late/x") {
			t.Errorf("%+v", l)
		}
	})
}

// A repeat is refused by the locks that it asks for. It does not wait for them.
func TestARepeatDoesNotQueueForItsOwnLocks(t *testing.T) {
	onEach(t, func(t *testing.T, one, two *refdb.DB) {
		ctx := t.Context()
		for _, db := range []*refdb.DB{one, two} {
			a, err := db.Grants().AcquireInTurn(ctx, "waiter", "/ci/x", time.Hour, "p", mainRef)
			if err != nil || a.Existing != (db == two) {
				t.Fatalf("%+v, %v", a, err)
			}
			if db == one {
				continue
			}
			if err := one.Grants().Release(ctx, a.Grant); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := one.Grants().AcquireUnique(ctx, "/other/x", time.Hour, "p", mainRef); err != nil {
			t.Errorf("after the release: %v", err)
		}
	})
}
