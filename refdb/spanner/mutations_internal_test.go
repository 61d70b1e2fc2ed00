package spanner

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// statesOn are what a transaction finds on so many refs, each locked or not.
func statesOn(n int, locked bool, age time.Duration) []state {
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

// queued are states that somebody waits for, each.
func queued(states []state) []state {
	for i := range states {
		states[i].queue = queue.Queue{{Ticket: 1, ID: "w", Channel: "c", Owner: "o"}}
	}
	return states
}

// deletionsOf delete the refs of states.
func deletionsOf(states []state) []refdb.Update {
	updates := make([]refdb.Update, len(states))
	for i, s := range states {
		updates[i] = refdb.Update{Ref: s.ref, New: refdb.Deleted}
	}
	return updates
}

func TestLargestRequestsStayWithinWhatSpannerTakesInOneCommit(t *testing.T) {
	t.Parallel()
	stale := time.Minute
	for _, row := range []struct {
		name              string
		updates           int // on refs that carry stale locks, unless fenced
		fence, overlap    int // refs of the fence, how many of which are updated
		release, advisory bool
		queued            bool // somebody waits for each ref of the fence
		want              int
		tooMany           bool
	}{
		{name: "the largest update", updates: refdb.MaxUpdateRefs, advisory: true, want: 70_000},
		{name: "the largest update, past as many stale locks", updates: refdb.MaxUpdateRefs, want: 80_000},
		{name: "the largest update under the largest lock", updates: refdb.MaxUpdateRefs, fence: refdb.MaxLockRefs, overlap: refdb.MaxLockRefs, want: 75_000},
		{name: "the same with release", updates: refdb.MaxUpdateRefs, fence: refdb.MaxLockRefs, overlap: refdb.MaxLockRefs, release: true, want: 80_000},
		{name: "the same, of refs that are waited for, has no room for reservations", updates: refdb.MaxUpdateRefs, fence: refdb.MaxLockRefs, overlap: refdb.MaxLockRefs, release: true, queued: true, want: 80_000},
		{name: "an update that leaves room for some", updates: 9000, fence: refdb.MaxLockRefs, overlap: refdb.MaxLockRefs, release: true, queued: true, want: 79_998},
		{name: "an update that leaves room for all", updates: 5000, fence: refdb.MaxLockRefs, overlap: refdb.MaxLockRefs, release: true, queued: true, want: 70_000},
		{name: "the same with a lock on other refs", updates: refdb.MaxUpdateRefs, fence: refdb.MaxLockRefs, release: true, want: 85_000, tooMany: true},
		{name: "the same with a lock on other refs, without stale ones", updates: refdb.MaxUpdateRefs, fence: refdb.MaxLockRefs, release: true, advisory: true, want: 75_000},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := refdb.UpdateRequest{Project: "p", ID: "id"}
			if row.advisory {
				r.Locks = refdb.AdvisoryLocks
			}
			states := statesOn(row.updates, !row.advisory, stale)
			r.Updates = deletionsOf(states)
			if row.fence > 0 {
				r.Fence = &refdb.Fence{Owner: "o", Token: 7}
			}
			if row.release {
				r.Fence.Release = true
			}
			for i := range row.fence {
				ref := fmt.Sprintf("refs/tags/%05d", i)
				if i < row.overlap {
					states[i].lock, states[i].fence = nil, &fence{owner: "o", token: 7}
					ref = states[i].ref
				} else {
					states = append(states, state{ref: ref, fence: &fence{owner: "o", token: 7}})
				}
				r.Fence.Refs = append(r.Fence.Refs, ref)
			}
			if row.queued {
				states = queued(states)
			}
			var b batch
			if err := planUpdate(&b, &r, states); err != nil {
				t.Fatal(err)
			}
			check(t, &b, row.want, row.tooMany)
		})
	}
	for name, row := range map[string]struct {
		states  []state
		want    int
		tooMany bool
	}{
		"the largest preparation":                   {statesOn(refdb.MaxLockRefs, false, 0), 75_000, false},
		"the largest preparation, of stale locks":   {statesOn(4000, true, stale), 80_000, false},
		"a larger preparation, of only stale locks": {statesOn(4001, true, stale), 80_020, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b batch
			r := refdb.PrepareRequest{Project: "p", Nonce: "n", Updates: deletionsOf(row.states)}
			if _, err := planPrepare(&b, &r, row.states); err != nil {
				t.Fatal(err)
			}
			check(t, &b, row.want, row.tooMany)
		})
	}
	for name, row := range map[string]struct {
		states []state
		want   int
	}{
		"the largest acquisition":                 {statesOn(refdb.MaxLockRefs, false, 0), 35_000},
		"the largest acquisition, of stale locks": {statesOn(refdb.MaxLockRefs, true, stale), 60_000},
		"the same, of locks that are waited for":  {queued(statesOn(refdb.MaxLockRefs, true, stale)), 75_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b batch
			if _, err := planAcquire(&b, claim{project: "p", nonce: "n"}, row.states); err != nil {
				t.Fatal(err)
			}
			check(t, &b, row.want, false)
		})
	}
	for done, want := range map[int]int{refdb.MaxLockRefs: 45_000, 1000: 17_000, 0: 10_000} {
		t.Run(fmt.Sprintf("the largest end of intents, of which %d were done", done), func(t *testing.T) {
			t.Parallel()
			states := statesOn(refdb.MaxLockRefs, false, 0)
			for i := range states {
				states[i].fence = &fence{owner: "o", token: 7, intended: true}
			}
			r := refdb.FinishRequest{Project: "p", ID: "id", Owner: "o", Token: 7, Done: deletionsOf(states[:done])}
			var b batch
			if err := planFinish(&b, &r, refsOf(deletionsOf(states)), states); err != nil {
				t.Fatal(err)
			}
			check(t, &b, want, false)
		})
	}
	t.Run("the largest end of intents that are waited for", func(t *testing.T) {
		t.Parallel()
		states := queued(statesOn(refdb.MaxLockRefs, false, 0))
		for i := range states {
			states[i].fence = &fence{owner: "o", token: 7, intended: true}
		}
		deletions := deletionsOf(states)
		r := refdb.FinishRequest{Project: "p", ID: "id", Owner: "o", Token: 7, Done: deletions}
		var b batch
		if err := planFinish(&b, &r, refsOf(deletions), states); err != nil {
			t.Fatal(err)
		}
		check(t, &b, 75_000, false)
	})
	t.Run("the largest refusal", func(t *testing.T) {
		t.Parallel()
		var b batch
		c := claim{project: "p", nonce: "n", waiter: refdb.Waiter{ID: "x"}}
		if _, err := planAcquire(&b, c, queued(statesOn(refdb.MaxLockRefs, true, 0))); !errors.Is(err, refdb.ErrLocked) {
			t.Fatal(err)
		}
		check(t, &b, 15_000, false)
	})
	t.Run("a beat and a release of the largest lock", func(t *testing.T) {
		t.Parallel()
		var beat, release, handOver batch
		endings := make([]ending, refdb.MaxLockRefs)
		for i, s := range queued(statesOn(refdb.MaxLockRefs, true, 0)) {
			beat.beat("p", s.ref)
			endings[i] = ending{lock: s.lock.LockInfo}
			handOver.end([]ending{{lock: s.lock.LockInfo, queue: s.queue}}, refdb.Waiter{})
		}
		release.end(endings, refdb.Waiter{})
		check(t, &beat, 15_000, false)
		check(t, &release, 5_000, false)
		check(t, &handOver, 35_000, false)
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
