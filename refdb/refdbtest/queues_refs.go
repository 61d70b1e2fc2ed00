package refdbtest

import (
	"github.com/globalrefdb/globalrefdb/refdb"
)

// Those who wait for several refs have all in their turn, and keep none from others for long.
func severalRefsRows() []row {
	ab := []string{refA, refB}
	return []row{
		{"one order holds in all queues, that of the first refusals", func(e *env) {
			a := e.acquire(e.a, refA)
			first, second, third := e.told(e.a), e.told(e.b), e.told(e.b)
			first.waits(refA)
			b := e.acquire(e.a, refB)
			second.waits(refB)
			third.waits(refB)
			first.waits(refA, refB)
			e.release(e.a, b)
			first.wantKept(refB)
			first.refused(ab, refA) // and so gives B to the next
			second.wantKept(refB)
			e.release(e.b, second.granted(refB))
			e.release(e.a, a)
			l := first.granted(refA, refB)
			third.waits(refB)
			e.release(e.a, l)
			third.wantKept(refB)
			e.wantFree(refA)
		}},
		{"one for several refs lets others pass while another is in the way, but not for ever; then all is kept for it", func(e *env) {
			a, b := e.acquire(e.a, refA), e.acquire(e.a, refB)
			q := e.told(e.b)
			q.waits(refA, refB)
			for n := 0; n < refdb.MaxPassed; n += 2 {
				other := e.told(e.a)
				other.waits(refA)
				e.release(e.a, a)
				q.wantKept(refA)
				q.refused(ab, refB) // it yields, which counts
				other.wantKept(refA)
				a = other.granted(refA) // which counts, too
				q.refused(ab, refA, refB)
				if q.Place.Passed != n+2 {
					e.Fatalf("passed %d times, told of %d", n+2, q.Place.Passed)
				}
			}
			other := e.told(e.a)
			other.waits(refA)
			e.release(e.a, a)
			for range 2 {
				e.db.Age(e, e.project, refA, turn/2)
				q.refused(ab, refB) // its turn begins anew
				q.wantKept(refA)
				if left := e.left(refA); left < turn*3/4 {
					e.Errorf("its turn is over in %v", left)
				}
			}
			e.release(e.a, b)
			e.release(e.b, q.granted(refA, refB))
			other.wantKept(refA)
			e.wantFree(refB)
		}},
		{"what is kept for one who can't take it, and nobody else waits for, is free, MaxPassed times", func(e *env) {
			a, b := e.acquire(e.a, refA), e.acquire(e.a, refB)
			q := e.told(e.b)
			for n := range refdb.MaxPassed {
				q.waits(refA, refB)
				e.release(e.a, a)
				q.refused(ab, refB)
				e.wantFree(refA)
				if q.Place.Passed != n+1 {
					e.Fatalf("passed %d times, told of %d", n+1, q.Place.Passed)
				}
				a = e.acquire(e.a, refA)
			}
			q.waits(refA, refB)
			e.release(e.a, a)
			q.refused(ab, refB)
			q.wantKept(refA)
			e.release(e.a, b)
			q.granted(refA, refB)
		}},
		{"one that waits for the end of an intent waits for nothing else, and keeps nothing", func(e *env) {
			a, b := e.acquire(e.a, refA), e.prepare(e.a, move(refB, "", v1))
			q := e.told(e.b)
			q.waits(refA, refB)
			e.release(e.a, a)
			e.wantFree(refA)

			e.drop(e.a, b)
			q.wantKept(refB)
			a = e.acquire(e.a, refA)
			q.refused(ab, refA)
			e.wantFree(refB)
			b = e.prepare(e.a, move(refB, "", v1))
			e.release(e.a, a)
			q.wantKept(refA)
			other := e.told(e.a)
			other.waits(refA)
			q.refused(ab, refB)
			other.wantKept(refA)
			a = other.granted(refA)
			q.refused(ab, refA, refB)
			if q.Place.Passed > 1 {
				e.Errorf("passed %d times", q.Place.Passed)
			}
			next, another := e.told(e.a), e.told(e.a)
			another.waits(refA)
			e.releaseTo(next, a)
			next.wantKept(refA)
			e.release(e.a, next.granted(refA))
			another.wantKept(refA)
			e.release(e.a, another.granted(refA))
			e.wantFree(refA)
			e.must(e.finish(e.a, b))
			q.granted(refA, refB)
		}},
		{"two who wait for the end of an intent don't keep another ref between them", func(e *env) {
			a := e.acquire(e.a, refA)
			q, r, other := e.told(e.b), e.told(e.b), e.told(e.b)
			q.waits(refA)
			r.waits(refA)
			other.waits(refA)
			e.prepare(e.a, move(refB, "", v1))
			e.release(e.a, a)
			q.wantKept(refA)
			q.refused(ab, refB)
			r.wantKept(refA)
			r.refused(ab, refB)
			other.wantKept(refA)
		}},
		{"two for the same refs don't yield one to each other for as long as somebody has another", func(e *env) {
			a, b := e.acquire(e.a, refA), e.acquire(e.a, refB)
			first, second := e.told(e.b), e.told(e.b)
			first.waits(refA, refB)
			second.waits(refA, refB)
			e.release(e.a, a)
			for range refdb.MaxPassed {
				first.refused(ab, refB)
				second.wantKept(refA)
				second.refused(ab, refB)
			}
			for range 3 {
				first.wantKept(refA)
				first.refused(ab, refB)
				second.waits(refA, refB)
			}
			e.release(e.a, b)
			first.granted(refA, refB)
		}},
		{"what one can't take goes to those who came later, and only then to those who came before", func(e *env) {
			a, _ := e.acquire(e.a, refA), e.acquire(e.a, refB)
			var all []*queued
			for range 3 {
				q := e.told(e.b)
				q.waits(refA)
				all = append(all, q)
			}
			e.release(e.a, a)
			for _, next := range []int{1, 2, 0, 1} {
				all[(next+2)%3].refused(ab, refB)
				all[next].wantKept(refA)
			}
		}},
		{"what is kept for a later waiter is not in the way of an earlier one", func(e *env) {
			a, b := e.acquire(e.a, refA), e.acquire(e.a, refB)
			first, second := e.told(e.a), e.told(e.b)
			first.waits(refA)
			second.waits(refB)
			e.release(e.a, b)
			second.wantKept(refB)
			first.refused(ab, refA)
			e.release(e.a, a)
			l := first.granted(refA, refB)
			if len(l.Reclaimed) != 0 {
				e.Errorf("%+v were no locks", l.Reclaimed)
			}
			e.release(e.a, l)
			second.wantKept(refB) // it waits on, without asking
			e.wantFree(refA)
		}},
		{"each of several locks has its own queue", func(e *env) {
			refs := []string{refA, refB, refC}
			l := e.acquire(e.a, refs...)
			first, second := e.told(e.a), e.told(e.b)
			first.waits(refA)
			second.waits(refC)
			e.release(e.a, l)
			first.wantKept(refA)
			second.wantKept(refC)
			e.wantFree(refB)
		}},
	}
}
