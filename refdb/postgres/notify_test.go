package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A waiter is a driver whose client listens.
type waiter struct {
	*postgres.Driver
	driver.Waiter
	tb    testing.TB
	woken chan driver.Wakeup
	ended chan error
}

func newWaiter(tb testing.TB, url string) *waiter {
	tb.Helper()
	self := driver.Waiter{ID: rand.Text(), Channel: rand.Text(), Turn: time.Minute}
	w := &waiter{open(tb, url), self, tb, make(chan driver.Wakeup, 100), make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	started := make(chan struct{})
	go func() {
		w.ended <- w.Listen(ctx, w.Channel, func() { close(started) }, func(got driver.Wakeup) { w.woken <- got })
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

// refused requests the locks, and waits for their holders.
func (w *waiter) refused(refs ...string) {
	w.tb.Helper()
	r := request(refs...)
	r.Waiter = w.Waiter
	if _, err := w.Acquire(w.tb.Context(), r); !errors.Is(err, driver.ErrLocked) {
		w.tb.Fatalf("got %v", err)
	}
}

// wantWoken waits for a wake-up for ref, or for any ref if ref is empty.
func (w *waiter) wantWoken(ref string) {
	w.tb.Helper()
	select {
	case got := <-w.woken:
		if want := (driver.Wakeup{Project: project, Ref: got.Ref, Waiter: w.ID}); got != want || ref != "" && got.Ref != ref {
			w.tb.Fatalf("woken by %+v", got)
		}
	case <-time.After(patience):
		w.tb.Fatal("not woken")
	}
}

func (w *waiter) wantAsleep() {
	w.tb.Helper()
	select {
	case got := <-w.woken:
		w.tb.Fatalf("woken by %+v", got)
	default:
	}
}

// queued returns the entries of the queue in the row of a lock.
func queued(tb testing.TB, db *dbtest.Database, ref string) []string {
	tb.Helper()
	rows := query[[]string](tb, session(tb, db.URL()), `SELECT waiting FROM locks WHERE project = $1 AND ref = $2`, project, ref)
	if len(rows) != 1 {
		tb.Fatalf("%d locks on %s", len(rows), ref)
	}
	return rows[0]
}

// A waiter that does not fit into the queue polls.
func TestAQueueHasAtMostAHundredPlaces(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	a := acquire(t, d, mainRef)
	for n := range 101 {
		r := request(mainRef)
		r.Waiter = driver.Waiter{ID: fmt.Sprint(n), Channel: "channel", Turn: time.Minute}
		if _, err := d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrLocked) {
			t.Fatal(err)
		}
	}
	wantEnds := func(first, last string) {
		t.Helper()
		got := queued(t, db, mainRef)
		if len(got) != 100 || !strings.Contains(got[0], first) || !strings.Contains(got[99], last) {
			t.Errorf("the queue is %q", got)
		}
	}
	wantEnds(".0.channel.", ".99.channel.")
	w := newWaiter(t, db.URL())
	w.Place.Ticket = time.UnixMicro(1)
	w.refused(mainRef)
	wantEnds(w.ID, ".98.channel.")
	release(t, d, a, mainRef)
	w.wantWoken(mainRef)
}

// Queue entries of other versions of this program don't count as waiters.
func TestEntriesOfOtherFormsAreIgnored(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	w := newWaiter(t, db.URL())
	c := session(t, db.URL())
	foreign := []string{"", "channel.client", "refdb_0123456789abcdef", strings.Repeat(".", 40), "1234567890123456.00.00100"}
	for _, refs := range [][]string{{mainRef}, {mainRef, otherRef}} {
		a := acquire(t, w, refs...)
		exec(t, c, `UPDATE locks SET waiting = $1`, foreign)
		release(t, w, a, refs...)
		if rows := query[string](t, c, `SELECT ref FROM locks`); len(rows) != 0 {
			t.Errorf("the locks %q are left", rows)
		}
		a = acquire(t, w, refs...)
		exec(t, c, `UPDATE locks SET waiting = $1`, foreign)
		w.refused(refs...)
		release(t, w, a, refs...)
		for range refs {
			w.wantWoken("")
		}
		r := request(refs...)
		r.Waiter = w.Waiter
		a, err := w.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		release(t, w, a, refs...)
	}
}

// Several clients may listen on one channel, each with its own driver. A client that listens
// through the driver that ends the lock is woken without a notification.
func TestAllListenersOfAChannelGetItsWakeUps(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	first := newWaiter(t, db.URL())
	second := open(t, db.URL())
	heard := make(chan driver.Wakeup, 10)
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- second.Listen(ctx, first.Channel, func() { close(started) }, func(w driver.Wakeup) { heard <- w })
	}()
	<-started
	holder := open(t, db.URL())
	a := acquire(t, holder, mainRef)
	first.refused(mainRef)
	release(t, holder, a, mainRef)
	first.wantWoken(mainRef)
	if got := <-heard; got.Ref != mainRef || got.Waiter != first.ID {
		t.Errorf("heard %+v", got)
	}
	first.wantAsleep() // the second client's probe does not wake it
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAListenerEndsWithItsConnectionAndWithItsDriver(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	lost := newWaiter(t, db.URL())
	c := session(t, db.URL())
	terminate(t, c, `true`)
	if err := <-lost.ended; !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("the connection was lost: %v", err)
	}
	closed := newWaiter(t, db.URL())
	if err := closed.Close(); err != nil {
		t.Error(err)
	}
	if err := <-closed.ended; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("the driver was closed: %v", err)
	}
}

func TestADriverLeavesNoGoroutinesOrConnections(t *testing.T) { // nothing else runs meanwhile
	db := dbtest.Postgres(t)
	before := goleak.IgnoreCurrent()
	d, err := postgres.Open(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan struct{}), make(chan error)
	go func() { ended <- d.Listen(ctx, "channel", func() { close(started) }, nil) }()
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
	if left := dbtest.Leaks(before); left != nil {
		t.Error(left)
	}
}
