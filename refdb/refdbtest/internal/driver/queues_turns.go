package driver

import (
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// A reservation is not a lock, and it is over after the waiter's turn.
func keptRows() []row {
	return []row{
		{"a waiter that does not come loses its reservation when its turn is over", func(e *env) {
			l := e.Acquire(e.A, refA)
			first, second := notified(e, e.A), notified(e, e.B)
			first.wait(refA)
			second.wait(refA)
			e.Release(e.A, l)
			endTurn(e, refA)
			l = second.acquire(refA)
			if len(l.Reclaimed) != 0 {
				e.Errorf("%+v was no lock", l.Reclaimed)
			}
			third := notified(e, e.B)
			third.wait(refA)
			first.wait(refA)
			e.Release(e.B, l)
			first.wantReserved(refA) // because its ticket is earlier
		}},
		{"a reservation that Gerrit's plugin takes over becomes a lock like any other", func(e *env) {
			for what, waiter := range map[string]*waiter{"for-somebody": notified(e, e.A), "for-nobody": polling(e, e.A)} {
				ref := "refs/heads/" + what
				l := e.Acquire(e.A, ref)
				waiter.wait(ref)
				e.Release(e.A, l)
				endTurn(e, ref)
				e.DB.TakeOver(e, e.Project, ref, gerrit)
				e.DB.Age(e, e.Project, ref, time.Second)
				if h := e.Refused(e.B, ref); h[0].Owner != gerrit || h[0].StaleAfter != driver.DefaultStaleAfter {
					e.Errorf("refused by %+v", h)
				}
				e.WantHolders(e.Update(e.B, suite.Move(ref, "", v1)), ref)
			}
		}},
		{"a reservation is purged with its queue, and its waiters return with their places", func(e *env) {
			for what, q := range map[string]*waiter{"for-somebody": notified(e, e.A), "for-nobody": polling(e, e.A)} {
				ref := "refs/heads/" + what
				l := e.Acquire(e.A, ref)
				other := notified(e, e.B)
				q.wait(ref)
				other.wait(ref)
				e.Release(e.A, l)
				endTurn(e, ref)
				if got := e.Purge(e.B, suite.AsListed(e.Row(ref))); !got[0] {
					e.Error("it was not purged")
				}
				e.WantFree(ref)
				l = e.Acquire(e.A, ref)
				other.wait(ref)
				q.wait(ref)
				if q.Place.Ahead != 0 {
					e.Errorf("%d are ahead of the first", q.Place.Ahead)
				}
				e.Release(e.A, l)
			}
		}},
		{"a waiter that leaves a row reserved for nobody leaves no row", func(e *env) {
			l := e.Acquire(e.A, refA)
			q, r := polling(e, e.B), polling(e, e.B)
			q.wait(refA)
			r.wait(refA)
			e.Release(e.A, l)
			q.giveUp(refA)
			e.Row(refA)
			r.giveUp(refA)
			e.WantFree(refA)
		}},
		{"a reservation whose turn is over is free if the next waiter polls", func(e *env) {
			l := e.Acquire(e.A, refA)
			first, second := notified(e, e.A), polling(e, e.B)
			first.wait(refA)
			second.wait(refA)
			e.Release(e.A, l)
			endTurn(e, refA)
			e.Acquire(e.A, refA)
		}},
		{"the next waiter's turn follows one that is over, whichever process asks", func(e *env) {
			a := e.Acquire(e.A, refA)
			first, second := notified(e, e.A), notified(e, e.B)
			first.wait(refA)
			second.wait(refA)
			e.Release(e.A, a)
			endTurn(e, refA)
			e.Refused(e.A, refA)
			second.wantReserved(refA)
			third := notified(e, e.A)
			third.wait(refA)
			endTurn(e, refA)
			e.Release(e.A, first.acquire(refA)) // it came before the third
			third.wantReserved(refA)
		}},
		{"an update that passes an expired reservation gives the lock to the next waiter", func(e *env) {
			for what, update := range passingUpdates(e) {
				ref := "refs/heads/" + what
				l := e.Acquire(e.A, ref)
				first, second, third := notified(e, e.A), notified(e, e.B), notified(e, e.A)
				for _, q := range []*waiter{first, second, third} {
					q.wait(ref)
				}
				e.Release(e.A, l)
				endTurn(e, ref)
				e.Must(update(ref))
				second.wantReserved(ref)
				e.Release(e.B, second.acquire(ref))
				third.wantReserved(ref)
			}
		}},
		{"P13 an update that passes a row reserved for nobody leaves its queue", suite.Long(func(e *env) {
			for what, update := range passingUpdates(e) {
				ref := "refs/heads/" + what
				l := e.Acquire(e.A, ref)
				q := polling(e, e.B)
				q.wait(ref)
				e.Release(e.A, l)
				e.Must(update(ref))
				from, to := v1, v2
				for range driver.MaxPassed {
					l = e.Acquire(e.A, ref)
					e.Release(e.A, l)
					if e.Row(ref).Idle() {
						e.Must(e.Update(e.B, suite.Move(ref, from, to)))
						from, to = to, from
					}
				}
				q.wantReserved(ref)
				e.Release(e.B, q.acquire(ref))
				e.WantFree(ref)
			}
		})},
		{"P13 an update that passes an expired reservation leaves the queue of polling waiters", func(e *env) {
			l := e.Acquire(e.A, refA)
			first, second := notified(e, e.A), polling(e, e.B)
			first.wait(refA)
			second.wait(refA)
			e.Release(e.A, l)
			endTurn(e, refA)
			e.Must(e.Update(e.B, suite.Move(refA, "", v1)))
			for range driver.MaxPassed {
				e.Release(e.A, e.Acquire(e.A, refA))
			}
			second.wantReserved(refA)
		}},
		{"a reservation does not match requests of the last holder", func(e *env) {
			l := e.Acquire(e.A, refA)
			q := notified(e, e.A) // has the owner of l
			q.wait(refA)
			e.Release(e.A, l)
			if missing := e.Release(e.A, l); !slices.Equal(missing, []string{refA}) {
				e.Errorf("missing at the second release: %q", missing)
			}
			if got := e.Beat(e.A, l.IDs()...); got[0] != driver.BeatLost {
				e.Errorf("the beat says %v", got)
			}
			e.WantLost(e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Fence(), Updates: []driver.Update{suite.Move(refA, "", v1)}}), refA)
			if got := e.Purge(e.A, suite.Standing(l.IDs()...)...); got[0] {
				e.Error("it was purged as the lock before")
			}
			e.Abandon(e.A, l.AcquireRequest)
			q.wantReserved(refA)
			q.acquire(refA)
		}},
		{"a reservation refuses others and can be purged like a fresh lock", func(e *env) {
			l := e.Acquire(e.A, refA)
			q := notified(e, e.A)
			q.wait(refA)
			e.Release(e.A, l)
			e.WantHolders(e.Update(e.B, suite.Move(refA, "", v1)), refA)
			_, err := e.TryPrepare(e.B, suite.Move(refA, "", v1))
			e.WantHolders(err, refA)
			_, err = e.B.Remove(e.Context(), driver.RemoveRequest{Project: e.Project, Limit: 10})
			e.WantHolders(err, refA)
			page, err := e.B.Locks(e.Context(), driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project}, Limit: 10})
			e.Must(err)
			if len(page.Locks) != 1 || !page.Locks[0].Reserved() {
				e.Fatalf("listed are %+v", page.Locks)
			}
			if got := e.Purge(e.B, suite.AsListed(page.Locks[0])); !got[0] {
				e.Error("it was not purged")
			}
			e.Must(e.Update(e.B, suite.Move(refA, "", v1)))
		}},
		{"an unused reservation refuses no request once its turn is over", func(e *env) {
			for what, take := range map[string]func(ref string){
				"update": func(ref string) {
					e.Must(e.Update(e.B, suite.Move(ref, "", v1)))
					e.WantFree(ref) // nobody else waits
				},
				"acquire": func(ref string) { e.Acquire(e.B, ref) },
				"prepare": func(ref string) {
					if p := e.Prepare(e.B, suite.Move(ref, "", v1)); len(p.Reclaimed) != 0 {
						e.Errorf("%+v was no lock", p.Reclaimed)
					}
				},
			} {
				ref := "refs/heads/" + what
				l := e.Acquire(e.A, ref)
				notified(e, e.A).wait(ref)
				e.Release(e.A, l)
				endTurn(e, ref)
				take(ref)
			}
		}},
		{"an unused reservation is named by no refusal once its turn is over", func(e *env) {
			l := e.Acquire(e.A, refA)
			notified(e, e.A).wait(refA)
			e.Release(e.A, l)
			endTurn(e, refA)
			e.Acquire(e.A, refB)
			e.WantHolders(e.Update(e.B, suite.Move(refA, "", v1), suite.Move(refB, "", v1)), refB)
			_, err := e.TryAcquire(e.B, refA, refB)
			e.WantHolders(err, refB)
			_, err = e.TryPrepare(e.B, suite.Move(refA, "", v1), suite.Move(refB, "", v1))
			e.WantHolders(err, refB)
			_, err = e.B.Remove(e.Context(), driver.RemoveRequest{Project: e.Project, Limit: 10})
			e.WantHolders(err, refB)
		}},
		{"the queue of a stale lock stays when the lock is taken over", func(e *env) {
			for what, take := range map[string]func(ref string) (over func()){
				"lock": func(ref string) func() {
					l := e.Acquire(e.B, ref)
					return func() { e.Release(e.B, l) }
				},
				"intent": func(ref string) func() {
					l := e.Prepare(e.B, suite.Move(ref, "", v1))
					return func() { e.Must(e.Finish(e.B, l)) }
				},
			} {
				ref := "refs/heads/" + what
				l := e.Acquire(e.A, ref)
				q := notified(e, e.A)
				q.wait(ref)
				e.Age(l, stale)
				over := take(ref)
				over()
				q.wantReserved(ref)
			}
		}},
		{"turns may be a millisecond, and owners any string", suite.Long(func(e *env) {
			for _, owner := range []string{"", "a.b.c", "site/host:1 (waits)", "Ärger/" + fmt.Sprint(time.Hour)} {
				ref := fmt.Sprintf("refs/heads/%x", owner)
				p := process{Driver: e.A.Driver, Owner: owner}
				if owner == "" {
					p.Owner = "."
				}
				l := e.Acquire(e.B, ref)
				q := notified(e, p)
				q.wait(ref)
				e.Release(e.B, l)
				q.wantReserved(ref)
				e.Release(p, q.acquire(ref))
				e.WantFree(ref)
			}
			l := e.Acquire(e.B, refA)
			q := notified(e, e.A)
			q.Turn = time.Millisecond
			q.wait(refA)
			e.Release(e.B, l)
			e.Eventually("the end of the turn", func() bool { return e.Update(e.B, suite.Move(refA, "", v1)) == nil })
		})},
	}
}

