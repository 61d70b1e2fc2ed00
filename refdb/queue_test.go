package refdb

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
)

func isReady(w *localWaiter) bool {
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}

// entries is the number of entries in all maps of q.
func (q *queues) entries() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.byRef) + len(q.blocked) + len(q.held)
}

func TestQueuesServeInTheOrderOfArrival(t *testing.T) {
	var q queues
	a, b, c := q.enter("p", []string{"r"}), q.enter("p", []string{"r"}), q.enter("p", []string{"r"})
	if !isReady(a) || isReady(b) || isReady(c) {
		t.Fatal("only the first to come is ready")
	}
	q.leave(a)
	if !isReady(b) || isReady(c) {
		t.Fatal("the second follows the first")
	}
	q.leave(b)
	if !isReady(c) {
		t.Fatal("the third follows the second")
	}
	q.leave(c)
	if len(q.byRef) != 0 {
		t.Fatalf("%d empty queues are left over", len(q.byRef))
	}
}

func TestAWaiterIsReadyOnlyWhenFirstInAllItsQueues(t *testing.T) {
	var q queues
	ab := q.enter("p", []string{"a", "b"})
	bc := q.enter("p", []string{"b", "c"})
	ca := q.enter("p", []string{"a", "c"})
	other := q.enter("q", []string{"a", "b", "c"})
	if !isReady(ab) || isReady(bc) || isReady(ca) || !isReady(other) {
		t.Fatal("sets that overlap wait, those of another project don't")
	}
	q.leave(ab)
	if !isReady(bc) || isReady(ca) {
		t.Fatal("{b,c} is next; {a,c} still waits for c")
	}
	q.leave(bc)
	if !isReady(ca) {
		t.Fatal("{a,c} is last")
	}
}

func TestAWaiterThatGivesUpHandsOver(t *testing.T) {
	var q queues
	first := q.enter("p", []string{"a"})
	middle := q.enter("p", []string{"a", "b"})
	last := q.enter("p", []string{"b", "c"})
	if isReady(last) {
		t.Fatal("the waiter in the middle stands before the last in b")
	}
	q.leave(middle)
	if !isReady(last) {
		t.Fatal("nobody stands before the last any more")
	}
	q.leave(first)
	if len(q.byRef) != 2 {
		t.Fatalf("%d queues, want those of b and c only", len(q.byRef))
	}
}

func TestAWakeUpReachesTheFirstAndIsNotLost(t *testing.T) {
	var q queues
	w, behind := q.enter("p", []string{"a"}), q.enter("p", []string{"a"})
	q.wakeNext("p", "a")
	q.wakeNext("p", "a") // a second one is no more than the first
	q.wakeNext("p", "elsewhere")
	<-w.wake
	select {
	case <-w.wake:
		t.Fatal("two wake-ups are one")
	case <-behind.wake:
		t.Fatal("a waiter that is not first was woken")
	default:
	}
	q.wakeAll()
	<-w.wake
}

// The database gives all refs of a set or none.
func TestOverlappingSetsNeverDeadlock(t *testing.T) {
	var (
		q    queues
		wg   sync.WaitGroup
		mu   sync.Mutex
		busy = map[string]bool{}
		refs = []string{"a", "b", "c", "d"}
	)
	take := func(set []string) (holders []LockInfo) {
		mu.Lock()
		defer mu.Unlock()
		for _, ref := range set {
			if busy[ref] {
				holders = append(holders, LockInfo{Ref: ref, StaleAfter: DefaultStaleAfter})
			}
		}
		for _, ref := range set {
			busy[ref] = busy[ref] || holders == nil
		}
		return holders
	}
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
				<-w.ready
				for holders := take(set); holders != nil; holders = take(set) {
					q.refused(w, holders)
					runtime.Gosched()
				}
				q.leave(w)
				runtime.Gosched()
				mu.Lock()
				for _, ref := range set {
					busy[ref] = false
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if n := q.entries() + len(q.blocked); n != 0 {
		t.Fatalf("%d entries are left over", n)
	}
}

func TestTheNextAloneWaitsForThatRefOnlyAndIsFirst(t *testing.T) {
	var q queues
	if id := q.nextAlone("p", testRef); id != "" {
		t.Errorf("%q is next where nobody waits", id)
	}
	other := q.enter("p", []string{"refs/heads/other"})
	both := q.enter("p", []string{testRef, "refs/heads/other"})
	if id := q.nextAlone("p", testRef); id != "" {
		t.Error("a waiter is next that is behind another")
	}
	q.leave(other)
	if id := q.nextAlone("p", testRef); id != "" {
		t.Error("a waiter is next that waits for another ref, too")
	}
	first, second := q.enter("p", []string{testRef}), q.enter("p", []string{testRef})
	q.leave(both)
	if id := q.nextAlone("p", testRef); id != first.id {
		t.Errorf("next is %q", id)
	}
	q.leave(first)
	if id := q.nextAlone("p", testRef); id != second.id {
		t.Errorf("then the next is %q", id)
	}
}

func TestWaitersForOneRefPassOneAtATimeInTheirOrder(t *testing.T) {
	var q queues
	v := q.enter("p", []string{"b"})
	ab, ac := q.enter("p", []string{"a", "b"}), q.enter("p", []string{"a", "c"})
	a1, a2 := q.enter("p", []string{"a"}), q.enter("p", []string{"a"})
	if isReady(ab) || isReady(ac) || !isReady(a1) || isReady(a2) {
		t.Fatal("{a,b} waits for b: the first who waits for a alone passes, {a,c} doesn't")
	}
	q.leave(a1)
	if isReady(ac) || !isReady(a2) {
		t.Fatal("now the second passes")
	}
	q.leave(v)
	a3 := q.enter("p", []string{"a"})
	q.leave(a2)
	if !isReady(ab) || isReady(a3) {
		t.Fatal("{a,b} is first in both: nobody passes")
	}
	q.refused(ab, []LockInfo{{Ref: "a", StaleAfter: DefaultStaleAfter}})
	if isReady(a3) {
		t.Fatal("{a,b} waits for a, as the others do")
	}
	q.refused(ab, []LockInfo{{Ref: "b", StaleAfter: DefaultStaleAfter}})
	if !isReady(a3) {
		t.Fatal("{a,b} waits for b, which somebody holds")
	}
	q.leave(ab)
	if !isReady(ac) {
		t.Fatal("{a,c} is next")
	}
	q.leave(ac)
	q.leave(a3)
	if n := q.entries() + len(q.blocked); n != 0 {
		t.Fatalf("%d entries are left over", n)
	}
}
