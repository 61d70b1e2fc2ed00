package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A waiter is a driver that listens.
type waiter struct {
	*postgres.Driver
	tb    testing.TB
	woken chan string
	ended chan error
}

func newWaiter(tb testing.TB, url string) *waiter {
	tb.Helper()
	w := &waiter{open(tb, url), tb, make(chan string, 100), make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	started := make(chan struct{})
	go func() {
		w.ended <- w.Listen(ctx, func() { close(started) }, func(project, ref string) { w.woken <- project + " " + ref })
		close(w.ended)
	}()
	tb.Cleanup(func() {
		cancel()
		<-w.ended
	})
	select {
	case <-started:
	case err := <-w.ended:
		tb.Fatal(err)
	}
	return w
}

// refused asks for the locks, and waits for those who hold them.
func (w *waiter) refused(refs ...string) {
	w.tb.Helper()
	r := request(refs...)
	r.Wait = true
	if _, err := w.Acquire(w.tb.Context(), r); !errors.Is(err, refdb.ErrLocked) {
		w.tb.Fatalf("got %v", err)
	}
}

func (w *waiter) wantWoken(ref string) {
	w.tb.Helper()
	select {
	case got := <-w.woken:
		if got != project+" "+ref {
			w.tb.Fatalf("woken for %s", got)
		}
	case <-time.After(10 * time.Second):
		w.tb.Fatal("not woken")
	}
}

func (w *waiter) wantAsleep() {
	w.tb.Helper()
	select {
	case got := <-w.woken:
		w.tb.Fatalf("woken for %s", got)
	default:
	}
}

func release(tb testing.TB, d refdb.Driver, a refdb.Acquired, refs ...string) {
	tb.Helper()
	if gone, err := d.Release(tb.Context(), held(a, refs...)); err != nil || slices.Contains(gone, false) {
		tb.Fatal(gone, err)
	}
}

func TestThoseWhoWaitAreWokenInTheirOrder(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	holder := open(t, db.URL())
	a := acquire(t, holder, mainRef)
	var waiters []*waiter
	for range 3 {
		w := newWaiter(t, db.URL())
		w.refused(mainRef)
		w.refused(mainRef) // it is in the queue already
		waiters = append(waiters, w)
	}
	var d refdb.Driver = holder
	for n, w := range waiters {
		release(t, d, a, mainRef)
		w.wantWoken(mainRef)
		for _, later := range waiters[n+1:] {
			later.wantAsleep()
		}
		a, d = acquire(t, w, mainRef), w
	}
	release(t, d, a, mainRef)
	for _, w := range waiters {
		w.wantAsleep()
	}
}

func TestAQueueGoesOnBehindOneWhoCameFirstOutOfTurn(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	first, second := newWaiter(t, db.URL()), newWaiter(t, db.URL())
	a := acquire(t, d, mainRef)
	first.refused(mainRef)
	second.refused(mainRef)
	release(t, d, a, mainRef)
	first.wantWoken(mainRef)
	a = acquire(t, d, mainRef) // out of turn
	first.refused(mainRef)
	release(t, d, a, mainRef)
	first.wantWoken(mainRef)
	a = acquire(t, first, mainRef, otherRef)
	release(t, first, a, mainRef, otherRef)
	second.wantWoken(mainRef)
}

// One who is next in this process takes the lock, and the queue with it.
func TestAQueueGoesOnBehindOneWhoIsNextInTheProcess(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	for _, end := range []string{"release", "update and release"} {
		first, second := newWaiter(t, db.URL()), newWaiter(t, db.URL())
		ref := "refs/heads/" + strings.ReplaceAll(end, " ", "-")
		a := acquire(t, first, ref)
		first.refused(ref) // for another in the same process
		second.refused(ref)
		if end == "release" {
			h := held(a, ref)
			h[0].Next = true
			if _, err := first.Release(t.Context(), h); err != nil {
				t.Fatal(err)
			}
		} else {
			tx := update(ref)
			tx.Fence, tx.Release, tx.Next = &refdb.Fence{Refs: []string{ref}, Token: a.Token}, true, true
			if err := first.Update(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
		}
		first.wantAsleep()
		second.wantAsleep()
		a = acquire(t, first, ref)
		if _, err := first.Release(t.Context(), held(a, ref)); err != nil {
			t.Fatal(err)
		}
		second.wantWoken(ref)
	}
}

// One who goes back is woken behind the others that wait, and at once if there are none.
func TestOneWhoGoesBackIsWokenInItsTurn(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	for name, end := range map[string]func(w *waiter, a refdb.Acquired, ref string) error{
		"release": func(w *waiter, a refdb.Acquired, ref string) error {
			h := held(a, ref)
			h[0].Back = true
			_, err := w.Release(t.Context(), h)
			return err
		},
		"update-and-release": func(w *waiter, a refdb.Acquired, ref string) error {
			tx := update(ref)
			tx.Fence, tx.Release, tx.Back = &refdb.Fence{Refs: []string{ref}, Token: a.Token}, true, true
			return w.Update(t.Context(), tx)
		},
	} {
		for _, shared := range []bool{false, true} {
			first, second, third := newWaiter(t, db.URL()), newWaiter(t, db.URL()), newWaiter(t, db.URL())
			if shared {
				first.ShareAll()
			}
			ref, alone := fmt.Sprintf("refs/heads/%s-%t", name, shared), fmt.Sprintf("refs/heads/%s-%t-alone", name, shared)
			a := acquire(t, first, ref)
			second.refused(ref)
			third.refused(ref)
			if err := end(first, a, ref); err != nil {
				t.Fatal(err)
			}
			for _, w := range []*waiter{second, third} {
				w.wantWoken(ref)
				first.wantAsleep()
				release(t, w, acquire(t, w, ref), ref)
			}
			first.wantWoken(ref)

			if err := end(first, acquire(t, first, alone), alone); err != nil {
				t.Fatal(err)
			}
			first.wantWoken(alone)
		}
	}
}

func TestEveryWayThatALockEndsWakesThoseWhoWait(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, db *dbtest.Database, d *postgres.Driver, a refdb.Acquired) error{
		"an update that releases": func(t *testing.T, _ *dbtest.Database, d *postgres.Driver, a refdb.Acquired) error {
			tx := update(mainRef)
			tx.Fence, tx.Release = &refdb.Fence{Refs: []string{mainRef}, Token: a.Token}, true
			return d.Update(t.Context(), tx)
		},
		"an update that passes the stale lock": func(t *testing.T, db *dbtest.Database, d *postgres.Driver, _ refdb.Acquired) error {
			db.Age(t, project, mainRef, 2*time.Hour)
			return d.Update(t.Context(), update(mainRef, otherRef))
		},
		"a removal": func(t *testing.T, _ *dbtest.Database, d *postgres.Driver, _ refdb.Acquired) error {
			_, err := d.Remove(t.Context(), refdb.RemoveRequest{Project: project, Limit: 10, Force: true})
			return err
		},
		"a reclaim, released": func(t *testing.T, db *dbtest.Database, d *postgres.Driver, _ refdb.Acquired) error {
			db.Age(t, project, mainRef, 2*time.Hour)
			release(t, d, acquire(t, d, mainRef), mainRef)
			return nil
		},
		"a reclaim of several, released": func(t *testing.T, db *dbtest.Database, d *postgres.Driver, _ refdb.Acquired) error {
			db.Age(t, project, mainRef, 2*time.Hour)
			release(t, d, acquire(t, d, mainRef, otherRef), mainRef, otherRef)
			return nil
		},
		"a release, at the end of the process": func(t *testing.T, _ *dbtest.Database, d *postgres.Driver, a refdb.Acquired) error {
			release(t, d, a, mainRef)
			return d.Close()
		},
		"a release, beside what is no channel of ours": func(t *testing.T, db *dbtest.Database, d *postgres.Driver, a refdb.Acquired) error {
			b := acquire(t, d, otherRef)
			db.Exec(t, `UPDATE locks SET waiting = ARRAY['', $1] WHERE ref = $2`, strings.Repeat("x", 100), otherRef)
			release(t, d, b, otherRef)
			release(t, d, a, mainRef)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			d := open(t, db.URL())
			a := acquire(t, d, mainRef)
			w := newWaiter(t, db.URL())
			w.refused(mainRef)
			if err := end(t, db, d, a); err != nil {
				t.Fatal(err)
			}
			w.wantWoken(mainRef)
		})
	}
}

