package refdbtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A reservation is not a lock, and it is over after the waiter's turn.
func keptRows() []row {
	return []row{
		{"who is kept a lock, and does not come, loses it when its turn is over", func(e *env) {
			l := e.acquire(e.a, refA)
			first, second := e.notified(e.a), e.notified(e.b)
			first.wait(refA)
			second.wait(refA)
			e.release(e.a, l)
			e.endTurn(refA)
			l = second.acquire(refA)
			if len(l.Reclaimed) != 0 {
				e.Errorf("%+v was no lock", l.Reclaimed)
			}
			third := e.notified(e.b)
			third.wait(refA)
			first.wait(refA)
			e.release(e.b, l)
			first.wantReserved(refA) // because its ticket is earlier
		}},
		{"what Gerrit's plugin makes of a lock that is kept is a lock like any other", func(e *env) {
			for what, waiter := range map[string]*waiter{"for-somebody": e.notified(e.a), "for-nobody": e.polling(e.a)} {
				ref := "refs/heads/" + what
				l := e.acquire(e.a, ref)
				waiter.wait(ref)
				e.release(e.a, l)
				e.endTurn(ref)
				e.db.TakeOver(e, e.project, ref, gerrit)
				e.db.Age(e, e.project, ref, refdb.DefaultStaleAfter/2)
				if h := e.refused(e.b, ref); h[0].Owner != gerrit || h[0].StaleAfter != refdb.DefaultStaleAfter {
					e.Errorf("refused by %+v", h)
				}
				e.wantHolders(e.update(e.b, move(ref, "", v1)), ref)
			}
		}},
		{"what is kept is purged with its queue, and who waits comes back with its place", func(e *env) {
			for what, q := range map[string]*waiter{"for-somebody": e.notified(e.a), "for-nobody": e.polling(e.a)} {
				ref := "refs/heads/" + what
				l := e.acquire(e.a, ref)
				other := e.notified(e.b)
				q.wait(ref)
				other.wait(ref)
				e.release(e.a, l)
				e.endTurn(ref)
				if got := e.purge(e.b, asListed(e.row(ref))); !got[0] {
					e.Error("it was not purged")
				}
				e.wantFree(ref)
				l = e.acquire(e.a, ref)
				other.wait(ref)
				q.wait(ref)
				if q.Place.Ahead != 0 {
					e.Errorf("%d are ahead of the first", q.Place.Ahead)
				}
				e.release(e.a, l)
			}
		}},
		{"one that gives up what was kept for nobody leaves no row", func(e *env) {
			l := e.acquire(e.a, refA)
			q, r := e.polling(e.b), e.polling(e.b)
			q.wait(refA)
			r.wait(refA)
			e.release(e.a, l)
			q.giveUp(refA)
			e.row(refA)
			r.giveUp(refA)
			e.wantFree(refA)
		}},
		{"a turn that is over and is followed by one who polls is for anybody", func(e *env) {
			l := e.acquire(e.a, refA)
			first, second := e.notified(e.a), e.polling(e.b)
			first.wait(refA)
			second.wait(refA)
			e.release(e.a, l)
			e.endTurn(refA)
			e.acquire(e.a, refA)
		}},
		{"a turn that is over is followed by the next one's, whoever asks", func(e *env) {
			a := e.acquire(e.a, refA)
			first, second := e.notified(e.a), e.notified(e.b)
			first.wait(refA)
			second.wait(refA)
			e.release(e.a, a)
			e.endTurn(refA)
			e.refused(e.a, refA)
			second.wantReserved(refA)
			third := e.notified(e.a)
			third.wait(refA)
			e.endTurn(refA)
			e.release(e.a, first.acquire(refA)) // it came before the third
			third.wantReserved(refA)
		}},
		{"what is kept is nobody's lock: nothing that its last holder does can match it", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.notified(e.a) // has the owner of l
			q.wait(refA)
			e.release(e.a, l)
			if missing := e.release(e.a, l); !slices.Equal(missing, []string{refA}) {
				e.Errorf("missing at the second release: %q", missing)
			}
			if got := e.beat(e.a, l.ids()...); got[0] != refdb.BeatLost {
				e.Errorf("the beat says %v", got)
			}
			e.wantLost(e.sendUpdate(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(refA, "", v1)}}), refA)
			if got := e.purge(e.a, standing(l.ids()...)...); got[0] {
				e.Error("it was purged as the lock before")
			}
			e.abandon(e.a, l.AcquireRequest)
			q.wantReserved(refA)
			q.acquire(refA)
		}},
		{"what is kept is in the way of others as a fresh lock is, and can be purged as one", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.notified(e.a)
			q.wait(refA)
			e.release(e.a, l)
			e.wantHolders(e.update(e.b, move(refA, "", v1)), refA)
			_, err := e.tryPrepare(e.b, move(refA, "", v1))
			e.wantHolders(err, refA)
			_, err = e.b.Remove(e.Context(), refdb.RemoveRequest{Project: e.project, Limit: 10})
			e.wantHolders(err, refA)
			page, err := e.b.Locks(e.Context(), refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}, Limit: 10})
			e.must(err)
			if len(page.Locks) != 1 || !page.Locks[0].Reserved() {
				e.Fatalf("listed are %+v", page.Locks)
			}
			if got := e.purge(e.b, asListed(page.Locks[0])); !got[0] {
				e.Error("it was not purged")
			}
			e.must(e.update(e.b, move(refA, "", v1)))
		}},
		{"what is kept, and nobody takes, is in nobody's way when the turn is over", func(e *env) {
			for what, take := range map[string]func(ref string){
				"update":  func(ref string) { e.must(e.update(e.b, move(ref, "", v1))) },
				"acquire": func(ref string) { e.acquire(e.b, ref) },
				"prepare": func(ref string) {
					if p := e.prepare(e.b, move(ref, "", v1)); len(p.Reclaimed) != 0 {
						e.Errorf("%+v was no lock", p.Reclaimed)
					}
				},
			} {
				ref := "refs/heads/" + what
				l := e.acquire(e.a, ref)
				e.notified(e.a).wait(ref)
				e.release(e.a, l)
				e.endTurn(ref)
				take(ref)
			}
		}},
		{"what is kept, and nobody takes, is named by no refusal when the turn is over", func(e *env) {
			l := e.acquire(e.a, refA)
			e.notified(e.a).wait(refA)
			e.release(e.a, l)
			e.endTurn(refA)
			e.acquire(e.a, refB)
			e.wantHolders(e.update(e.b, move(refA, "", v1), move(refB, "", v1)), refB)
			_, err := e.tryAcquire(e.b, refA, refB)
			e.wantHolders(err, refB)
			_, err = e.tryPrepare(e.b, move(refA, "", v1), move(refB, "", v1))
			e.wantHolders(err, refB)
			_, err = e.b.Remove(e.Context(), refdb.RemoveRequest{Project: e.project, Limit: 10})
			e.wantHolders(err, refB)
		}},
		{"the queue of a stale lock stays with whoever takes that over", func(e *env) {
			for what, take := range map[string]func(ref string) (over func()){
				"lock": func(ref string) func() {
					l := e.acquire(e.b, ref)
					return func() { e.release(e.b, l) }
				},
				"intent": func(ref string) func() {
					l := e.prepare(e.b, move(ref, "", v1))
					return func() { e.must(e.finish(e.b, l)) }
				},
			} {
				ref := "refs/heads/" + what
				l := e.acquire(e.a, ref)
				q := e.notified(e.a)
				q.wait(ref)
				e.age(l, stale)
				over := take(ref)
				over()
				q.wantReserved(ref)
			}
		}},
		{"turns may be a millisecond, and owners any text", func(e *env) {
			for _, owner := range []string{"", "a.b.c", "site/host:1 (waits)", "Ärger/" + fmt.Sprint(time.Hour)} {
				ref := fmt.Sprintf("refs/heads/%x", owner)
				p := process{e.a.Driver, owner}
				if owner == "" {
					p.owner = "."
				}
				l := e.acquire(e.b, ref)
				q := e.notified(p)
				q.wait(ref)
				e.release(e.b, l)
				q.wantReserved(ref)
				e.release(p, q.acquire(ref))
				e.wantFree(ref)
			}
			l := e.acquire(e.b, refA)
			q := e.notified(e.a)
			q.Turn = time.Millisecond
			q.wait(refA)
			e.release(e.b, l)
			e.eventually("the end of the turn", func() bool { return e.update(e.b, move(refA, "", v1)) == nil })
		}},
	}
}

