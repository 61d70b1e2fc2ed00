package refdbtest

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Waiters get a lock in the order of their tickets.
func queueRows() []row {
	return []row{
		{"a lock that ends is kept for the first who waits, whoever asks", func(e *env) {
			for what, end := range e.handOvers() {
				ref := "refs/heads/" + what
				over := end(ref)
				first, second := e.notified(e.a), e.notified(e.b)
				first.wait(ref)
				second.wait(ref)
				over()
				first.wantReserved(ref)
				second.wait(ref)
				l := first.acquire(ref)
				e.wantLock(l, ref)
				e.release(e.a, l)
				second.wantReserved(ref)
				e.release(e.b, second.acquire(ref))
				e.wantFree(ref)
			}
		}},
		{"one that polls need not be waited for, until it was passed MaxPassed times", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.polling(e.a)
			q.wait(refA)
			for n := range refdb.MaxPassed {
				e.release(e.a, l)
				l = e.acquire(e.a, refA)
				q.wait(refA)
				if q.Place.Passed != n+1 {
					e.Fatalf("passed %d times, told of %d", n+1, q.Place.Passed)
				}
			}
			e.release(e.a, l)
			q.wantReserved(refA)
			q.acquire(refA)
		}},
		{"a waiter that never polls again costs those behind it a turn", func(e *env) {
			l := e.acquire(e.a, refA)
			dead, q := e.polling(e.a), e.polling(e.b)
			dead.wait(refA)
			q.wait(refA)
			for range refdb.MaxPassed {
				e.release(e.a, l)
				l = e.acquire(e.a, refA)
			}
			e.release(e.a, l)
			dead.wantReserved(refA)
			e.endTurn(refA)
			e.release(e.b, q.acquire(refA))
			e.wantFree(refA)
		}},
		{"the next of the same owner may get the lock past the others, MaxPassed times", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.notified(e.b)
			q.wait(refA)
			for range refdb.MaxPassed {
				next := e.notified(e.a)
				e.releaseWithNext(next, l)
				next.wantReserved(refA)
				l = next.acquire(refA)
				q.wait(refA)
			}
			next, late := e.notified(e.a), e.notified(e.b)
			e.releaseWithNext(next, l)
			q.wantReserved(refA)
			l = q.acquire(refA)
			late.wait(refA)
			e.release(e.b, l)
			next.wantReserved(refA)
		}},
		{"a next that waits already keeps its place", func(e *env) {
			l := e.acquire(e.a, refA)
			first, second := e.notified(e.a), e.notified(e.b)
			first.wait(refA)
			second.wait(refA)
			e.releaseWithNext(first, l)
			second.wait(refA)
			l = first.acquire(refA)
			if second.wait(refA); second.Place.Passed != 0 {
				e.Errorf("passed %d times, by one that came before", second.Place.Passed)
			}
			e.release(e.a, l)
			second.wantReserved(refA)
		}},
		{"a preparation that takes a row passes all who wait for it", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.polling(e.b)
			q.wait(refA)
			e.release(e.a, l)
			for range refdb.MaxPassed {
				e.drop(e.a, e.prepare(e.a, move(refA, "", v1)))
			}
			q.wantReserved(refA)
			_, err := e.tryPrepare(e.a, move(refA, "", v1))
			e.wantHolders(err, refA)
		}},
		{"a lock on which nobody waits is free after its release, even with a next", func(e *env) {
			e.releaseWithNext(e.notified(e.a), e.acquire(e.a, refA))
			e.wantFree(refA)
		}},
		{"a next that does not come loses the lock to who waits when its turn is over", func(e *env) {
			l := e.acquire(e.a, refA)
			q, next := e.notified(e.b), e.notified(e.a)
			q.wait(refA)
			e.releaseWithNext(next, l)
			e.endTurn(refA)
			e.release(e.b, q.acquire(refA))
			e.wantFree(refA)
		}},
		{"a waiter knows how many are ahead of it", func(e *env) {
			e.acquire(e.a, refA)
			for n := range 3 {
				q := e.notified(e.b)
				q.wait(refA)
				q.wait(refA)
				if q.Place.Ahead != n {
					e.Errorf("%d are ahead, told of %d", n, q.Place.Ahead)
				}
			}
		}},
		{"a waiter that asks again without its place, because a reply was lost, has its ticket", func(e *env) {
			l := e.acquire(e.a, refA)
			first, second := e.notified(e.a), e.notified(e.b)
			first.wait(refA)
			second.wait(refA)
			place := first.Place
			first.Place = refdb.Place{}
			first.wait(refA)
			if first.Place != place || place.Ticket.IsZero() {
				e.Errorf("the place is %+v, was %+v", first.Place, place)
			}
			e.release(e.a, l)
			first.wantReserved(refA)
		}},
		{"a waiter comes back with its place where its queue was lost", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.polling(e.b)
			q.wait(refA)
			e.release(e.a, l)
			e.acquire(e.a, refA)
			q.wait(refA)
			place := q.Place
			e.db.Exec(e, fmt.Sprintf("DELETE FROM locks WHERE project = '%s'", e.project))
			l = e.acquire(e.a, refA)
			other := e.notified(e.a)
			other.wait(refA)
			q.wait(refA)
			if q.Place != place || place.Passed != 1 {
				e.Errorf("the place is %+v, was %+v", q.Place, place)
			}
			q.Channel = other.Channel
			q.wait(refA)
			e.release(e.a, l)
			q.wantReserved(refA)
		}},
		{"a waiter is told of as it said last", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.polling(e.a)
			q.wait(refA)
			q.Channel, q.Turn = e.notified(e.a).Channel, turn/2
			q.wait(refA)
			e.release(e.a, l)
			q.wantReserved(refA)
		}},
		{"one who only tries has no place", func(e *env) {
			l := e.acquire(e.a, refA)
			e.refused(e.b, refA)
			e.release(e.a, l)
			e.wantFree(refA)
			l = e.acquire(e.a, refA)
			q := e.notified(e.b)
			q.wait(refA)
			e.refused(e.a, refA)
			e.release(e.a, l)
			e.refused(e.a, refA)
			e.release(e.b, q.acquire(refA))
			e.wantFree(refA)
		}},
		{"one that has its locks waits no more", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			q := e.notified(e.b)
			q.wait(refA, refB)
			e.age(l, stale)
			got := q.acquire(refA, refB)
			if len(got.Reclaimed) != 2 {
				e.Errorf("reclaimed are %+v", got.Reclaimed)
			}
			e.release(e.b, got)
			e.wantFree(refA, refB)
		}},
		{"one that gives up leaves its queues, and what is kept for it goes to the next", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			first, second, third := e.notified(e.a), e.notified(e.b), e.notified(e.b)
			for _, q := range []*waiter{first, second, third} {
				q.wait(refA, refB)
			}
			second.giveUp(refA, refB)
			e.wantLock(l, refA, refB)
			e.release(e.a, l)
			first.giveUp(refA, refB)
			third.wantReserved(refA)
			third.giveUp(refA, refB)
			e.wantFree(refA, refB)
			third.giveUp(refA, refB)
		}},
		{"to give up is nobody else's business", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.notified(e.b)
			q.wait(refA)
			e.notified(e.b).giveUp(refA)
			e.notified(e.b).giveUp(refC)
			e.wantLock(l, refA)
			e.release(e.a, l)
			e.notified(e.b).giveUp(refA)
			q.wantReserved(refA)
		}},
		{"beats, and updates that keep the lock, leave its queue", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.notified(e.b)
			q.wait(refA)
			e.beat(e.a, l.ids()...)
			e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(refA, "", v1)}}))
			e.beat(e.a, l.ids()...)
			e.release(e.a, l)
			q.wantReserved(refA)
		}},
		{"an acquisition that is asked for again, because its reply was lost, is granted once", func(e *env) {
			l := e.acquire(e.a, refA)
			q, other := e.notified(e.a), e.notified(e.b)
			q.wait(refA)
			other.wait(refA)
			e.release(e.a, l)
			r := e.acquireRequest(e.a, refA)
			r.Waiter = q.Waiter
			first, err := e.sendAcquire(e.a, r)
			e.must(err)
			again, err := e.sendAcquire(e.a, r)
			e.must(err)
			if first.Token != again.Token || first.Token <= l.Token {
				e.Errorf("tokens %d and %d, after %d", first.Token, again.Token, l.Token)
			}
			e.release(e.a, first)
			other.wantReserved(refA)
		}},
		{"there may be many who wait", func(e *env) {
			l := e.acquire(e.a, refA)
			var all []*waiter
			for range 20 {
				q := e.notified(e.a)
				q.wait(refA)
				all = append(all, q)
			}
			e.release(e.a, l)
			for _, q := range all {
				e.release(e.a, q.acquire(refA))
			}
			e.wantFree(refA)
		}},
	}
}

