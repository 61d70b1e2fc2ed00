package driver

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// Waiters get a lock in the order of their tickets.
func queueRows() []row {
	return []row{
		{"an ended lock is reserved for the first waiter, whichever process requests it", func(e *env) {
			for what, end := range handOvers(e) {
				ref := "refs/heads/" + what
				over := end(ref)
				first, second := notified(e, e.A), notified(e, e.B)
				first.wait(ref)
				second.wait(ref)
				over()
				first.wantReserved(ref)
				second.wait(ref)
				l := first.acquire(ref)
				e.WantLock(l, ref)
				e.Release(e.A, l)
				second.wantReserved(ref)
				e.Release(e.B, second.acquire(ref))
				e.WantFree(ref)
			}
		}},
		{"a lock is not reserved for a polling waiter until it has been passed MaxPassed times", suite.Long(func(e *env) {
			l := e.Acquire(e.A, refA)
			q := polling(e, e.A)
			q.wait(refA)
			for n := range driver.MaxPassed {
				e.Release(e.A, l)
				l = e.Acquire(e.A, refA)
				q.wait(refA)
				if q.Place.Passed != n+1 {
					e.Fatalf("passed %d times, told of %d", n+1, q.Place.Passed)
				}
			}
			e.Release(e.A, l)
			q.wantReserved(refA)
			q.acquire(refA)
		})},
		{"a waiter that never polls again costs those behind it a turn", suite.Long(func(e *env) {
			l := e.Acquire(e.A, refA)
			dead, q := polling(e, e.A), polling(e, e.B)
			dead.wait(refA)
			q.wait(refA)
			for range driver.MaxPassed {
				e.Release(e.A, l)
				l = e.Acquire(e.A, refA)
			}
			e.Release(e.A, l)
			dead.wantReserved(refA)
			endTurn(e, refA)
			e.Release(e.B, q.acquire(refA))
			e.WantFree(refA)
		})},
		{"the Next of the same owner may pass the other waiters MaxPassed times", suite.Long(func(e *env) {
			l := e.Acquire(e.A, refA)
			q := notified(e, e.B)
			q.wait(refA)
			for range driver.MaxPassed {
				next := notified(e, e.A)
				releaseWithNext(e, next, l)
				next.wantReserved(refA)
				l = next.acquire(refA)
				q.wait(refA)
			}
			next, late := notified(e, e.A), notified(e, e.B)
			releaseWithNext(e, next, l)
			q.wantReserved(refA)
			l = q.acquire(refA)
			late.wait(refA)
			e.Release(e.B, l)
			next.wantReserved(refA)
		})},
		{"a Next that already waits keeps its place", func(e *env) {
			l := e.Acquire(e.A, refA)
			first, second := notified(e, e.A), notified(e, e.B)
			first.wait(refA)
			second.wait(refA)
			releaseWithNext(e, first, l)
			second.wait(refA)
			l = first.acquire(refA)
			if second.wait(refA); second.Place.Passed != 0 {
				e.Errorf("passed %d times, by one that came before", second.Place.Passed)
			}
			e.Release(e.A, l)
			second.wantReserved(refA)
		}},
		{"a preparation that takes a row passes all its waiters", suite.Long(func(e *env) {
			l := e.Acquire(e.A, refA)
			q := polling(e, e.B)
			q.wait(refA)
			e.Release(e.A, l)
			for range driver.MaxPassed {
				e.Drop(e.A, e.Prepare(e.A, suite.Move(refA, "", v1)))
			}
			q.wantReserved(refA)
			_, err := e.TryPrepare(e.A, suite.Move(refA, "", v1))
			e.WantHolders(err, refA)
		})},
		{"a lock without waiters is free after its release, even with a Next", func(e *env) {
			releaseWithNext(e, notified(e, e.A), e.Acquire(e.A, refA))
			e.WantFree(refA)
		}},
		{"a Next that does not come loses the lock to a waiter when its turn is over", func(e *env) {
			l := e.Acquire(e.A, refA)
			q, next := notified(e, e.B), notified(e, e.A)
			q.wait(refA)
			releaseWithNext(e, next, l)
			endTurn(e, refA)
			e.Release(e.B, q.acquire(refA))
			e.WantFree(refA)
		}},
		{"a waiter knows how many are ahead of it", func(e *env) {
			e.Acquire(e.A, refA)
			for n := range 3 {
				q := notified(e, e.B)
				q.wait(refA)
				q.wait(refA)
				if q.Place.Ahead != n {
					e.Errorf("%d are ahead, told of %d", n, q.Place.Ahead)
				}
			}
		}},
		{"a lock is listed with the number of its waiters", func(e *env) {
			want := func(when string, n int) {
				e.Helper()
				got := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project, Ref: refA}})
				if len(got) != 1 || got[0].Waiters != n {
					e.Errorf("%s: got %+v, want %d waiters", when, got, n)
				}
			}
			l := e.Acquire(e.A, refA)
			e.Acquire(e.A, refB)
			want("nobody waits", 0)
			first, second := notified(e, e.A), polling(e, e.B)
			first.wait(refA)
			second.wait(refA)
			second.wait(refA)
			want("two wait", 2)
			e.Release(e.A, l)
			want("it is reserved for the first", 1)
		}},
		{"a waiter that repeats its request without its place, after a lost reply, keeps its ticket", func(e *env) {
			l := e.Acquire(e.A, refA)
			first, second := notified(e, e.A), notified(e, e.B)
			first.wait(refA)
			second.wait(refA)
			place := first.Place
			first.Place = driver.Place{}
			first.wait(refA)
			if first.Place != place || place.Ticket.IsZero() {
				e.Errorf("the place is %+v, was %+v", first.Place, place)
			}
			e.Release(e.A, l)
			first.wantReserved(refA)
		}},
		{"a waiter returns with its place if its queue was lost", func(e *env) {
			l := e.Acquire(e.A, refA)
			q := polling(e, e.B)
			q.wait(refA)
			e.Release(e.A, l)
			e.Acquire(e.A, refA)
			q.wait(refA)
			place := q.Place
			e.DB.Exec(e, fmt.Sprintf("DELETE FROM locks WHERE project = '%s'", e.Project))
			l = e.Acquire(e.A, refA)
			other := notified(e, e.A)
			other.wait(refA)
			q.wait(refA)
			if q.Place != place || place.Passed != 1 {
				e.Errorf("the place is %+v, was %+v", q.Place, place)
			}
			q.Channel = other.Channel
			q.wait(refA)
			e.Release(e.A, l)
			q.wantReserved(refA)
		}},
		{"a waiter's latest channel and turn apply", func(e *env) {
			l := e.Acquire(e.A, refA)
			q := polling(e, e.A)
			q.wait(refA)
			q.Channel, q.Turn = notified(e, e.A).Channel, turn/2
			q.wait(refA)
			e.Release(e.A, l)
			q.wantReserved(refA)
		}},
		{"a request without a waiter gets no place", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Refused(e.B, refA)
			e.Release(e.A, l)
			e.WantFree(refA)
			l = e.Acquire(e.A, refA)
			q := notified(e, e.B)
			q.wait(refA)
			e.Refused(e.A, refA)
			e.Release(e.A, l)
			e.Refused(e.A, refA)
			e.Release(e.B, q.acquire(refA))
			e.WantFree(refA)
		}},
		{"a waiter that has its locks leaves the queues", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			q := notified(e, e.B)
			q.wait(refA, refB)
			e.Age(l, stale)
			got := q.acquire(refA, refB)
			if len(got.Reclaimed) != 2 {
				e.Errorf("reclaimed are %+v", got.Reclaimed)
			}
			e.Release(e.B, got)
			e.WantFree(refA, refB)
		}},
		{"a waiter that gives up leaves its queues, and its reservations go to the next", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			first, second, third := notified(e, e.A), notified(e, e.B), notified(e, e.B)
			for _, q := range []*waiter{first, second, third} {
				q.wait(refA, refB)
			}
			second.giveUp(refA, refB)
			e.WantLock(l, refA, refB)
			e.Release(e.A, l)
			first.giveUp(refA, refB)
			third.wantReserved(refA)
			third.giveUp(refA, refB)
			e.WantFree(refA, refB)
			third.giveUp(refA, refB)
		}},
		{"giving up does not affect other waiters", func(e *env) {
			l := e.Acquire(e.A, refA)
			q := notified(e, e.B)
			q.wait(refA)
			notified(e, e.B).giveUp(refA)
			notified(e, e.B).giveUp(refC)
			e.WantLock(l, refA)
			e.Release(e.A, l)
			notified(e, e.B).giveUp(refA)
			q.wantReserved(refA)
		}},
		{"beats, and updates that keep the lock, leave its queue", func(e *env) {
			l := e.Acquire(e.A, refA)
			q := notified(e, e.B)
			q.wait(refA)
			e.Beat(e.A, l.IDs()...)
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Fence(), Updates: []driver.Update{suite.Move(refA, "", v1)}}))
			e.Beat(e.A, l.IDs()...)
			e.Release(e.A, l)
			q.wantReserved(refA)
		}},
		{"an acquisition that is repeated after a lost reply is granted once", func(e *env) {
			l := e.Acquire(e.A, refA)
			q, other := notified(e, e.A), notified(e, e.B)
			q.wait(refA)
			other.wait(refA)
			e.Release(e.A, l)
			r := e.AcquireRequest(e.A, refA)
			r.Waiter = q.Waiter
			first, err := e.SendAcquire(e.A, r)
			e.Must(err)
			again, err := e.SendAcquire(e.A, r)
			e.Must(err)
			if first.Token != again.Token || first.Token <= l.Token {
				e.Errorf("tokens %d and %d, after %d", first.Token, again.Token, l.Token)
			}
			e.Release(e.A, first)
			other.wantReserved(refA)
		}},
		{"the remaining locks of an acquisition whose repetition is refused go to the waiters", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			q := notified(e, e.B)
			q.wait(refA)
			e.Purge(e.B, suite.Standing(l.IDs()[1])...)
			e.Acquire(e.B, refB)
			_, err := e.SendAcquire(e.A, l.AcquireRequest)
			e.WantHolders(err, refB)
			q.wantReserved(refA)
			e.Release(e.B, q.acquire(refA))
			e.WantFree(refA)
		}},
		{"a queue may have many waiters", suite.Long(func(e *env) {
			l := e.Acquire(e.A, refA)
			var all []*waiter
			for range 20 {
				q := notified(e, e.A)
				q.wait(refA)
				all = append(all, q)
			}
			e.Release(e.A, l)
			for _, q := range all {
				e.Release(e.A, q.acquire(refA))
			}
			e.WantFree(refA)
		})},
	}
}

