package refdbtest

import (
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Those who wait for a lock have it in their order.
func queueRows() []row {
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