func TestOneWhoDoesNotListenOrWaitIsNotQueued(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d, deaf, listens := open(t, db.URL()), open(t, db.URL()), newWaiter(t, db.URL())
	acquire(t, d, mainRef)
	r := request(mainRef)
	if _, err := listens.Acquire(t.Context(), r); !errors.Is(err, refdb.ErrLocked) {
		t.Fatal(err)
	}
	r.Wait = true
	if _, err := deaf.Acquire(t.Context(), r); !errors.Is(err, refdb.ErrLocked) {
		t.Fatal(err)
	}
	c := session(t, db.URL())
	if n := query[int64](t, c, `SELECT count(waiting) FROM locks`)[0]; n != 0 {
		t.Error("somebody is queued")
	}
}

func TestAListenerEndsWithItsConnectionAndWithItsDriver(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	lost := newWaiter(t, db.URL())
	c := session(t, db.URL())
	terminate(t, c, `true`)
	if err := <-lost.ended; !errors.Is(err, refdb.ErrUnavailable) {
		t.Errorf("the connection was lost: %v", err)
	}
	closed := newWaiter(t, db.URL())
	if err := closed.Close(); err != nil {
		t.Error(err)
	}
	if err := <-closed.ended; !errors.Is(err, refdb.ErrClosed) {
		t.Errorf("the driver was closed: %v", err)
	}
}

func TestADriverLeavesNothingBehind(t *testing.T) { // nothing else runs meanwhile
	db := dbtest.Postgres(t)
	before := goleak.IgnoreCurrent()
	d, err := postgres.Open(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan struct{}), make(chan error)
	go func() { ended <- d.Listen(ctx, func() { close(started) }, nil) }()
	<-started
	a := acquire(t, d, mainRef)
	release(t, d, a, mainRef)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, before)
}
