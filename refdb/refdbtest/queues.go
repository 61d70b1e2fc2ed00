package refdbtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Those who wait for a lock have it in their order.
func queueRows() []row {
	ab := []string{refA, refB}
	return []row{
		{"a lock that ends is kept for the first who waits, whoever asks", func(e *env) {
			for what, end := range e.handsOn() {
				ref := "refs/heads/" + what
				over := end(ref)
				first, second := e.told(e.a), e.told(e.b)
				first.waits(ref)
				second.waits(ref)
				over()
				first.wantKept(ref)
				second.waits(ref)
				l := first.granted(ref)
				e.wantLock(l, ref)
				e.release(e.a, l)
				second.wantKept(ref)
				e.release(e.b, second.granted(ref))
				e.wantFree(ref)
			}
		}},
		{"who is kept a lock, and does not come, loses it when its turn is over", func(e *env) {
			l := e.acquire(e.a, refA)
			first, second := e.told(e.a), e.told(e.b)
			first.waits(refA)
			second.waits(refA)
			e.release(e.a, l)
			e.endTurn(refA)
			l = second.granted(refA)
			if len(l.Reclaimed) != 0 {
				e.Errorf("%+v was no lock", l.Reclaimed)
			}
			third := e.told(e.b)
			third.waits(refA)
			first.waits(refA)
			e.release(e.b, l)
			first.wantKept(refA) // by its ticket
		}},
		{"one that polls need not be waited for, until it was passed MaxPassed times", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.polling(e.a)
			q.waits(refA)
			for n := range refdb.MaxPassed {
				e.release(e.a, l)
				l = e.acquire(e.a, refA)
				q.waits(refA)
				if q.Place.Passed != n+1 {
					e.Fatalf("passed %d times, told of %d", n+1, q.Place.Passed)
				}
			}
			e.release(e.a, l)
			q.wantKept(refA)
			q.granted(refA)
		}},
		{"a waiter that never polls again costs those behind it a turn", func(e *env) {
			l := e.acquire(e.a, refA)
			dead, q := e.polling(e.a), e.polling(e.b)
			dead.waits(refA)
			q.waits(refA)
			for range refdb.MaxPassed {
				e.release(e.a, l)
				l = e.acquire(e.a, refA)
			}
			e.release(e.a, l)
			dead.wantKept(refA)
			e.endTurn(refA)
			e.release(e.b, q.granted(refA))
			e.wantFree(refA)
		}},
		{"the next of the same owner may get the lock past the others, MaxPassed times", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.told(e.b)
			q.waits(refA)
			for range refdb.MaxPassed {
				next := e.told(e.a)
				e.releaseTo(next, l)
				next.wantKept(refA)
				l = next.granted(refA)
				q.waits(refA)
			}
			next := e.told(e.a)
			e.releaseTo(next, l)
			next.waits(refA)
			q.wantKept(refA)
			e.release(e.b, q.granted(refA))
			next.wantKept(refA)
		}},
		{"a next that waits already keeps its place", func(e *env) {
			l := e.acquire(e.a, refA)
			first, second := e.told(e.a), e.told(e.b)
			first.waits(refA)
			second.waits(refA)
			e.releaseTo(first, l)
			second.waits(refA)
			l = first.granted(refA)
			if second.waits(refA); second.Place.Passed != 0 {
				e.Errorf("passed %d times, by one that came before", second.Place.Passed)
			}
			e.release(e.a, l)
			second.wantKept(refA)
		}},
		{"a preparation that takes a row passes all who wait for it", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.polling(e.b)
			q.waits(refA)
			e.release(e.a, l)
			for range refdb.MaxPassed {
				e.drop(e.a, e.prepare(e.a, move(refA, "", v1)))
			}
			q.wantKept(refA)
			_, err := e.tryPrepare(e.a, move(refA, "", v1))
			e.wantHolders(err, refA)
		}},
		{"what Gerrit's plugin makes of a lock that is kept is a lock like any other", func(e *env) {
			for what, waiter := range map[string]*queued{"for-somebody": e.told(e.a), "for-nobody": e.polling(e.a)} {
				ref := "refs/heads/" + what
				l := e.acquire(e.a, ref)
				waiter.waits(ref)
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
			for what, q := range map[string]*queued{"for-somebody": e.told(e.a), "for-nobody": e.polling(e.a)} {
				ref := "refs/heads/" + what
				l := e.acquire(e.a, ref)
				other := e.told(e.b)
				q.waits(ref)
				other.waits(ref)
				e.release(e.a, l)
				e.endTurn(ref)
				if got := e.purge(e.b, asListed(e.row(ref))); !got[0] {
					e.Error("it was not purged")
				}
				e.wantFree(ref)
				l = e.acquire(e.a, ref)
				other.waits(ref)
				q.waits(ref)
				if q.Place.Ahead != 0 {
					e.Errorf("%d are ahead of the first", q.Place.Ahead)
				}
				e.release(e.a, l)
			}
		}},
		{"one that gives up what was kept for nobody leaves no row", func(e *env) {
			l := e.acquire(e.a, refA)
			q, r := e.polling(e.b), e.polling(e.b)
			q.waits(refA)
			r.waits(refA)
			e.release(e.a, l)
			q.givesUp(refA)
			e.row(refA)
			r.givesUp(refA)
			e.wantFree(refA)
		}},
		{"a turn that is over and is followed by one who polls is for anybody", func(e *env) {
			l := e.acquire(e.a, refA)
			first, second := e.told(e.a), e.polling(e.b)
			first.waits(refA)
			second.waits(refA)
			e.release(e.a, l)
			e.endTurn(refA)
			e.acquire(e.a, refA)
		}},
		{"a lock on which nobody waits is free after its release, even with a next", func(e *env) {
			e.releaseTo(e.told(e.a), e.acquire(e.a, refA))
			e.wantFree(refA)
		}},
		{"a next that does not come loses the lock to who waits when its turn is over", func(e *env) {
			l := e.acquire(e.a, refA)
			q, next := e.told(e.b), e.told(e.a)
			q.waits(refA)
			e.releaseTo(next, l)
			e.endTurn(refA)
			e.release(e.b, q.granted(refA))
			e.wantFree(refA)
		}},
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
		{"a waiter knows how many are ahead of it", func(e *env) {
			e.acquire(e.a, refA)
			for n := range 3 {
				q := e.told(e.b)
				q.waits(refA)
				q.waits(refA)
				if q.Place.Ahead != n {
					e.Errorf("%d are ahead, told of %d", n, q.Place.Ahead)
				}
			}
		}},
		{"a waiter that asks again without its place, because a reply was lost, has its ticket", func(e *env) {
			l := e.acquire(e.a, refA)
			first, second := e.told(e.a), e.told(e.b)
			first.waits(refA)
			second.waits(refA)
			place := first.Place
			first.Place = refdb.Place{}
			first.waits(refA)
			if first.Place != place || place.Ticket.IsZero() {
				e.Errorf("the place is %+v, was %+v", first.Place, place)
			}
			e.release(e.a, l)
			first.wantKept(refA)
		}},
		{"a waiter comes back with its place where its queue was lost", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.polling(e.b)
			q.waits(refA)
			e.release(e.a, l)
			e.acquire(e.a, refA)
			q.waits(refA)
			place := q.Place
			e.db.Exec(e, fmt.Sprintf("DELETE FROM locks WHERE project = '%s'", e.project))
			l = e.acquire(e.a, refA)
			other := e.told(e.a)
			other.waits(refA)
			q.waits(refA)
			if q.Place != place || place.Passed != 1 {
				e.Errorf("the place is %+v, was %+v", q.Place, place)
			}
			q.Channel = other.Channel
			q.waits(refA)
			e.release(e.a, l)
			q.wantKept(refA)
		}},
		{"a waiter is told of as it said last", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.polling(e.a)
			q.waits(refA)
			q.Channel, q.Turn = e.told(e.a).Channel, turn/2
			q.waits(refA)
			e.release(e.a, l)
			q.wantKept(refA)
		}},
		{"one who only tries has no place", func(e *env) {
			l := e.acquire(e.a, refA)
			e.refused(e.b, refA)
			e.release(e.a, l)
			e.wantFree(refA)
			l = e.acquire(e.a, refA)
			q := e.told(e.b)
			q.waits(refA)
			e.refused(e.a, refA)
			e.release(e.a, l)
			e.refused(e.a, refA)
			e.release(e.b, q.granted(refA))
			e.wantFree(refA)
		}},
		{"one that has its locks waits no more", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			q := e.told(e.b)
			q.waits(refA, refB)
			e.age(l, stale)
			got := q.granted(refA, refB)
			if len(got.Reclaimed) != 2 {
				e.Errorf("reclaimed are %+v", got.Reclaimed)
			}
			e.release(e.b, got)
			e.wantFree(refA, refB)
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
		{"a turn that is over is followed by the next one's, whoever asks", func(e *env) {
			a := e.acquire(e.a, refA)
			first, second := e.told(e.a), e.told(e.b)
			first.waits(refA)
			second.waits(refA)
			e.release(e.a, a)
			e.endTurn(refA)
			e.refused(e.a, refA)
			second.wantKept(refA)
			third := e.told(e.a)
			third.waits(refA)
			e.endTurn(refA)
			e.release(e.a, first.granted(refA)) // it came before the third
			third.wantKept(refA)
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
		{"one that gives up leaves its queues, and what is kept for it goes to the next", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			first, second, third := e.told(e.a), e.told(e.b), e.told(e.b)
			for _, q := range []*queued{first, second, third} {
				q.waits(refA, refB)
			}
			second.givesUp(refA, refB)
			e.wantLock(l, refA, refB)
			e.release(e.a, l)
			first.givesUp(refA, refB)
			third.wantKept(refA)
			third.givesUp(refA, refB)
			e.wantFree(refA, refB)
			third.givesUp(refA, refB)
		}},
		{"to give up is nobody else's business", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.told(e.b)
			q.waits(refA)
			e.told(e.b).givesUp(refA)
			e.told(e.b).givesUp(refC)
			e.wantLock(l, refA)
			e.release(e.a, l)
			e.told(e.b).givesUp(refA)
			q.wantKept(refA)
		}},
		{"what is kept is nobody's lock: nothing that its last holder does can match it", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.told(e.a) // of the same owner
			q.waits(refA)
			e.release(e.a, l)
			if missing := e.release(e.a, l); !slices.Equal(missing, []string{refA}) {
				e.Errorf("missing at the second release: %q", missing)
			}
			if got := e.beat(e.a, l.ids()...); got[0] != refdb.BeatLost {
				e.Errorf("the beat says %v", got)
			}
			e.wantLost(e.transact(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(refA, "", v1)}}), refA)
			if got := e.purge(e.a, standing(l.ids()...)...); got[0] {
				e.Error("it was purged as the lock before")
			}
			e.abandon(e.a, l.AcquireRequest)
			q.wantKept(refA)
			q.granted(refA)
		}},
		{"what is kept is in the way of others as a fresh lock is, and can be purged as one", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.told(e.a)
			q.waits(refA)
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
				e.told(e.a).waits(ref)
				e.release(e.a, l)
				e.endTurn(ref)
				take(ref)
			}
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
				q := e.told(e.a)
				q.waits(ref)
				e.age(l, stale)
				over := take(ref)
				over()
				q.wantKept(ref)
			}
		}},
		{"beats, and updates that keep the lock, leave its queue", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.told(e.b)
			q.waits(refA)
			e.beat(e.a, l.ids()...)
			e.must(e.transact(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(refA, "", v1)}}))
			e.beat(e.a, l.ids()...)
			e.release(e.a, l)
			q.wantKept(refA)
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
		{"an acquisition that is asked for again, because its reply was lost, is granted once", func(e *env) {
			l := e.acquire(e.a, refA)
			q, other := e.told(e.a), e.told(e.b)
			q.waits(refA)
			other.waits(refA)
			e.release(e.a, l)
			r := e.request(e.a, refA)
			r.Waiter = q.Waiter
			first, err := e.send(e.a, r)
			e.must(err)
			again, err := e.send(e.a, r)
			e.must(err)
			if first.Token != again.Token || first.Token <= l.Token {
				e.Errorf("tokens %d and %d, after %d", first.Token, again.Token, l.Token)
			}
			e.release(e.a, first)
			other.wantKept(refA)
		}},
		{"there may be many who wait", func(e *env) {
			l := e.acquire(e.a, refA)
			var all []*queued
			for range 20 {
				q := e.told(e.a)
				q.waits(refA)
				all = append(all, q)
			}
			e.release(e.a, l)
			for _, q := range all {
				e.release(e.a, q.granted(refA))
			}
			e.wantFree(refA)
		}},
		{"turns may be a millisecond, and owners any text", func(e *env) {
			for _, owner := range []string{"", "a.b.c", "site/host:1 (waits)", "Ärger/" + fmt.Sprint(time.Hour)} {
				ref := fmt.Sprintf("refs/heads/%x", owner)
				p := process{e.a.Driver, owner}
				if owner == "" {
					p.owner = "."
				}
				l := e.acquire(e.b, ref)
				q := e.told(p)
				q.waits(ref)
				e.release(e.b, l)
				q.wantKept(ref)
				e.release(p, q.granted(ref))
				e.wantFree(ref)
			}
			l := e.acquire(e.b, refA)
			q := e.told(e.a)
			q.Turn = time.Millisecond
			q.waits(refA)
			e.release(e.b, l)
			e.eventually("the end of the turn", func() bool { return e.update(e.b, move(refA, "", v1)) == nil })
		}},
	}
}

