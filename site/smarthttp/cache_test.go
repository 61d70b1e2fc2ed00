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

func TestACacheHasAnAnswerForTheStateThatItWasMadeFromOnly(t *testing.T) {
	t.Parallel()
	c := newCache(1 << 20)
	a, b := &answer{body: []byte("a")}, &answer{body: []byte("b")}
	one, two := slot{"p", "list"}, slot{"q", "list"}
	s1, s2 := state{own: own{moves: "1"}}, state{own: own{moves: "2"}}
	c.put(one, s1, a)
	for _, row := range []struct {
		slot slot
		from state
		want *answer
	}{{one, s1, a}, {one, s2, nil}, {two, s1, nil}, {slot{"p", "other"}, s1, nil}} {
		if got := c.get(row.slot, row.from); got != row.want {
			t.Errorf("%v from %v: %v", row.slot, row.from, got)
		}
	}
	c.put(one, s2, b)
	if c.get(one, s1) != nil || c.get(one, s2) != b {
		t.Error("a newer answer does not take the place of the older one")
	}
	if _, answers := c.size(); answers != 1 {
		t.Errorf("%d answers", answers)
	}
}

func TestACacheDropsWhatWasNotAskedForTheLongest(t *testing.T) {
	t.Parallel()
	const each = 10 << 10
	c := newCache(5 * (each + overhead + 20))
	from := state{own: own{moves: "1"}}
	at := func(i int) slot { return slot{"p", fmt.Sprint(i)} }
	for i := range 5 {
		c.put(at(i), from, &answer{body: make([]byte, each)})
	}
	c.get(at(0), from)
	for i := 5; i < 8; i++ {
		c.put(at(i), from, &answer{body: make([]byte, each)})
	}
	var left []string
	for i := range 8 {
		if c.get(at(i), from) != nil {
			left = append(left, fmt.Sprint(i))
		}
	}
	if got := strings.Join(left, " "); got != "0 4 5 6 7" {
		t.Errorf("what is left is %s", got)
	}
	c.put(at(9), from, &answer{body: make([]byte, 6*each)})
	if bytes, answers := c.size(); bytes > c.limit || answers != 5 || c.get(at(9), from) != nil {
		t.Errorf("with one that is too large: %d bytes of %d in %d answers", bytes, c.limit, answers)
	}
	for i := range 8 {
		c.put(at(i), from, &answer{})
	}
	c.put(at(0), from, &answer{body: make([]byte, 6*each)})
	if bytes, answers := c.size(); answers != 7 || bytes != 7*(overhead+2) {
		t.Errorf("%d bytes in %d answers", bytes, answers)
	}
}

func TestWorkIsDoneOnceForAllWhoWantItAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flights[string, int]
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
				if n, err := f.do(t.Context(), "key", work); n != 1 || err != nil {
					t.Error(n, err)
				}
			})
		}
		waiting.Go(func() {
			if n, err := f.do(t.Context(), "other", func(context.Context) (int, error) { return 7, nil }); n != 7 || err != nil {
				t.Error(n, err)
			}
		})
		synctest.Wait()
		close(release)
		waiting.Wait()
		if n, err := f.do(t.Context(), "key", work); n != 2 || err != nil {
			t.Errorf("after it has ended: %d, %v", n, err)
		}
	})
}

// Who gives up ends the work only if nobody else waits for it.
func TestWorkEndsWhenNobodyWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flights[string, int]
		gone := errors.New("the client went away")
		ended := 0
		work := func(ctx context.Context) (int, error) {
			<-ctx.Done()
			ended++
			return 0, ctx.Err()
		}
		one, leaveOne := context.WithCancelCause(t.Context())
		two, leaveTwo := context.WithCancelCause(t.Context())
		var waiting sync.WaitGroup
		for _, ctx := range []context.Context{one, two} {
			waiting.Go(func() {
				if _, err := f.do(ctx, "key", work); !errors.Is(err, gone) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		leaveOne(gone)
		synctest.Wait()
		if ended != 0 {
			t.Error("the work ended though somebody waits for it")
		}
		leaveTwo(gone)
		waiting.Wait()
		f.wait()
		if ended != 1 {
			t.Error("the work goes on")
		}
		if n, err := f.do(t.Context(), "key", func(context.Context) (int, error) { return 1, nil }); n != 1 || err != nil {
			t.Errorf("who comes later gets %d, %v", n, err)
		}
	})
}

func TestAGateLetsInAsManyAsItHasRoomFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := make(semaphore, 1)
		leave, err := g.enter(t.Context(), roomLimit)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.enter(t.Context(), roomLimit); !errors.Is(err, errBusy) {
			t.Errorf("the second is let in, or waits: %v", err)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if _, err := g.enter(t.Context(), roomLimit); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		leave()
		waiting.Wait()
	})
}
