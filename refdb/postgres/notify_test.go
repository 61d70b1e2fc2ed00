package postgres_test

import (
	"context"
	"crypto/rand"
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

// A waiter is a driver whose client listens.
type waiter struct {
	*postgres.Driver
	refdb.Waiter
	tb    testing.TB
	woken chan refdb.Wakeup
	ended chan error
}

func newWaiter(tb testing.TB, url string) *waiter {
	tb.Helper()
	w := &waiter{open(tb, url), refdb.Waiter{Channel: rand.Text(), Client: "client"}, tb, make(chan refdb.Wakeup, 100), make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	started := make(chan struct{})
	go func() {
		w.ended <- w.Listen(ctx, w.Channel, func() { close(started) }, func(got refdb.Wakeup) { w.woken <- got })
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
	w.refusedWith(nil, refs...)
}

// refusedWith gives queues back with the request.
func (w *waiter) refusedWith(queues []refdb.Queue, refs ...string) {
	w.tb.Helper()
	r := request(refs...)
	r.Waiter, r.Queues = w.Waiter, queues
	if _, err := w.Acquire(w.tb.Context(), r); !errors.Is(err, refdb.ErrLocked) {
		w.tb.Fatalf("got %v", err)
	}
}

// wantWoken waits for the wake-up for a ref, and returns its queue.
func (w *waiter) wantWoken(ref string) refdb.Queue {
	w.tb.Helper()
	select {
	case got := <-w.woken:
		if got.Project != project || got.Ref != ref || got.Queue[0] != w.Waiter {
			w.tb.Fatalf("woken by %+v", got)
		}
		return got.Queue
	case <-time.After(10 * time.Second):
		w.tb.Fatal("not woken")
		return nil
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

// take acquires the lock on a ref with the queue of a wake-up.
func (w *waiter) take(ref string, queue refdb.Queue) refdb.Acquired {
	w.tb.Helper()
	r := request(ref)
	r.Waiter, r.Queues = w.Waiter, []refdb.Queue{queue}
	a, err := w.Acquire(w.tb.Context(), r)
	if err != nil {
		w.tb.Fatal(err)
	}
	return a
}

func wantQueue(tb testing.TB, got refdb.Queue, want ...*waiter) {
	tb.Helper()
	var queue refdb.Queue
	for _, w := range want {
		queue = append(queue, w.Waiter)
	}
	if !slices.Equal(got, queue) {
		tb.Fatalf("the queue is %v, want %v", got, queue)
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

func entries(waiters ...*waiter) []string {
	var all []string
	for _, w := range waiters {
		all = append(all, w.Channel+"."+w.Client)
	}
	return all
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
		queue := w.wantWoken(mainRef)
		wantQueue(t, queue, waiters[n:]...)
		for _, later := range waiters[n+1:] {
			later.wantAsleep()
		}
		a, d = w.take(mainRef, queue), w
		if got := queued(t, db, mainRef); !slices.Equal(got, entries(waiters[n+1:]...)) {
			t.Fatalf("behind the holder are %q", got)
		}
	}
	release(t, d, a, mainRef)
	for _, w := range waiters {
		w.wantAsleep()
	}
}

// The queue that came with the wake-up goes before the one that has formed since.
func TestAWaiterThatIsRefusedAfterItsWakeUpStaysTheFirst(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	first, second, third := newWaiter(t, db.URL()), newWaiter(t, db.URL()), newWaiter(t, db.URL())
	a := acquire(t, d, mainRef)
	first.refused(mainRef)
	second.refused(mainRef)
	release(t, d, a, mainRef)
	queue := first.wantWoken(mainRef)
	a = acquire(t, d, mainRef) // out of turn
	third.refused(mainRef)
	first.refusedWith([]refdb.Queue{queue}, mainRef)
	if got := queued(t, db, mainRef); !slices.Equal(got, entries(first, second, third)) {
		t.Fatalf("the queue is %q", got)
	}
	release(t, d, a, mainRef)
	wantQueue(t, first.wantWoken(mainRef), first, second, third)
	second.wantAsleep()
}

// Of several locks, one whose ref is free has no row to go into: its queue stays the caller's.
func TestQueuesOfRefsThatAreFreeAreNotKeptByARefusal(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d, w, other := open(t, db.URL()), newWaiter(t, db.URL()), newWaiter(t, db.URL())
	a := acquire(t, d, otherRef)
	w.refusedWith([]refdb.Queue{{w.Waiter, other.Waiter}, nil}, mainRef, otherRef)
	release(t, d, a, otherRef)
	wantQueue(t, w.wantWoken(otherRef), w)
	if n := query[int64](t, session(t, db.URL()), `SELECT count(*) FROM locks`)[0]; n != 0 {
		t.Errorf("%d locks stand", n)
	}
}

func TestAWaiterThatPassesItsTurnOnWakesTheNext(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	first, second, third := newWaiter(t, db.URL()), newWaiter(t, db.URL()), newWaiter(t, db.URL())
	a := acquire(t, d, mainRef)
	for _, w := range []*waiter{first, second, third} {
		w.refused(mainRef)
	}
	release(t, d, a, mainRef)
	queue := first.wantWoken(mainRef)
	first.PassOn(refdb.Wakeup{Project: project, Ref: mainRef, Queue: queue[1:]})
	wantQueue(t, second.wantWoken(mainRef), second, third)
	third.wantAsleep()
	first.PassOn(refdb.Wakeup{Project: project, Ref: mainRef})
}

// ends are the two ways that a lock is handed off.
var ends = map[string]func(w *waiter, a refdb.Acquired, ref string, h refdb.Handoff) ([]refdb.Queue, error){
	"release": func(w *waiter, a refdb.Acquired, ref string, h refdb.Handoff) ([]refdb.Queue, error) {
		r := ending(a.Token, ref)
		r.Handoff = h
		released, err := w.Release(w.tb.Context(), r)
		return released.Queues, err
	},
	"update-and-release": func(w *waiter, a refdb.Acquired, ref string, h refdb.Handoff) ([]refdb.Queue, error) {
		r := refdb.UpdateRequest{Project: project, ID: "id", Updates: moves("", refdb.Deleted, ref), Fence: fence(a.Token, ref)}
		r.Fence.Release = &h
		updated, err := w.Update(w.tb.Context(), r)
		return updated.Queues, err
	},
}

// A waiter of the same client takes the lock, and the queue with it.
func TestTheNextGetsTheQueueInsteadOfAWakeUp(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	for name, end := range ends {
		for _, shared := range []bool{false, true} {
			first, second := newWaiter(t, db.URL()), newWaiter(t, db.URL())
			if shared {
				first.ShareAll()
			}
			ref := fmt.Sprintf("refs/heads/%s-%t", name, shared)
			a := acquire(t, first, ref)
			first.refused(ref) // for another in the same process
			second.refused(ref)
			queues, err := end(first, a, ref, refdb.Handoff{Next: first.Waiter})
			if err != nil || len(queues) != 1 {
				t.Fatal(queues, err)
			}
			wantQueue(t, queues[0], second)
			first.wantAsleep()
			second.wantAsleep()
			a = first.take(ref, append(refdb.Queue{first.Waiter}, queues[0]...))
			if queues, err := end(first, a, ref, refdb.Handoff{}); err != nil || queues != nil {
				t.Fatal(queues, err)
			}
			wantQueue(t, second.wantWoken(ref), second)

			queues, err = end(first, acquire(t, first, ref+"-alone"), ref+"-alone", refdb.Handoff{Next: first.Waiter})
			if err != nil || len(queues) != 1 || len(queues[0]) != 0 {
				t.Errorf("a lock that nobody waits for: %v, %v", queues, err)
			}
		}
	}
}

// A client that goes back is woken behind the others that wait, and at once if there are none.
func TestTheLastIsWokenInItsTurn(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	for name, end := range ends {
		for _, shared := range []bool{false, true} {
			first, second, third := newWaiter(t, db.URL()), newWaiter(t, db.URL()), newWaiter(t, db.URL())
			if shared {
				first.ShareAll()
			}
			ref, alone := fmt.Sprintf("refs/heads/%s-%t", name, shared), fmt.Sprintf("refs/heads/%s-%t-alone", name, shared)
			a := acquire(t, first, ref)
			second.refused(ref)
			third.refused(ref)
			if _, err := end(first, a, ref, refdb.Handoff{Last: first.Waiter}); err != nil {
				t.Fatal(err)
			}
			for _, w := range []*waiter{second, third} {
				queue := w.wantWoken(ref)
				first.wantAsleep()
				release(t, w, w.take(ref, queue), ref)
			}
			wantQueue(t, first.wantWoken(ref), first)

			if _, err := end(first, acquire(t, first, alone), alone, refdb.Handoff{Last: first.Waiter}); err != nil {
				t.Fatal(err)
			}
			first.wantWoken(alone)
		}
	}
}

// Of several refs each has a queue, in the order of the refs.
func TestTheQueuesOfSeveralLocksAreInTheirOrder(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	w, other := newWaiter(t, db.URL()), newWaiter(t, db.URL())
	refs := []string{"refs/heads/a", "refs/heads/b", "refs/heads/c"}
	next := refdb.Handoff{Next: refdb.Waiter{Channel: "next", Client: "1"}}
	want := func(queues []refdb.Queue) {
		t.Helper()
		if len(queues) != len(refs) {
			t.Fatal(queues)
		}
		wantQueue(t, queues[0])
		wantQueue(t, queues[1], other)
		wantQueue(t, queues[2], w)
	}
	queue := func() refdb.Acquired {
		a := acquire(t, w, refs...)
		w.refused(refs[2])
		other.refused(refs[1])
		return a
	}
	r := ending(queue().Token, refs...)
	r.Handoff = next
	released, err := w.Release(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want(released.Queues)

	u := update(otherRef)
	u.Fence = releasing(queue().Token, refs...)
	u.Fence.Release = &next
	updated, err := w.Update(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	want(updated.Queues)
}

func TestEveryWayThatALockEndsWakesThoseWhoWait(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, db *dbtest.Database, d *postgres.Driver, a refdb.Acquired) error{
		"an update that releases": func(t *testing.T, _ *dbtest.Database, d *postgres.Driver, a refdb.Acquired) error {
			r := update(mainRef)
			r.Fence = releasing(a.Token, mainRef)
			return try(t.Context(), d, r)
		},
		"an update that passes the stale lock": func(t *testing.T, db *dbtest.Database, d *postgres.Driver, _ refdb.Acquired) error {
			db.Age(t, project, mainRef, 2*time.Hour)
			return try(t.Context(), d, update(mainRef, otherRef))
		},
		"a removal": func(t *testing.T, _ *dbtest.Database, d *postgres.Driver, _ refdb.Acquired) error {
			_, err := d.Remove(t.Context(), refdb.RemoveRequest{Project: project, Limit: 10, Locks: refdb.AdvisoryLocks})
			return err
		},
		"a purge": func(t *testing.T, _ *dbtest.Database, d *postgres.Driver, a refdb.Acquired) error {
			_, err := d.Purge(t.Context(), []refdb.StandingLock{{LockID: ids(a.Token, mainRef)[0]}})
			return err
		},
		"an abandonment": func(t *testing.T, db *dbtest.Database, d *postgres.Driver, _ refdb.Acquired) error {
			nonce := query[string](t, session(t, db.URL()), `SELECT nonce FROM locks`)[0]
			return d.Abandon(t.Context(), refdb.AbandonRequest{Project: project, Refs: []string{mainRef, otherRef}, Owner: owner, Nonce: nonce})
		},
		"a retry that drops its own": func(t *testing.T, db *dbtest.Database, d *postgres.Driver, _ refdb.Acquired) error {
			acquire(t, d, otherRef)
			r := request(mainRef, otherRef)
			r.Nonce = query[string](t, session(t, db.URL()), `SELECT nonce FROM locks WHERE ref = $1`, mainRef)[0]
			if _, err := d.Acquire(t.Context(), r); !errors.Is(err, refdb.ErrLocked) {
				return fmt.Errorf("got %v", err)
			}
			return nil
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
		"a reclaim by a preparation, finished": func(t *testing.T, db *dbtest.Database, d *postgres.Driver, _ refdb.Acquired) error {
			db.Age(t, project, mainRef, 2*time.Hour)
			p, err := d.Prepare(t.Context(), intention("", v1, mainRef, otherRef))
			if err != nil {
				return err
			}
			return d.Finish(t.Context(), done(p.Token, "", v1, mainRef, otherRef))
		},
		"a release, at the end of the process": func(t *testing.T, _ *dbtest.Database, d *postgres.Driver, a refdb.Acquired) error {
			release(t, d, a, mainRef)
			return d.Close()
		},
		"a release, beside entries that are nobody's": func(t *testing.T, db *dbtest.Database, d *postgres.Driver, a refdb.Acquired) error {
			b := acquire(t, d, otherRef)
			db.Exec(t, `UPDATE locks SET waiting = ARRAY['', $1] WHERE ref = $2`, strings.Repeat("x", 100), otherRef)
			release(t, d, b, otherRef)
			release(t, d, a, mainRef)
			return nil
		},
		"a release, behind an entry of an older version": func(t *testing.T, db *dbtest.Database, d *postgres.Driver, a refdb.Acquired) error {
			db.Exec(t, `UPDATE locks SET waiting = ARRAY['refdb_0123456789abcdef'] || waiting WHERE ref = $1`, mainRef)
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
			wantQueue(t, w.wantWoken(mainRef), w)
		})
	}
}

// The locks that intents were recorded with have queues, too.
func TestEveryWayThatAnIntentEndsWakesThoseWhoWait(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, d *postgres.Driver, r refdb.PrepareRequest, token refdb.Token) error{
		"it is done": func(ctx context.Context, d *postgres.Driver, _ refdb.PrepareRequest, token refdb.Token) error {
			return d.Finish(ctx, done(token, "", v1, mainRef))
		},
		"it is dropped": func(ctx context.Context, d *postgres.Driver, _ refdb.PrepareRequest, token refdb.Token) error {
			return d.Finish(ctx, dropped(token, mainRef))
		},
		"it is resolved": func(ctx context.Context, d *postgres.Driver, _ refdb.PrepareRequest, token refdb.Token) error {
			_, err := d.Resolve(ctx, refdb.ResolveRequest{Intents: ids(token, mainRef), Decision: refdb.KeepOld, By: "by", Reason: "reason"})
			return err
		},
		"it is revoked": func(ctx context.Context, d *postgres.Driver, r refdb.PrepareRequest, _ refdb.Token) error {
			return d.Revoke(ctx, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			d := open(t, db.URL())
			r := intention("", v1, mainRef)
			p, err := d.Prepare(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			w := newWaiter(t, db.URL())
			w.refused(mainRef)
			if err := end(t.Context(), d, r, p.Token); err != nil {
				t.Fatal(err)
			}
			wantQueue(t, w.wantWoken(mainRef), w)
		})
	}
}

func TestARequestWithoutAWaiterIsNotQueued(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := newWaiter(t, db.URL())
	acquire(t, d, mainRef)
	for _, refs := range [][]string{{mainRef}, {mainRef, otherRef}} {
		if _, err := d.Acquire(t.Context(), request(refs...)); !errors.Is(err, refdb.ErrLocked) {
			t.Fatal(err)
		}
	}
	if _, err := d.Prepare(t.Context(), intention("", v1, mainRef)); !errors.Is(err, refdb.ErrLocked) {
		t.Fatal(err)
	}
	if got := queued(t, db, mainRef); got != nil {
		t.Errorf("%q are queued", got)
	}
}

// Whoever does not fit in polls.
func TestAQueueDoesNotGrowBeyondAHundred(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	a := acquire(t, d, mainRef)
	for n := range 101 {
		r := request(mainRef)
		r.Waiter = refdb.Waiter{Channel: "channel", Client: fmt.Sprint(n)}
		if _, err := d.Acquire(t.Context(), r); !errors.Is(err, refdb.ErrLocked) {
			t.Fatal(err)
		}
	}
	if got := queued(t, db, mainRef); len(got) != 100 || got[99] != "channel.99" {
		t.Errorf("the queue is %q", got)
	}
	w := newWaiter(t, db.URL())
	w.refusedWith([]refdb.Queue{{w.Waiter}}, mainRef)
	if got := queued(t, db, mainRef); len(got) != 100 || got[0] != entries(w)[0] || got[99] != "channel.98" {
		t.Errorf("the queue is %q", got)
	}
	release(t, d, a, mainRef)
	if got := w.wantWoken(mainRef); len(got) != 100 {
		t.Errorf("%d are in the wake-up", len(got))
	}
}

// Several clients may be behind one channel, each with a driver of its own.
func TestAllWhoListenToAChannelHearItsWakeUps(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	first := newWaiter(t, db.URL())
	second := open(t, db.URL())
	heard := make(chan refdb.Wakeup, 10)
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan struct{}), make(chan error)
	go func() {
		ended <- second.Listen(ctx, first.Channel, func() { close(started) }, func(w refdb.Wakeup) { heard <- w })
	}()
	<-started
	a := acquire(t, first, mainRef)
	first.refused(mainRef)
	release(t, first, a, mainRef)
	first.wantWoken(mainRef)
	if got := <-heard; got.Ref != mainRef || got.Queue[0] != first.Waiter {
		t.Errorf("heard %+v", got)
	}
	first.wantAsleep() // the second's probe is nothing to it
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
	goleak.VerifyNone(t, before)
}