// handOvers returns, by name, the ways to end a lock so that it goes to a waiter. Each takes the
// lock on a ref, and returns the function that ends it.
func handOvers(e *env) map[string]func(ref string) (over func()) {
	all := map[string]func(ref string) func(){
		"release": func(ref string) func() {
			l := e.Acquire(e.A, ref)
			return func() { e.Release(e.A, l) }
		},
		"release-of-several": func(ref string) func() {
			l := e.Acquire(e.A, ref, ref+"-and-more")
			return func() { e.Release(e.A, l) }
		},
		"update": func(ref string) func() {
			l := e.Acquire(e.A, ref)
			return func() {
				e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Releasing(), Updates: []driver.Update{suite.Move(ref, "", v1)}}))
			}
		},
		"update-of-another": func(ref string) func() {
			l := e.Acquire(e.A, ref)
			return func() {
				e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Releasing(), Updates: []driver.Update{suite.Move(ref+"-and-more", "", v1)}}))
			}
		},
		"abandonment": func(ref string) func() {
			l := e.Acquire(e.A, ref)
			return func() { e.Abandon(e.A, l.AcquireRequest) }
		},
		"purge": func(ref string) func() {
			l := e.Acquire(e.A, ref)
			return func() { e.Purge(e.B, suite.Standing(l.IDs()...)...) }
		},
		"finish": func(ref string) func() {
			l := e.Prepare(e.A, suite.Move(ref, "", v1))
			return func() { e.Must(e.Finish(e.A, l)) }
		},
		"finish-without-a-move": func(ref string) func() {
			l := e.Prepare(e.A, suite.Move(ref, "", v1))
			return func() { e.Drop(e.A, l) }
		},
		"resolution-that-keeps-the-old": func(ref string) func() {
			l := e.Prepare(e.A, suite.Move(ref, "", v1))
			return func() { e.Resolve(e.B, driver.KeepOld, l.IDs()...) }
		},
		"resolution-that-takes-the-new": func(ref string) func() {
			l := e.Prepare(e.A, suite.Move(ref, "", v1))
			return func() { e.Resolve(e.B, driver.TakeNew, l.IDs()...) }
		},
		"revocation": func(ref string) func() {
			l := e.Prepare(e.A, suite.Move(ref, "", v1), suite.Move(ref+"-and-more", "", v1))
			return func() { e.Revoke(e.A, l.PrepareRequest) }
		},
	}
	for what, update := range passingUpdates(e) {
		all[what+"-past-a-stale-lock"] = func(ref string) func() {
			l := e.Acquire(e.A, ref)
			return func() {
				e.Age(l, stale)
				e.Must(update(ref))
			}
		}
	}
	return all
}