// A waiter for several refs gets all of them in its turn, and keeps none of them from others for long.
func severalRefsRows() []row {
	ab := []string{refA, refB}
	return []row{
		{"one order holds in all queues, that of the first refusals", func(e *env) {
			a := e.acquire(e.a, refA)
			first, second, third := e.notified(e.a), e.notified(e.b), e.notified(e.b)
			first.wait(refA)
			b := e.acquire(e.a, refB)
			second.wait(refB)
			third.wait(refB)
			first.wait(refA, refB)
			e.release(e.a, b)
			first.wantReserved(refB)
			first.refused(ab, refA) // so B goes to the next waiter
			second.wantReserved(refB)
			e.release(e.b, second.acquire(refB))
			e.release(e.a, a)
			l := first.acquire(refA, refB)
			third.wait(refB)
			e.release(e.a, l)
			third.wantReserved(refB)
			e.wantFree(refA)
		}},
		{"one for several refs lets others pass while another is in the way, but not for ever; then all is kept for it", func(e *env) {
			a, b := e.acquire(e.a, refA), e.acquire(e.a, refB)
			q := e.notified(e.b)
			q.wait(refA, refB)
			for n := 0; n < refdb.MaxPassed; n += 2 {
				other := e.notified(e.a)
				other.wait(refA)
				e.release(e.a, a)
				q.wantReserved(refA)
				q.refused(ab, refB) // to yield counts as being passed
				other.wantReserved(refA)
				a = other.acquire(refA) // this counts too
				q.refused(ab, refA, refB)
				if q.Place.Passed != n+2 {
					e.Fatalf("passed %d times, told of %d", n+2, q.Place.Passed)
				}
			}
			other := e.notified(e.a)
			other.wait(refA)
			e.release(e.a, a)
			for range 2 {
				e.db.Age(e, e.project, refA, turn/2)
				q.refused(ab, refB) // its turn begins anew
				q.wantReserved(refA)
				if left := e.turnLeft(refA); left < turn*3/4 {
					e.Errorf("its turn is over in %v", left)
				}
			}
			e.release(e.a, b)
			e.release(e.b, q.acquire(refA, refB))
			other.wantReserved(refA)
			e.wantFree(refB)
		}},
		{"what is kept for one who can't take it, and nobody else waits for, is free, MaxPassed times", func(e *env) {
			a, b := e.acquire(e.a, refA), e.acquire(e.a, refB)
			q := e.notified(e.b)
			for n := range refdb.MaxPassed {
				q.wait(refA, refB)
				e.release(e.a, a)
				q.refused(ab, refB)
				e.wantFree(refA)
				if q.Place.Passed != n+1 {
					e.Fatalf("passed %d times, told of %d", n+1, q.Place.Passed)
				}
				a = e.acquire(e.a, refA)
			}
			q.wait(refA, refB)
			e.release(e.a, a)
			q.refused(ab, refB)
			q.wantReserved(refA)
			e.release(e.a, b)
			q.acquire(refA, refB)
		}},
		{"one that waits for the end of an intent waits for nothing else, and keeps nothing", func(e *env) {
			a, b := e.acquire(e.a, refA), e.prepare(e.a, move(refB, "", v1))
			q := e.notified(e.b)
			q.wait(refA, refB)
			e.release(e.a, a)
			e.wantFree(refA)

			e.drop(e.a, b)
			q.wantReserved(refB)
			a = e.acquire(e.a, refA)
			q.refused(ab, refA)
			e.wantFree(refB)
			b = e.prepare(e.a, move(refB, "", v1))
			e.release(e.a, a)
			q.wantReserved(refA)
			other := e.notified(e.a)
			other.wait(refA)
			q.refused(ab, refB)
			other.wantReserved(refA)
			a = other.acquire(refA)
			q.refused(ab, refA, refB)
			if q.Place.Passed > 1 {
				e.Errorf("passed %d times", q.Place.Passed)
			}
			next, another := e.notified(e.a), e.notified(e.a)
			another.wait(refA)
			e.releaseWithNext(next, a)
			next.wantReserved(refA)
			e.release(e.a, next.acquire(refA))
			another.wantReserved(refA)
			e.release(e.a, another.acquire(refA))
			e.wantFree(refA)
			e.must(e.finish(e.a, b))
			q.acquire(refA, refB)
		}},
		{"two who wait for the end of an intent don't keep another ref between them", func(e *env) {
			a := e.acquire(e.a, refA)
			q, r, other := e.notified(e.b), e.notified(e.b), e.notified(e.b)
			q.wait(refA)
			r.wait(refA)
			other.wait(refA)
			e.prepare(e.a, move(refB, "", v1))
			e.release(e.a, a)
			q.wantReserved(refA)
			q.refused(ab, refB)
			r.wantReserved(refA)
			r.refused(ab, refB)
			other.wantReserved(refA)
		}},
		{"two for the same refs don't yield one to each other for as long as somebody has another", func(e *env) {
			a, b := e.acquire(e.a, refA), e.acquire(e.a, refB)
			first, second := e.notified(e.b), e.notified(e.b)
			first.wait(refA, refB)
			second.wait(refA, refB)
			e.release(e.a, a)
			for range refdb.MaxPassed {
				first.refused(ab, refB)
				second.wantReserved(refA)
				second.refused(ab, refB)
			}
			for range 3 {
				first.wantReserved(refA)
				first.refused(ab, refB)
				second.wait(refA, refB)
			}
			e.release(e.a, b)
			first.acquire(refA, refB)
		}},
		{"what one can't take goes to those who came later, and only then to those who came before", func(e *env) {
			a, _ := e.acquire(e.a, refA), e.acquire(e.a, refB)
			var all []*waiter
			for range 3 {
				q := e.notified(e.b)
				q.wait(refA)
				all = append(all, q)
			}
			e.release(e.a, a)
			for _, next := range []int{1, 2, 0, 1} {
				all[(next+2)%3].refused(ab, refB)
				all[next].wantReserved(refA)
			}
		}},
		{"what is kept for a later waiter is not in the way of an earlier one", func(e *env) {
			a, b := e.acquire(e.a, refA), e.acquire(e.a, refB)
			first, second := e.notified(e.a), e.notified(e.b)
			first.wait(refA)
			second.wait(refB)
			e.release(e.a, b)
			second.wantReserved(refB)
			first.refused(ab, refA)
			e.release(e.a, a)
			l := first.acquire(refA, refB)
			if len(l.Reclaimed) != 0 {
				e.Errorf("%+v were no locks", l.Reclaimed)
			}
			e.release(e.a, l)
			second.wantReserved(refB) // it still waits, and did not have to ask again
			e.wantFree(refA)
		}},
		{"each of several locks has its own queue", func(e *env) {
			refs := []string{refA, refB, refC}
			l := e.acquire(e.a, refs...)
			first, second := e.notified(e.a), e.notified(e.b)
			first.wait(refA)
			second.wait(refC)
			e.release(e.a, l)
			first.wantReserved(refA)
			second.wantReserved(refC)
			e.wantFree(refB)
		}},
	}
}