// A waiter for several refs gets all of them in its turn, and keeps none of them from others for
// long.
func severalRefsRows() []row {
	ab := []string{refA, refB}
	return []row{
		{"all queues are in the order of the first refusals", func(e *env) {
			a := e.Acquire(e.A, refA)
			first, second, third := notified(e, e.A), notified(e, e.B), notified(e, e.B)
			first.wait(refA)
			b := e.Acquire(e.A, refB)
			second.wait(refB)
			third.wait(refB)
			first.wait(refA, refB)
			e.Release(e.A, b)
			first.wantReserved(refB)
			first.refused(ab, refA) // so B goes to the next waiter
			second.wantReserved(refB)
			e.Release(e.B, second.acquire(refB))
			e.Release(e.A, a)
			l := first.acquire(refA, refB)
			third.wait(refB)
			e.Release(e.A, l)
			third.wantReserved(refB)
			e.WantFree(refA)
		}},
		{"a waiter for several refs yields while another lock refuses it, MaxPassed times; then all refs are reserved for it", suite.Long(func(e *env) {
			a, b := e.Acquire(e.A, refA), e.Acquire(e.A, refB)
			q := notified(e, e.B)
			q.wait(refA, refB)
			for n := 0; n < driver.MaxPassed; n += 2 {
				other := notified(e, e.A)
				other.wait(refA)
				e.Release(e.A, a)
				q.wantReserved(refA)
				q.refused(ab, refB) // to yield counts as being passed
				other.wantReserved(refA)
				a = other.acquire(refA) // this counts too
				q.refused(ab, refA, refB)
				if q.Place.Passed != n+2 {
					e.Fatalf("passed %d times, told of %d", n+2, q.Place.Passed)
				}
			}
			other := notified(e, e.A)
			other.wait(refA)
			e.Release(e.A, a)
			for range 2 {
				e.DB.Age(e, e.Project, refA, turn/2)
				before := e.Now(e.B).Truncate(time.Microsecond)
				q.refused(ab, refB) // its turn begins anew
				q.wantReserved(refA)
				row := e.Row(refA)
				if began := row.Heartbeat.Add(row.StaleAfter - turn); began.Before(before) {
					e.Errorf("its turn began at %v, before the request at %v", began, before)
				}
			}
			e.Release(e.A, b)
			e.Release(e.B, q.acquire(refA, refB))
			other.wantReserved(refA)
			e.WantFree(refB)
		})},
		{"a reservation that its waiter can't take and no other waiter needs is freed MaxPassed times", suite.Long(func(e *env) {
			a, b := e.Acquire(e.A, refA), e.Acquire(e.A, refB)
			q := notified(e, e.B)
			for n := range driver.MaxPassed {
				q.wait(refA, refB)
				e.Release(e.A, a)
				q.refused(ab, refB)
				e.WantFree(refA)
				if q.Place.Passed != n+1 {
					e.Fatalf("passed %d times, told of %d", n+1, q.Place.Passed)
				}
				a = e.Acquire(e.A, refA)
			}
			q.wait(refA, refB)
			e.Release(e.A, a)
			q.refused(ab, refB)
			q.wantReserved(refA)
			e.Release(e.A, b)
			q.acquire(refA, refB)
		})},
		{"a waiter for the end of an intent waits for nothing else, and keeps no reservation", func(e *env) {
			a, b := e.Acquire(e.A, refA), e.Prepare(e.A, suite.Move(refB, "", v1))
			q := notified(e, e.B)
			q.wait(refA, refB)
			e.Release(e.A, a)
			e.WantFree(refA)

			e.Drop(e.A, b)
			q.wantReserved(refB)
			a = e.Acquire(e.A, refA)
			q.refused(ab, refA)
			e.WantFree(refB)
			b = e.Prepare(e.A, suite.Move(refB, "", v1))
			e.Release(e.A, a)
			q.wantReserved(refA)
			other := notified(e, e.A)
			other.wait(refA)
			q.refused(ab, refB)
			other.wantReserved(refA)
			a = other.acquire(refA)
			q.refused(ab, refA, refB)
			if q.Place.Passed > 1 {
				e.Errorf("passed %d times", q.Place.Passed)
			}
			next, another := notified(e, e.A), notified(e, e.A)
			another.wait(refA)
			releaseWithNext(e, next, a)
			next.wantReserved(refA)
			e.Release(e.A, next.acquire(refA))
			another.wantReserved(refA)
			e.Release(e.A, another.acquire(refA))
			e.WantFree(refA)
			e.Must(e.Finish(e.A, b))
			q.acquire(refA, refB)
		}},
		{"two waiters for the end of an intent don't keep another ref between them", func(e *env) {
			a := e.Acquire(e.A, refA)
			q, r, other := notified(e, e.B), notified(e, e.B), notified(e, e.B)
			q.wait(refA)
			r.wait(refA)
			other.wait(refA)
			e.Prepare(e.A, suite.Move(refB, "", v1))
			e.Release(e.A, a)
			q.wantReserved(refA)
			q.refused(ab, refB)
			r.wantReserved(refA)
			r.refused(ab, refB)
			other.wantReserved(refA)
		}},
		{"two waiters for the same refs don't yield to each other for as long as a third holds one of them", suite.Long(func(e *env) {
			a, b := e.Acquire(e.A, refA), e.Acquire(e.A, refB)
			first, second := notified(e, e.B), notified(e, e.B)
			first.wait(refA, refB)
			second.wait(refA, refB)
			e.Release(e.A, a)
			for range driver.MaxPassed {
				first.refused(ab, refB)
				second.wantReserved(refA)
				second.refused(ab, refB)
			}
			for range 3 {
				first.wantReserved(refA)
				first.refused(ab, refB)
				second.wait(refA, refB)
			}
			e.Release(e.A, b)
			first.acquire(refA, refB)
		})},
		{"a reservation is yielded to later waiters, and only then to earlier ones", func(e *env) {
			a, _ := e.Acquire(e.A, refA), e.Acquire(e.A, refB)
			var all []*waiter
			for range 3 {
				q := notified(e, e.B)
				q.wait(refA)
				all = append(all, q)
			}
			e.Release(e.A, a)
			for _, next := range []int{1, 2, 0, 1} {
				all[(next+2)%3].refused(ab, refB)
				all[next].wantReserved(refA)
			}
		}},
		{"a reservation for a later waiter does not refuse an earlier one", func(e *env) {
			a, b := e.Acquire(e.A, refA), e.Acquire(e.A, refB)
			first, second := notified(e, e.A), notified(e, e.B)
			first.wait(refA)
			second.wait(refB)
			e.Release(e.A, b)
			second.wantReserved(refB)
			first.refused(ab, refA)
			e.Release(e.A, a)
			l := first.acquire(refA, refB)
			if len(l.Reclaimed) != 0 {
				e.Errorf("%+v were no locks", l.Reclaimed)
			}
			e.Release(e.A, l)
			second.wantReserved(refB) // it still waits, and did not have to ask again
			e.WantFree(refA)
		}},
		{"each of several locks has its own queue", func(e *env) {
			refs := []string{refA, refB, refC}
			l := e.Acquire(e.A, refs...)
			first, second := notified(e, e.A), notified(e, e.B)
			first.wait(refA)
			second.wait(refC)
			e.Release(e.A, l)
			first.wantReserved(refA)
			second.wantReserved(refC)
			e.WantFree(refB)
		}},
	}
}