// handsOn returns the requests that end a lock and hand it on, by name: each takes one on a ref, and
// returns what ends it.
func (e *env) handsOn() map[string]func(ref string) (over func()) {
	return map[string]func(ref string) func(){
		"release": func(ref string) func() {
			l := e.acquire(e.a, ref)
			return func() { e.release(e.a, l) }
		},
		"release-of-several": func(ref string) func() {
			l := e.acquire(e.a, ref, ref+"-and-more")
			return func() { e.release(e.a, l) }
		},
		"update": func(ref string) func() {
			l := e.acquire(e.a, ref)
			return func() {
				e.must(e.transact(e.a, refdb.UpdateRequest{Fence: l.releasing(), Updates: []refdb.Update{move(ref, "", v1)}}))
			}
		},
		"update-of-another": func(ref string) func() {
			l := e.acquire(e.a, ref)
			return func() {
				e.must(e.transact(e.a, refdb.UpdateRequest{Fence: l.releasing(), Updates: []refdb.Update{move(ref+"-and-more", "", v1)}}))
			}
		},
		"abandonment": func(ref string) func() {
			l := e.acquire(e.a, ref)
			return func() { e.abandon(e.a, l.AcquireRequest) }
		},
		"purge": func(ref string) func() {
			l := e.acquire(e.a, ref)
			return func() { e.purge(e.b, standing(l.ids()...)...) }
		},
		"finish": func(ref string) func() {
			l := e.prepare(e.a, move(ref, "", v1))
			return func() { e.must(e.finish(e.a, l)) }
		},
	}
}