// passingUpdates returns, by name, updates that no lock on ref fences. Each moves ref for the first
// time.
func passingUpdates(e *env) map[string]func(ref string) error {
	return map[string]func(ref string) error{
		"update": func(ref string) error { return e.Update(e.B, suite.Move(ref, "", v1)) },
		"update-of-several": func(ref string) error {
			return e.Update(e.B, suite.Move(ref, "", v1), suite.Move(ref+"-and-more", "", v1))
		},
		"update-of-many": func(ref string) error {
			updates := []driver.Update{suite.Move(ref, "", v1)}
			for n := range 300 {
				updates = append(updates, suite.Move(fmt.Sprint(ref, "-", n), "", v1))
			}
			return e.Update(e.B, updates...)
		},
		"update-under-another-lock": func(ref string) error {
			l := e.Acquire(e.B, ref+"-fence")
			return e.SendUpdate(e.B, driver.UpdateRequest{Fence: l.Fence(), Updates: []driver.Update{suite.Move(ref, "", v1)}})
		},
		"update-that-releases-another-lock": func(ref string) error {
			l := e.Acquire(e.B, ref+"-fence")
			return e.SendUpdate(e.B, driver.UpdateRequest{Fence: l.Releasing(), Updates: []driver.Update{suite.Move(ref, "", v1)}})
		},
	}
}

