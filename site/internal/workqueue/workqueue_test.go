package workqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	first = 50 * time.Millisecond
	soon  = time.Second
	last  = 30 * time.Second
)

func newQueue() *Queue[[]int] {
	return New(func(a, b []int) []int { return slices.Concat(a, b) }, first, soon)
}

// taken returns what the queue hands out next, and after how long.
func taken(t *testing.T, q *Queue[[]int]) (key string, w []int, waited time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	began := time.Now()
	key, w, ok := q.Next(ctx)
	if !ok {
		t.Fatal("nothing is handed out")
	}
	return key, w, time.Since(began)
}

func wantNext(t *testing.T, q *Queue[[]int], want string, work ...int) {
	t.Helper()
	if key, w, waited := taken(t, q); key != want || !slices.Equal(w, work) || waited > 0 {
		t.Fatalf("%s is handed out with %v after %s, want %s with %v", key, w, waited, want, work)
	}
}

func wantNone(t *testing.T, q *Queue[[]int], d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if key, _, ok := q.Next(ctx); ok {
		t.Fatalf("%s is handed out", key)
	}
}

func TestKeysAreHandedOutInTheOrderOfTheirArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Put("b", []int{1})
		q.Put("a", []int{2})
		q.Put("c", nil)
		q.Put("b", []int{3})
		wantNext(t, q, "b", 1, 3)
		wantNext(t, q, "a", 2)
		wantNext(t, q, "c")
		wantNone(t, q, time.Hour)
		if got := q.Keys(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("keys %q", got)
		}
		for _, key := range []string{"a", "b", "c"} {
			q.Done(key)
		}
		if n := q.Len(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

func TestAKeyIsWithOneWorkerAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Put("a", []int{1})
		wantNext(t, q, "a", 1)
		q.Put("a", []int{2})
		wantNone(t, q, time.Hour)
		q.Put("a", []int{3})
		q.Done("a")
		wantNext(t, q, "a", 2, 3)
	})
}

func TestAWorkerWaitsForWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		go func() {
			time.Sleep(time.Minute)
			q.Put("a", nil)
		}()
		if _, _, waited := taken(t, q); waited != time.Minute {
			t.Errorf("it has waited %s", waited)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		q.Put("b", nil)
		if key, _, ok := q.Next(ctx); ok {
			t.Errorf("%s is handed out though the context has ended", key)
		}
	})
}

func TestWhatFailsWaitsLongerAndLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Put("bad", []int{1})
		wantNext(t, q, "bad", 1)
		for pause := first; pause < 4*last; pause *= 2 {
			q.Again("bad", []int{1}, last)
			q.Put("good", nil)
			wantNext(t, q, "good") // it is not delayed
			q.Done("good")
			if _, _, waited := taken(t, q); waited != min(pause, last) {
				t.Errorf("it has waited %s, want %s", waited, min(pause, last))
			}
		}
		// The limit may differ from failure to failure.
		q.Again("bad", []int{1}, time.Second)
		if _, _, waited := taken(t, q); waited != time.Second {
			t.Errorf("it has waited %s, at most a second was said", waited)
		}
		q.Put("bad", nil)
		q.Done("bad")
		wantNext(t, q, "bad") // the success has ended that
		q.Again("bad", nil, last)
		if _, _, waited := taken(t, q); waited != first {
			t.Errorf("after a success and a failure it has waited %s", waited)
		}
	})
}

func TestNewWorkShortensAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Put("a", []int{1})
		wantNext(t, q, "a", 1)
		q.Later("a", []int{1}, time.Hour)
		wantNone(t, q, time.Minute)
		q.Put("a", []int{2})
		if _, w, waited := taken(t, q); waited != soon || !slices.Equal(w, []int{1, 2}) {
			t.Errorf("%v after %s", w, waited)
		}
		// Later is no failure.
		q.Again("a", nil, last)
		if _, _, waited := taken(t, q); waited != first {
			t.Errorf("after its first failure it has waited %s", waited)
		}
	})
}

func TestWorkThatIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Drop("unknown")
		q.Put("a", []int{1})
		q.Drop("a")
		wantNone(t, q, time.Hour)
		q.Put("a", []int{2})
		wantNext(t, q, "a", 2)
		q.Put("a", []int{3})
		q.Drop("a") // the worker goes on
		if got := q.Keys(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("keys %q", got)
		}
		q.Put("a", []int{4})
		q.Done("a")
		wantNext(t, q, "a", 4)
	})
}

func TestAKeyIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.Put("a", []int{1})
		wantNext(t, q, "a", 1)
		ended := errors.New("ended")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, ended)
		defer cancel()
		if err := q.Hold(ctx, "a"); !errors.Is(err, ended) {
			t.Errorf("a worker has it: %v", err)
		}
		go func() {
			time.Sleep(time.Hour)
			q.Done("a")
		}()
		began := time.Now()
		if err := q.Hold(t.Context(), "a"); err != nil || time.Since(began) != time.Hour {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		q.Put("a", []int{2})
		wantNone(t, q, time.Hour)
		q.Release("a")
		wantNext(t, q, "a", 2)
		q.Again("a", []int{2}, last)
		if err := q.Hold(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		q.Release("a")
		if _, _, waited := taken(t, q); waited != first {
			t.Errorf("it was held, and then waited %s, want its pause", waited)
		}
		q.Done("a")
		if n := q.Len(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

func TestWhatIsTriedWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		if _, _, wait, ok := q.Try(); ok || wait < 1000*time.Hour {
			t.Errorf("of an empty queue: %v, %s", ok, wait)
		}
		q.Put("a", []int{1})
		if key, w, _, ok := q.Try(); !ok || key != "a" || !slices.Equal(w, []int{1}) {
			t.Errorf("%s, %v", key, w)
		}
		q.Later("a", nil, time.Minute)
		if _, _, wait, ok := q.Try(); ok || wait != time.Minute {
			t.Errorf("of a key that is due in a minute: %v, %s", ok, wait)
		}
	})
}

// Several workers get all of each key, in order.
func TestManyWorkers(t *testing.T) {
	t.Parallel()
	q := newQueue()
	const keys, each = 5, 200
	var mu sync.Mutex
	got, busy := map[string][]int{}, map[string]bool{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	for n := range 4 {
		workers.Go(func() {
			for {
				key, w, ok := q.Next(ctx)
				if !ok {
					return
				}
				mu.Lock()
				if busy[key] {
					t.Errorf("%s is with two workers", key)
				}
				busy[key] = true
				mu.Unlock()
				var again []int
				if n == 0 && len(w) > 1 { // a part fails, which is no longer in order
					w, again = w[:1], w[1:]
				}
				mu.Lock()
				got[key], busy[key] = append(got[key], w...), false
				all := 0
				for _, k := range got {
					all += len(k)
				}
				mu.Unlock()
				if again == nil {
					q.Done(key)
				} else {
					q.Again(key, again, time.Millisecond)
				}
				if all == keys*each {
					stop()
				}
			}
		})
	}
	for i := range each {
		for k := range keys {
			q.Put(fmt.Sprint(k), []int{i})
		}
	}
	workers.Wait()
	for key, all := range got {
		if slices.Sort(all); len(all) != each || all[0] != 0 || all[each-1] != each-1 {
			t.Errorf("of %s the workers got %d", key, len(all))
		}
	}
}
