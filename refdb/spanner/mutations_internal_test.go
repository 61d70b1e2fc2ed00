package spanner

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// statesOn returns the states of n refs, each locked or not.
func statesOn(n int, locked bool, age time.Duration) []state {
	states := make([]state, n)
	for i := range states {
		ref := fmt.Sprintf("refs/heads/%05d", i)
		states[i] = state{Row: rules.Row{Name: ref}}
		if locked {
			states[i].Lock = &driver.LockInfo{Project: "p", Ref: ref, Age: age, StaleAfter: 30 * time.Second}
			states[i].token = time.Unix(0, 0)
		}
	}
	return states
}

// fenceOn returns the row of a fence on a ref, or of an intent.
func fenceOn(ref string, staleAfter time.Duration) *driver.LockInfo {
	return &driver.LockInfo{Project: "p", Ref: ref, Owner: "o", Token: 7, StaleAfter: staleAfter}
}

// queued adds a waiter to each state.
func queued(states []state) []state {
	for i := range states {
		states[i].Queue = queue.Queue{{Ticket: 1, ID: "w", Channel: "c", Owner: "o"}}
	}
	return states
}

// deletionsOf returns updates that delete the refs of states.
func deletionsOf(states []state) []driver.Update {
	updates := make([]driver.Update, len(states))
	for i, s := range states {
		updates[i] = driver.Update{Ref: s.Name, New: driver.Deleted}
	}
	return updates
}

// earlierLockRefs is the maximum number of refs of a preparation in programs without the history.
const earlierLockRefs = 5_000

