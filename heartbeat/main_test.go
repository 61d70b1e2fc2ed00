package heartbeat_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/globalrefdb/globalrefdb/heartbeat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The settings of most tests. A lease stands for window after a beat was sent.
const (
	interval   = 2 * time.Second
	staleAfter = 30 * time.Second
	window     = 24 * time.Second
)

var errDown = errors.New("connection refused")

// A fixture is a keeper of ints in a bubble of fake time, and the database that
// answers its beats.
type fixture struct {
	*heartbeat.Keeper[int]
	tb    testing.TB
	start time.Time
	// skew is how far the keeper's clock is ahead of the bubble's timers: it
	// grows while the machine is suspended or the process frozen.
	skew     atomic.Int64
	readings atomic.Int64 // of the clock

	mu    sync.Mutex
	lost  []loss
	calls []call
}

// A call is one beat.
type call struct {
	at    time.Duration // since the test began
	items []int         // sorted
}

// A loss is what a keeper told of a lease.
type loss struct {
	item int
	err  error
}

// An answer is what the database does with its nth beat, from 1.
type answer func(ctx context.Context, n int, items []int) ([]heartbeat.Result, error)

// inBubble runs test in fake time, with a keeper whose beats get that answer.
func inBubble(t *testing.T, a answer, test func(t *testing.T, w *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &fixture{tb: t, start: time.Now()}
		now := func() heartbeat.Instant {
			w.readings.Add(1)
			return heartbeat.Instant(time.Hour + time.Since(w.start) + time.Duration(w.skew.Load()))
		}
		k, err := heartbeat.New(heartbeat.Config{Interval: interval, StaleAfter: staleAfter, Now: now},
			func(ctx context.Context, items []int) ([]heartbeat.Result, error) {
				w.mu.Lock()
				w.calls = append(w.calls, call{time.Since(w.start), slices.Sorted(slices.Values(items))})
				n := len(w.calls)
				w.mu.Unlock()
				return a(ctx, n, items)
			}, func(item int, err error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.lost = append(w.lost, loss{item, err})
			})
		if err != nil {
			t.Fatal(err)
		}
		w.Keeper = k
		t.Cleanup(k.Close)
		test(t, w)
	})
}

// at sleeps until d after the test began, and lets everything due by then happen.
func (w *fixture) at(d time.Duration) {
	w.tb.Helper()
	wait := d - time.Since(w.start)
	if wait < 0 {
		w.tb.Fatalf("%s is over", d)
	}
	time.Sleep(wait)
	synctest.Wait()
}

// keep keeps an item that was acquired now.
func (w *fixture) keep(item int) *heartbeat.Lease[int] { return w.Keep(item, w.Now()) }

// beats returns all beats so far.
func (w *fixture) beats() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// instants returns when the beats so far were sent.
func (w *fixture) instants() []time.Duration {
	var all []time.Duration
	for _, c := range w.beats() {
		all = append(all, c.at)
	}
	return all
}

// carried returns which beats, from 1, carried item.
func (w *fixture) carried(item int) []int {
	var all []int
	for i, c := range w.beats() {
		if slices.Contains(c.items, item) {
			all = append(all, i+1)
		}
	}
	return all
}

// wantStanding fails unless the lease stands.
func (w *fixture) wantStanding(l *heartbeat.Lease[int]) {
	w.tb.Helper()
	if err := l.Err(); err != nil || ended(l) {
		w.tb.Fatalf("at %s: Err() = %v, Done closed: %t; the lease should stand", time.Since(w.start), err, ended(l))
	}
}

// wantEnded fails unless the lease has ended for that reason. It checks Done
// before Err, because Err would close it.
func (w *fixture) wantEnded(l *heartbeat.Lease[int], reason error) {
	w.tb.Helper()
	if !ended(l) {
		w.tb.Fatalf("at %s: Done is open, want the lease ended with %q", time.Since(w.start), reason)
	}
	if err := l.Err(); !errors.Is(err, reason) {
		w.tb.Fatalf("at %s: Err() = %v, want %q", time.Since(w.start), err, reason)
	}
}

func ended(l *heartbeat.Lease[int]) bool {
	select {
	case <-l.Done():
		return true
	default:
		return false
	}
}

// all answers every item of every beat with r.
func all(r heartbeat.Result) answer {
	return func(_ context.Context, _ int, items []int) ([]heartbeat.Result, error) {
		return slices.Repeat([]heartbeat.Result{r}, len(items)), nil
	}
}

// item answers that item with r and all others with Renewed.
func item(it int, r heartbeat.Result) answer {
	return func(_ context.Context, _ int, items []int) ([]heartbeat.Result, error) {
		results := slices.Repeat([]heartbeat.Result{heartbeat.Renewed}, len(items))
		if i := slices.Index(items, it); i >= 0 {
			results[i] = r
		}
		return results, nil
	}
}

func fails(context.Context, int, []int) ([]heartbeat.Result, error) { return nil, errDown }

func hangs(ctx context.Context, _ int, _ []int) ([]heartbeat.Result, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// after delays the answer by d, even if its context ends.
func (a answer) after(d time.Duration) answer {
	return func(ctx context.Context, n int, items []int) ([]heartbeat.Result, error) {
		time.Sleep(d)
		return a(ctx, n, items)
	}
}

// inTurn gives each beat its own answer, and the last one to all further ones.
func inTurn(answers ...answer) answer {
	return func(ctx context.Context, n int, items []int) ([]heartbeat.Result, error) {
		return answers[min(n, len(answers))-1](ctx, n, items)
	}
}