// handOvers returns, by name, the ways to end a lock so that it goes to a waiter. Each takes the
// lock on a ref, and returns the function that ends it.
func (e *env) handOvers() map[string]func(ref string) (over func()) {
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
				e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Fence: l.releasing(), Updates: []refdb.Update{move(ref, "", v1)}}))
			}
		},
		"update-of-another": func(ref string) func() {
			l := e.acquire(e.a, ref)
			return func() {
				e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Fence: l.releasing(), Updates: []refdb.Update{move(ref+"-and-more", "", v1)}}))
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

// turn is a waiter's turn: long enough that none is over before the row ends.
const turn = 20 * time.Second

// A waiter waits for locks. Its Place is updated by each refusal.
type waiter struct {
	process
	e *env
	refdb.Waiter
}

// notified returns a waiter of p that has a channel, so that locks are reserved for it.
func (e *env) notified(p process) *waiter {
	return &waiter{p, e, refdb.Waiter{ID: rand.Text(), Channel: rand.Text(), Turn: turn}}
}

// polling returns a waiter of p that has no channel: it polls.
func (e *env) polling(p process) *waiter {
	return &waiter{p, e, refdb.Waiter{ID: rand.Text(), Turn: turn}}
}

func (q *waiter) tryAcquire(refs ...string) (lock, error) {
	r := q.e.acquireRequest(q.process, refs...)
	r.Waiter = q.Waiter
	l, err := q.e.sendAcquire(q.process, r)
	if err != nil {
		q.Place = l.Place
	}
	return l, err
}