func TestLargestRequestsStayWithinSpannersCommitLimit(t *testing.T) {
	t.Parallel()
	stale := time.Minute
	for _, row := range []struct {
		name              string
		updates           int // on refs with stale locks, unless fenced
		fence, overlap    int // number of refs of the fence, and of those that are updated
		release, advisory bool
		queued            bool // each lock has a waiter
		want              int
		tooMany           bool
	}{
		{name: "the largest update", updates: MaxRefs, advisory: true, want: 70_000},
		{name: "the largest update, past as many stale locks", updates: MaxRefs, want: 73_500},
		{name: "the same, of locks with waiters, has room for some reservations", updates: MaxRefs, queued: true, want: 79_998},
		{name: "the largest update under the largest lock", updates: MaxRefs, fence: driver.MaxLockRefs, overlap: MaxRefs, want: 70_000},
		{name: "the same with release", updates: MaxRefs, fence: driver.MaxLockRefs, overlap: MaxRefs, release: true, want: 73_500},
		{name: "the same, of refs with waiters, has room for some reservations", updates: MaxRefs, fence: driver.MaxLockRefs, overlap: MaxRefs, release: true, queued: true, want: 79_998},
		{name: "an update that leaves room for all reservations", updates: 2000, fence: driver.MaxLockRefs, overlap: 2000, release: true, queued: true, want: 64_500},
		{name: "the largest update, with a lock on other refs", updates: MaxRefs, fence: driver.MaxLockRefs, release: true, want: 77_000},
		{name: "a larger update", updates: 4001, advisory: true, want: 80_020, tooMany: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := driver.UpdateRequest{Project: "p", Origin: driver.Origin{ID: "id"}}
			if row.advisory {
				r.Locks = driver.AdvisoryLocks
			}
			states := statesOn(row.updates, !row.advisory, stale)
			r.Updates = deletionsOf(states)
			if row.fence > 0 {
				r.Fence = &driver.Fence{Owner: "o", Token: 7}
			}
			if row.release {
				r.Fence.Release = true
			}
			for i := range row.fence {
				ref := fmt.Sprintf("refs/tags/%05d", i)
				if i < row.overlap {
					ref = states[i].Name
					states[i].Lock, states[i].fence = nil, fenceOn(ref, 0)
				} else {
					states = append(states, state{Row: rules.Row{Name: ref}, fence: fenceOn(ref, 0)})
				}
				r.Fence.Refs = append(r.Fence.Refs, ref)
			}
			if row.queued {
				states = queued(states)
			}
			var b batch
			if err := planUpdate(&b, &r, states, nil); err != nil {
				t.Fatal(err)
			}
			check(t, &b, row.want, row.tooMany)
		})
	}
	for name, row := range map[string]struct {
		states  []state
		packs   int
		want    int
		tooMany bool
	}{
		"the largest preparation":                        {statesOn(MaxRefs, false, 0), 0, 56_000, false},
		"the largest preparation, of stale locks":        {statesOn(MaxRefs, true, stale), 0, 73_500, false},
		"the same, with a pack for each few refs":        {statesOn(MaxRefs, true, stale), 720, 79_980, false},
		"a preparation of one ref, with very many packs": {statesOn(1, false, 0), 10_000, 90_016, true},
		"a larger preparation, of only stale locks":      {statesOn(4001, true, stale), 0, 84_021, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b batch
			r := driver.PrepareRequest{Project: "p", Nonce: "n", Updates: deletionsOf(row.states)}
			var packs []*foundPack
			for i := range row.packs {
				packs = append(packs, &foundPack{ID: fmt.Sprint(i), Project: "p", Complete: true})
				r.Packs = append(r.Packs, packs[i].ID)
			}
			if _, err := planPrepare(&b, &r, row.states, nil, packs); err != nil {
				t.Fatal(err)
			}
			check(t, &b, row.want, row.tooMany)
		})
	}
	for name, row := range map[string]struct {
		states []state
		want   int
	}{
		"the largest acquisition":                 {statesOn(driver.MaxLockRefs, false, 0), 24_500},
		"the largest acquisition, of stale locks": {statesOn(driver.MaxLockRefs, true, stale), 42_000},
		"the same, of locks with waiters":         {queued(statesOn(driver.MaxLockRefs, true, stale)), 52_500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b batch
			if _, err := planAcquire(&b, &driver.AcquireRequest{Project: "p", Nonce: "n"}, row.states); err != nil {
				t.Fatal(err)
			}
			check(t, &b, row.want, false)
		})
	}
	for _, row := range []struct {
		name          string
		intents, done int
		queued        bool
		want          int
	}{
		{name: "the end of the largest preparation", intents: MaxRefs, done: MaxRefs, want: 77_000},
		{name: "the same, of refs with waiters, has room for some reservations", intents: MaxRefs, done: MaxRefs, queued: true, want: 80_000},
		{name: "the end of the largest preparation, partly done", intents: MaxRefs, done: 1000, want: 27_000},
		{name: "the end of the largest preparation, all dropped", intents: MaxRefs, want: 7_000},
		{name: "the end of the largest preparation from before the history, without a record", intents: earlierLockRefs, done: earlierLockRefs, want: 45_000},
		{name: "the same, of refs with waiters", intents: earlierLockRefs, done: earlierLockRefs, queued: true, want: 75_000},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			states := statesOn(row.intents, false, 0)
			if row.queued {
				states = queued(states)
			}
			for i := range states {
				states[i].fence = fenceOn(states[i].Name, driver.NeverStale)
			}
			r := driver.FinishRequest{Project: "p", Origin: driver.Origin{ID: "id", Owner: "o"}, Token: 7, Done: deletionsOf(states[:row.done])}
			var b batch
			if err := planFinish(&b, &r, driver.Fence{Refs: rules.RefsOf(deletionsOf(states)), Owner: "o", Token: 7}, states); err != nil {
				t.Fatal(err)
			}
			check(t, &b, row.want, false)
		})
	}
	t.Run("the largest refusal", func(t *testing.T) {
		t.Parallel()
		var b batch
		r := driver.AcquireRequest{Project: "p", Nonce: "n", Waiter: driver.Waiter{ID: "x"}}
		if _, err := planAcquire(&b, &r, queued(statesOn(driver.MaxLockRefs, true, 0))); !errors.Is(err, driver.ErrLocked) {
			t.Fatal(err)
		}
		check(t, &b, 10_500, false)
	})
	t.Run("packs", func(t *testing.T) {
		t.Parallel()
		p := driver.PackPart{Pack: driver.Pack{ID: "id", Project: "p", Full: true}, Data: []byte("x"), Last: true}
		var whole, more, drop batch
		whole.putPart(p, packForPart{})
		p.Number, p.Last = 1, false
		more.putPart(p, packForPart{row: new(rules.PackRow)})
		for i := range 50 {
			drop.deletePack(fmt.Sprint(i))
		}
		check(t, &whole, 21, false)
		check(t, &more, 12, false)
		check(t, &drop, 200, false)
	})
	t.Run("a beat and a release of the largest lock", func(t *testing.T) {
		t.Parallel()
		var beat, release, handOver batch
		free := make([]rowEnd, driver.MaxLockRefs)
		for i, s := range queued(statesOn(driver.MaxLockRefs, true, 0)) {
			beat.beat("p", s.Name)
			free[i] = ending{lock: *s.Lock}.to(driver.Waiter{})
			handOver.end([]rowEnd{ending{lock: *s.Lock, queue: s.Queue}.to(driver.Waiter{})})
		}
		release.end(free)
		check(t, &beat, 10_500, false)
		check(t, &release, 3_500, false)
		check(t, &handOver, 24_500, false)
	})
}

func check(t *testing.T, b *batch, want int, tooMany bool) {
	t.Helper()
	if b.cost != want {
		t.Errorf("the batch costs %d, want %d", b.cost, want)
	}
	err := b.check()
	if errors.Is(err, driver.ErrTooMany) != tooMany || (err == nil) == tooMany {
		t.Errorf("check: %v", err)
	}
	if tooMany != (want > maxMutations) {
		t.Error("the row contradicts itself")
	}
}

func TestKeysAreSplitIntoRequestsOfLimitedSize(t *testing.T) {
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
