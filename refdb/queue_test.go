package refdb

import (
	"math/rand/v2"
	"runtime"
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
	last := q.enter("p", []string{"b", "c"})
	if isFirst(last) {
		t.Fatal("the waiter in the middle stands before the last in b")
	}
	q.leave(middle)
	if !isFirst(last) {
		t.Fatal("nobody stands before the last any more")
	}
	q.leave(first)
	if len(q.lines) != 2 {
		t.Fatalf("%d lines, want those of b and c only", len(q.lines))
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
				<-w.first
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
	if n := q.entries() + len(q.stopped); n != 0 {
		t.Fatalf("%d entries are left over", n)
	}
}

func TestTheNextIsWhoeverWaitsForTheRefAloneAndHasNoneBeforeIt(t *testing.T) {
	var q queues
	if id := q.nextAlone("p", testRef); id != "" {
		t.Errorf("%q is next where nobody waits", id)
	}
	other := q.enter("p", []string{"refs/heads/other"})
	both := q.enter("p", []string{testRef, "refs/heads/other"})
	if id := q.nextAlone("p", testRef); id != "" {
		t.Error("one is next who is behind somebody")
	}
	q.leave(other)
	if id := q.nextAlone("p", testRef); id != "" {
		t.Error("one is next who waits for another ref, too")
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

func TestThosePassWhoWaitForARefAloneOneAtATimeInTheirOrder(t *testing.T) {
	var q queues
	v := q.enter("p", []string{"b"})
	ab, ac := q.enter("p", []string{"a", "b"}), q.enter("p", []string{"a", "c"})
	a1, a2 := q.enter("p", []string{"a"}), q.enter("p", []string{"a"})
	if isFirst(ab) || isFirst(ac) || !isFirst(a1) || isFirst(a2) {
		t.Fatal("{a,b} waits for b: the first who waits for a alone passes, {a,c} doesn't")
	}
	q.leave(a1)
	if isFirst(ac) || !isFirst(a2) {
		t.Fatal("now the second passes")
	}
	q.leave(v)
	a3 := q.enter("p", []string{"a"})
	q.leave(a2)
	if !isFirst(ab) || isFirst(a3) {
		t.Fatal("{a,b} is first in both: nobody passes")
	}
	q.refused(ab, []LockInfo{{Ref: "a", StaleAfter: DefaultStaleAfter}})
	if isFirst(a3) {
		t.Fatal("{a,b} waits for a, as the others do")
	}
	q.refused(ab, []LockInfo{{Ref: "b", StaleAfter: DefaultStaleAfter}})
	if !isFirst(a3) {
		t.Fatal("{a,b} waits for b, which somebody holds")
	}
	q.leave(ab)
	if !isFirst(ac) {
		t.Fatal("{a,c} is next")
	}
	q.leave(ac)
	q.leave(a3)
	if n := q.entries() + len(q.stopped); n != 0 {
		t.Fatalf("%d entries are left over", n)
	}
}