// turn is a waiter's turn: long enough that none is over before the row ends.
const turn = 20 * time.Second

// A waiter waits for locks. Its Place is updated by each refusal.
type waiter struct {
	process
	e *env
	driver.Waiter
}

// notified returns a waiter of p that has a channel, so that locks are reserved for it.
func notified(e *env, p process) *waiter {
	return &waiter{p, e, driver.Waiter{ID: rand.Text(), Channel: rand.Text(), Turn: turn}}
}

// polling returns a waiter of p that has no channel: it polls.
func polling(e *env, p process) *waiter {
	return &waiter{p, e, driver.Waiter{ID: rand.Text(), Turn: turn}}
}

func (q *waiter) tryAcquire(refs ...string) (lock, error) {
	r := q.e.AcquireRequest(q.process, refs...)
	r.Waiter = q.Waiter
	l, err := q.e.SendAcquire(q.process, r)
	if err != nil {
		q.Place = l.Place
	}
	return l, err
}

// refused checks that q is refused the locks on refs, by exactly the locks on those of by.
func (q *waiter) refused(refs []string, by ...string) []driver.LockInfo {
	q.e.Helper()
	_, err := q.tryAcquire(refs...)
	return q.e.WantHolders(err, by...)
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
	q.e.Must(err)
	return l
}

// giveUp takes q out of the queues of refs.
func (q *waiter) giveUp(refs ...string) {
	q.e.Helper()
	q.e.Must(suite.Retry(func() error {
		return q.Abandon(q.e.Context(), driver.AbandonRequest{Project: q.e.Project, Refs: refs, Owner: q.Owner, Waiter: q.ID})
	}))
}

// wantReserved checks that the lock on ref is reserved for q, and that nobody else gets it.
func (q *waiter) wantReserved(ref string) {
	q.e.Helper()
	row := q.e.Row(ref)
	if left := turnLeft(q.e, ref); row.Owner != driver.ReservedFor(q.Owner) || left <= 0 || left > q.Turn {
		q.e.Errorf("the row of %s is %+v, for %v", ref, row, left)
	}
	if h := q.e.Refused(q.e.B, ref); len(h) != 1 || !h[0].Reserved() {
		q.e.Errorf("refused by %+v", h)
	}
}

// turnLeft returns how long the lock on ref is still reserved.
func turnLeft(e *env, ref string) time.Duration {
	e.Helper()
	row := e.Row(ref)
	if !row.Reserved() {
		e.Errorf("the lock on %s is not kept: %+v", ref, row)
	}
	return row.StaleAfter - e.Now(e.B).Sub(row.Heartbeat)
}

// endTurn makes the reservation of the lock on ref so old that the turn is over.
func endTurn(e *env, ref string) {
	e.Helper()
	e.DB.Age(e, e.Project, ref, turn+time.Second)
}

// releaseWithNext releases l, with a waiter that is to get it next.
func releaseWithNext(e *env, next *waiter, l lock) {
	e.Helper()
	got, err := e.SendRelease(next.process, driver.ReleaseRequest{Project: l.Project, Refs: l.Refs(), Owner: l.Owner, Token: l.Token, Next: next.Waiter})
	e.Must(err)
	if len(got.Missing) != 0 {
		e.Errorf("%q were missing", got.Missing)
	}
}
