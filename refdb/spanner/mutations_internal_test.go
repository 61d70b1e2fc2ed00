package spanner

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// states are what a transaction finds on so many refs, each locked or not.
func statesOf(n int, locked bool, age time.Duration) []state {
	states := make([]state, n)
	for i := range states {
		ref := fmt.Sprintf("refs/heads/%05d", i)
		states[i] = state{ref: ref}
		if locked {
			states[i].lock = &lock{LockInfo: refdb.LockInfo{Project: "p", Ref: ref, Age: age, StaleAfter: 30 * time.Second}, token: time.Unix(0, 0)}
		}
	}
	return states
}

func TestLargestRequestsStayWithinWhatSpannerTakesInOneCommit(t *testing.T) {
	t.Parallel()
	stale := time.Minute
	for _, row := range []struct {
		name              string
		updates           int // on refs that carry stale locks, unless fenced
		fence, overlap    int // refs of the fence, how many of which are updated
		release, advisory bool
		intents           bool
		want              int
		tooMany           bool
	}{
		{name: "the largest update", updates: refdb.MaxUpdateRefs, advisory: true, want: 70_000},
		{name: "the largest update, past as many stale locks", updates: refdb.MaxUpdateRefs, want: 80_000},
		{name: "the largest update under the largest lock", updates: refdb.MaxUpdateRefs, fence: refdb.MaxLockRefs, overlap: refdb.MaxLockRefs, want: 75_000},
		{name: "the same with release", updates: refdb.MaxUpdateRefs, fence: refdb.MaxLockRefs, overlap: refdb.MaxLockRefs, release: true, want: 80_000},
		{name: "the same that ends intents", updates: refdb.MaxUpdateRefs, fence: refdb.MaxLockRefs, overlap: refdb.MaxLockRefs, release: true, advisory: true, intents: true, want: 80_000},
		{name: "the largest end of intents", updates: refdb.MaxLockRefs, fence: refdb.MaxLockRefs, overlap: refdb.MaxLockRefs, release: true, intents: true, want: 45_000},
		{name: "the same with a lock on other refs", updates: refdb.MaxUpdateRefs, fence: refdb.MaxLockRefs, release: true, want: 85_000, tooMany: true},
		{name: "the same with a lock on other refs, without stale ones", updates: refdb.MaxUpdateRefs, fence: refdb.MaxLockRefs, release: true, advisory: true, want: 75_000},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			tx := refdb.Transaction{Project: "p", ID: "id", Release: row.release, Advisory: row.advisory}
			states := statesOf(row.updates, !row.advisory, stale)
			for i := range states {
				tx.Updates = append(tx.Updates, refdb.Update{Ref: states[i].ref, New: refdb.Deleted})
			}
			if row.fence > 0 {
				tx.Fence = &refdb.Fence{Token: 7, Intents: row.intents}
			}
			for i := range row.fence {
				ref := fmt.Sprintf("refs/tags/%05d", i)
				if i < row.overlap {
					states[i].lock, states[i].fence = nil, &fenced{token: 7}
					ref = states[i].ref
				} else {
					states = append(states, state{ref: ref, fence: &fenced{token: 7}})
				}
				tx.Fence.Refs = append(tx.Fence.Refs, ref)
			}
			b, err := plan(&tx, states)
			if err != nil {
				t.Fatal(err)
			}
			check(t, b, row.want, row.tooMany)
		})
	}
	for name, row := range map[string]struct {
		states  []state
		intents bool
		want    int
		tooMany bool
	}{
		"the largest acquisition":                               {statesOf(refdb.MaxLockRefs, false, 0), false, 35_000, false},
		"the largest acquisition, of stale locks":               {statesOf(refdb.MaxLockRefs, true, stale), false, 60_000, false},
		"the largest acquisition with intents":                  {statesOf(refdb.MaxLockRefs, false, 0), true, 75_000, false},
		"the largest acquisition with intents, of stale locks":  {statesOf(4000, true, stale), true, 80_000, false},
		"a larger acquisition with intents, of only stale ones": {statesOf(4001, true, stale), true, 80_020, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := refdb.AcquireRequest{Project: "p", Nonce: "n"}
			for _, s := range row.states {
				if row.intents {
					r.Intents = append(r.Intents, refdb.Update{Ref: s.ref, New: "1"})
				}
			}
			a := decide(&r, row.states)
			check(t, &a.batch, row.want, row.tooMany)
		})
	}
	t.Run("a beat and a release of the largest lock", func(t *testing.T) {
		t.Parallel()
		var beat, release batch
		for range refdb.MaxLockRefs {
			beat.beat("p", "HEAD")
			release.deleteLock("p", "HEAD")
		}
		check(t, &beat, 15_000, false)
		check(t, &release, 5_000, false)
	})
}

func check(t *testing.T, b *batch, want int, tooMany bool) {
	t.Helper()
	if b.cost != want {
		t.Errorf("it costs %d, want %d", b.cost, want)
	}
	err := b.check()
	if errors.Is(err, refdb.ErrTooMany) != tooMany || (err == nil) == tooMany {
		t.Errorf("check: %v", err)
	}
	if tooMany != (want > maxMutations) {
		t.Error("the row contradicts itself")
	}
}

func TestKeysAreCutIntoRequestsOfALimitedSize(t *testing.T) {
	t.Parallel()
	items := make([]int, 5)
	for size, want := range map[int]int{1: 1, keyBytes / 5: 1, keyBytes / 2: 3, keyBytes: 5, 2 * keyBytes: 5} {
		var pieces, total int
		for piece := range chunks(items, func(int) int { return size }) {
			pieces++
			total += len(piece)
		}
		if pieces != want || total != len(items) {
			t.Errorf("items of %d bytes are cut into %d pieces with %d items, want %d with all", size, pieces, total, want)
		}
	}
}
