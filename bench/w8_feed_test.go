package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
)

func TestAChangesValueTellsItsNumber(t *testing.T) {
	for _, n := range []int{0, 1, 15, 1 << 20} {
		if got, ok := changeNumber(objectID(n)); got != n || !ok {
			t.Errorf("%s is change %d, %t; want %d", objectID(n), got, ok, n)
		}
	}
	for _, other := range []string{seedValue, "", "main"} {
		if n, ok := changeNumber(other); ok {
			t.Errorf("%q is change %d", other, n)
		}
	}
}

// Each change moves its ref from what the ref holds, also when all refs have had their turn.
func TestTheChangesOfAFeedFollowEachOther(t *testing.T) {
	const n = feedWriters*keysPerWorker + feedWriters
	var mu sync.Mutex
	held, made := map[string]string{}, map[string]bool{}
	calls, err := makeChanges(t.Context(), n, func(_ context.Context, ref, old, new string) error {
		mu.Lock()
		defer mu.Unlock()
		if have, ok := held[ref]; ok && have != old || !ok && old != seedValue {
			return fmt.Errorf("%s holds %s, not %s", ref, have, old)
		}
		held[ref], made[new] = new, true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range calls {
		if !made[objectID(i)] || c.begin == 0 || c.end < c.begin {
			t.Errorf("change %d: %+v", i, c)
		}
	}
}
