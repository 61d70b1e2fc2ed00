package refdb

import (
	"math/rand/v2"
	"sync"
	"testing"
)

func isFirst(w *waiter) bool {
	select {
	case <-w.first:
		return true
	default:
		return false
	}
}

func TestQueuesServeInTheOrderOfArrival(t *testing.T) {
	var q queues
	a, b, c := q.enter("p", []string{"r"}), q.enter("p", []string{"r"}), q.enter("p", []string{"r"})
	if !isFirst(a) || isFirst(b) || isFirst(c) {
		t.Fatal("only the first to come is first")
	}
	q.leave(a)
	if !isFirst(b) || isFirst(c) {
		t.Fatal("the second follows the first")
	}
	q.leave(b)
	if !isFirst(c) {
		t.Fatal("the third follows the second")
	}
	q.leave(c)
	if len(q.lines) != 0 {
		t.Fatalf("%d empty lines are left over", len(q.lines))
	}
}

func TestAWaiterIsFirstOnlyWhenFirstInAllItsQueues(t *testing.T) {
	var q queues
	ab := q.enter("p", []string{"a", "b"})
	bc := q.enter("p", []string{"b", "c"})
	ca := q.enter("p", []string{"a", "c"})
	other := q.enter("q", []string{"a", "b", "c"})
	if !isFirst(ab) || isFirst(bc) || isFirst(ca) || !isFirst(other) {
		t.Fatal("sets that overlap wait, those of another project don't")
	}
	q.leave(ab)
	if !isFirst(bc) || isFirst(ca) {
		t.Fatal("{b,c} is next; {a,c} still waits for c")
	}
	q.leave(bc)
	if !isFirst(ca) {
		t.Fatal("{a,c} is last")
	}
}

func TestAWaiterThatGivesUpHandsOver(t *testing.T) {
	var q queues
	first := q.enter("p", []string{"a"})
	middle := q.enter("p", []string{"a", "b"})
	last := q.enter("p", []string{"b"})
	if isFirst(last) {
		t.Fatal("the waiter in the middle stands before the last in b")
	}
	q.leave(middle)
	if !isFirst(last) {
		t.Fatal("nobody stands before the last any more")
	}
	q.leave(first)
	if len(q.lines) != 1 {
		t.Fatalf("%d lines, want b's only", len(q.lines))
	}
}

func TestAWakeUpReachesTheFirstAndIsNotLost(t *testing.T) {
	var q queues
	w, behind := q.enter("p", []string{"a"}), q.enter("p", []string{"a"})
	q.wake("p", "a")
	q.wake("p", "a") // a second one is no more than the first
	q.wake("p", "elsewhere")
	<-w.wake
	select {
	case <-w.wake:
		t.Fatal("two hints are one")
	case <-behind.wake:
		t.Fatal("who is not first is not woken")
	default:
	}
	q.wakeAll()
	<-w.wake
}

func TestOverlappingSetsNeverDeadlockNorOverlap(t *testing.T) {
	var (
		q    queues
		wg   sync.WaitGroup
		mu   sync.Mutex
		busy = map[string]bool{}
		refs = []string{"a", "b", "c", "d"}
	)
	for range 32 {
		wg.Go(func() {
			for range 200 {
				var set []string
				for _, i := range rand.Perm(len(refs))[:1+rand.IntN(len(refs))] {
					set = append(set, refs[i])
				}
				w := q.enter("p", set)
				if rand.IntN(4) == 0 {
					q.leave(w) // gave up
					continue
				}
				<-w.first
				mu.Lock()
				for _, ref := range set {
					if busy[ref] {
						t.Errorf("two are first for %s", ref)
					}
					busy[ref] = true
				}
				mu.Unlock()
				mu.Lock()
				for _, ref := range set {
					busy[ref] = false
				}
				mu.Unlock()
				q.leave(w)
			}
		})
	}
	wg.Wait()
	if len(q.lines) != 0 {
		t.Fatalf("%d lines are left over", len(q.lines))
	}
}

func TestALockIsHandedOverWithinTheProcessOnlySoOftenInARow(t *testing.T) {
	var q queues
	if next, back := q.handOver("p", testRef); next || back {
		t.Error("handed over to nobody")
	}
	q.enter("p", []string{testRef})
	for turn := range 3 {
		for n := range handOvers {
			for range 2 { // the first time it is not released after all
				if next, back := q.handOver("p", testRef); !next || back {
					t.Errorf("turn %d: handed over %d times, want %d", turn, n, handOvers)
				}
			}
			q.handedOver("p", testRef, true)
		}
		for range 2 {
			if next, back := q.handOver("p", testRef); next || !back {
				t.Errorf("turn %d: handed over once more, past the others", turn)
			}
			if q.untilTurn("p", []string{testRef}) == 0 { // before it is released
				t.Errorf("turn %d: somebody may ask out of turn", turn)
			}
		}
		q.handedOver("p", testRef, false)
	}
}

func TestALockIsNotHandedOverToOneWhoWaitsForAnotherToo(t *testing.T) {
	var q queues
	first := q.enter("p", []string{"refs/heads/other"})
	q.enter("p", []string{testRef, "refs/heads/other"})
	for what := range 2 { // it is behind somebody there; and first in both
		if next, back := q.handOver("p", testRef); next || back {
			t.Errorf("handed over (%d)", what)
		}
		q.leave(first)
	}
}
