package smarthttp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

func TestACacheReturnsAnAnswerOnlyForTheStateItWasMadeFrom(t *testing.T) {
	t.Parallel()
	c := newCache(1 << 20)
	a, b := &answer{body: []byte("a")}, &answer{body: []byte("b")}
	one, two := cacheKey{"p", "list"}, cacheKey{"q", "list"}
	s1, s2 := state{local: localState{mark: "1"}}, state{local: localState{mark: "2"}}
	c.put(one, s1, a)
	for _, row := range []struct {
		key  cacheKey
		from state
		want *answer
	}{{one, s1, a}, {one, s2, nil}, {two, s1, nil}, {cacheKey{"p", "other"}, s1, nil}} {
		if got := c.get(row.key, row.from); got != row.want {
			t.Errorf("%v from %v: %v", row.key, row.from, got)
		}
	}
	c.put(one, s2, b)
	if c.get(one, s1) != nil || c.get(one, s2) != b {
		t.Error("a newer answer does not replace the older one")
	}
	if _, answers := c.size(); answers != 1 {
		t.Errorf("%d answers", answers)
	}
}

func TestACacheEvictsTheLeastRecentlyUsedAnswers(t *testing.T) {
	t.Parallel()
	const each = 10 << 10
	c := newCache(5 * (each + overhead + 20))
	from := state{local: localState{mark: "1"}}
	at := func(i int) cacheKey { return cacheKey{"p", fmt.Sprint(i)} }
	for i := range 5 {
		c.put(at(i), from, &answer{body: make([]byte, each)})
	}
	c.get(at(0), from)
	for i := 5; i < 8; i++ {
		c.put(at(i), from, &answer{body: make([]byte, each)})
	}
	var kept []string
	for i := range 8 {
		if c.get(at(i), from) != nil {
			kept = append(kept, fmt.Sprint(i))
		}
	}
	if got := strings.Join(kept, " "); got != "0 4 5 6 7" {
		t.Errorf("the cache has %s", got)
	}
	c.put(at(9), from, &answer{body: make([]byte, 6*each)})
	if bytes, answers := c.size(); bytes > c.limit || answers != 5 || c.get(at(9), from) != nil {
		t.Errorf("after an answer that is too large: %d bytes of %d in %d answers", bytes, c.limit, answers)
	}
	for i := range 8 {
		c.put(at(i), from, &answer{})
	}
	c.put(at(0), from, &answer{body: make([]byte, 6*each)})
	if bytes, answers := c.size(); answers != 7 || bytes != 7*(overhead+2) {
		t.Errorf("%d bytes in %d answers", bytes, answers)
	}
}

func TestConcurrentCallsWithOneKeyShareTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g callGroup[string, int]
		release := make(chan struct{})
		begun := 0
		work := func(context.Context) (int, error) {
			begun++
			<-release
			return begun, nil
		}
		var waiting sync.WaitGroup
		for range 10 {
			waiting.Go(func() {
				if n, err := g.do(t.Context(), "key", work); n != 1 || err != nil {
					t.Error(n, err)
				}
			})
		}
		waiting.Go(func() {
			if n, err := g.do(t.Context(), "other", func(context.Context) (int, error) { return 7, nil }); n != 7 || err != nil {
				t.Error(n, err)
			}
		})
		synctest.Wait()
		close(release)
		waiting.Wait()
		if n, err := g.do(t.Context(), "key", work); n != 2 || err != nil {
			t.Errorf("after it has ended: %d, %v", n, err)
		}
	})
}

// A caller that gives up ends the work only if no other caller waits for it.
func TestWorkEndsWhenNoCallerWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g callGroup[string, int]
		gone := errors.New("the client went away")
		ended := 0
		work := func(ctx context.Context) (int, error) {
			<-ctx.Done()
			ended++
			return 0, ctx.Err()
		}
		one, cancelOne := context.WithCancelCause(t.Context())
		two, cancelTwo := context.WithCancelCause(t.Context())
		var waiting sync.WaitGroup
		for _, ctx := range []context.Context{one, two} {
			waiting.Go(func() {
				if _, err := g.do(ctx, "key", work); !errors.Is(err, gone) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		cancelOne(gone)
		synctest.Wait()
		if ended != 0 {
			t.Error("the work ended although a caller waits for it")
		}
		cancelTwo(gone)
		waiting.Wait()
		g.wait()
		if ended != 1 {
			t.Error("the work goes on")
		}
		if n, err := g.do(t.Context(), "key", func(context.Context) (int, error) { return 1, nil }); n != 1 || err != nil {
			t.Errorf("a later caller gets %d, %v", n, err)
		}
	})
}

func TestASemaphoreHasAsManyHoldersAsItsCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := make(semaphore, 1)
		release, err := s.acquire(t.Context(), queueLimit)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.acquire(t.Context(), queueLimit); !errors.Is(err, errBusy) {
			t.Errorf("the second holder gets in, or waits for too long: %v", err)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if _, err := s.acquire(t.Context(), queueLimit); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		release()
		waiting.Wait()
	})
}