// refused checks that q is refused the locks on refs, by exactly the locks on those of by.
func (q *waiter) refused(refs []string, by ...string) []refdb.LockInfo {
	q.e.Helper()
	_, err := q.tryAcquire(refs...)
	return q.e.wantHolders(err, by...)
}

// wait checks that q is refused by a lock on each of refs.
func (q *waiter) wait(refs ...string) {
	q.e.Helper()
	q.refused(refs, refs...)
}

// acquire takes locks for q.
func (q *waiter) acquire(refs ...string) lock {
	q.e.Helper()
	l, err := q.tryAcquire(refs...)
	q.e.must(err)
	return l
}

// giveUp takes q out of the queues of refs.
func (q *waiter) giveUp(refs ...string) {
	q.e.Helper()
	q.e.must(retry(func() error {
		return q.Abandon(q.e.Context(), refdb.AbandonRequest{Project: q.e.project, Refs: refs, Owner: q.owner, Waiter: q.ID})
	}))
}

// wantReserved checks that the lock on ref is reserved for q, and that nobody else gets it.
func (q *waiter) wantReserved(ref string) {
	q.e.Helper()
	row := q.e.row(ref)
	if left := q.e.turnLeft(ref); row.Owner != refdb.ReservedFor(q.owner) || left <= 0 || left > q.Turn {
		q.e.Errorf("the row of %s is %+v, for %v", ref, row, left)
	}
	if h := q.e.refused(q.e.b, ref); len(h) != 1 || !h[0].Reserved() {
		q.e.Errorf("refused by %+v", h)
	}
}

// turnLeft returns how long the lock on ref is still reserved.
func (e *env) turnLeft(ref string) time.Duration {
	e.Helper()
	row := e.row(ref)
	if !row.Reserved() {
		e.Errorf("the lock on %s is not kept: %+v", ref, row)
	}
	return row.StaleAfter - e.now(e.b).Sub(row.Heartbeat)
}

// endTurn makes the reservation of the lock on ref so old that the turn is over.
func (e *env) endTurn(ref string) {
	e.Helper()
	e.db.Age(e, e.project, ref, turn+time.Second)
}

// releaseWithNext releases l, with a waiter that is to get it next.
func (e *env) releaseWithNext(next *waiter, l lock) {
	e.Helper()
	got, err := e.sendRelease(next.process, refdb.ReleaseRequest{Project: l.Project, Refs: l.refs(), Owner: l.Owner, Token: l.Token, Next: next.Waiter})
	e.must(err)
	if len(got.Missing) != 0 {
		e.Errorf("%q were missing", got.Missing)
	}
}
