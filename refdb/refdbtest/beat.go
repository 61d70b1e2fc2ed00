package refdbtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func beatRows() []row {
	const (
		lost   = refdb.BeatLost
		beaten = refdb.Beaten
	)
	return []row{
		{"a beat sets the heartbeat to the database's time, and nothing else", func(e *env) {
			l := e.acquire(e.a, refA)
			e.age(l, 10*time.Minute)
			before := e.now(e.b)
			if got := e.beat(e.a, l.held()...); got[0] != beaten {
				e.Fatalf("got %v", got)
			}
			if at := e.row(refA).Heartbeat; at.Before(before.Truncate(time.Microsecond)) || at.After(e.now(e.b)) {
				e.Errorf("the heartbeat is %v, the beat was after %v", at, before)
			}
			e.wantLock(l)
			if got := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}}); got[0].StaleAfter != staleAfter {
				e.Errorf("got %+v", got)
			}
			again, err := e.send(e.a, l.AcquireRequest)
			e.must(err)
			if again.Token != l.Token {
				e.Error("the lock lost its nonce")
			}
		}},
		{"a beat of nothing is nothing", func(e *env) {
			if got := e.beat(e.a); len(got) != 0 {
				e.Errorf("got %v", got)
			}
		}},
		{"what became of each row comes back in the order it was asked", func(e *env) {
			l, gone := e.acquire(e.a, refA, refC), e.acquire(e.a, refB)
			e.release(e.a, gone.held()...)
			old := e.acquire(e.a, "HEAD")
			e.age(old, stale)
			e.acquire(e.b, "HEAD")
			held := []refdb.Held{l.held()[1], gone.held()[0], l.held()[0], old.held()[0]}
			if got, want := e.beat(e.a, held...), []refdb.BeatResult{beaten, lost, beaten, lost}; !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			slices.Reverse(held)
			if got, want := e.beat(e.a, held...), []refdb.BeatResult{lost, beaten, lost, beaten}; !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
		}},
		{"locks of the same name in several projects are beaten each for itself", func(e *env) {
			var held []refdb.Held
			var want []refdb.BeatResult
			for i, p := range []string{"", "/b", "_", "A"} {
				r := e.request(e.a, refA, refB)
				r.Project += p
				l, err := e.send(e.a, r)
				e.must(err)
				e.age(l, 10*time.Minute)
				if i%2 == 0 {
					e.release(e.a, l.held()[0])
					want = append(want, lost, beaten)
				} else {
					want = append(want, beaten, beaten)
				}
				held = append(held, l.held()...)
			}
			if got := e.beat(e.a, held...); !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			for i, h := range held {
				l, ok := e.db.RowLock(e, h.Project, h.Ref)
				if ok != (want[i] == beaten) || ok && e.now(e.a).Sub(l.Heartbeat) > 5*time.Minute {
					e.Errorf("the row of %+v is %+v (%v)", h, l, ok)
				}
			}
		}},
		{"only the rows that were named are beaten, not all of the owner's", func(e *env) {
			a, b := e.acquire(e.a, refA), e.acquire(e.a, refB)
			e.age(a, 10*time.Minute)
			e.age(b, 10*time.Minute)
			was := e.row(refB).Heartbeat
			e.beat(e.a, a.held()...)
			if now := e.row(refB).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat of %s went from %v to %v", refB, was, now)
			}
		}},
		{"of many locks those that are lost are found, and those that were not named are not beaten", func(e *env) {
			names := manyNames(e.most(1000))
			l, other := e.acquire(e.a, names...), e.acquire(e.a, refA)
			e.age(other, 10*time.Minute)
			was := e.row(refA).Heartbeat
			want := slices.Repeat([]refdb.BeatResult{beaten}, len(names))
			for _, n := range []int{0, len(names) / 2} {
				if got := e.beat(e.a, l.held()...); !slices.Equal(got, want) {
					e.Fatalf("got %v", got)
				}
				e.release(e.a, l.held()[n])
				want[n] = lost
			}
			if got := e.beat(e.a, l.held()...); !slices.Equal(got, want) {
				e.Fatalf("got %v", got)
			}
			if now := e.row(refA).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat of %s went from %v to %v", refA, was, now)
			}
		}},
		{"P2 another token is lost, larger or smaller, and its row not refreshed", func(e *env) {
			l := e.acquire(e.a, refA)
			e.age(l, 10*time.Minute)
			was := e.row(refA).Heartbeat
			for _, token := range []refdb.Token{l.Token - 1, l.Token + 1, 0} {
				h := l.held()[0]
				h.Token = token
				if got := e.beat(e.a, h); got[0] != lost {
					e.Errorf("token %d of %d: got %v", token, l.Token, got)
				}
			}
			if now := e.row(refA).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat went from %v to %v", was, now)
			}
		}},
		{"a row named by its nonce matches by that, not by its token", func(e *env) {
			l := e.acquire(e.a, refA)
			mine := refdb.Held{Project: e.project, Ref: refA, Nonce: l.Nonce, Owner: l.Owner}
			other := refdb.Held{Project: e.project, Ref: refA, Nonce: l.Nonce + "x", Owner: l.Owner, Token: l.Token}
			if got := e.beat(e.a, mine); got[0] != beaten {
				e.Errorf("its own nonce: %v", got)
			}
			if got := e.beat(e.a, other); got[0] != lost {
				e.Errorf("another nonce: %v", got)
			}
		}},
		{"P2 a row that Gerrit's plugin has taken over is lost, named by its token or its nonce", func(e *env) {
			l := e.acquire(e.a, refA)
			e.db.TakeOver(e, e.project, refA, gerrit)
			e.db.Age(e, e.project, refA, time.Minute)
			was := e.row(refA).Heartbeat
			for _, rows := range [][]refdb.Held{l.held(), l.byNonce()} {
				if got := e.beat(e.a, rows...); got[0] != lost {
					e.Errorf("%+v: got %v", rows, got)
				}
			}
			if now := e.row(refA).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat went from %v to %v", was, now)
			}
		}},
		{"P7 a beat that could not be sent is an error, never a loss", func(e *env) {
			l := e.acquire(e.a, refA)
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			got, err := e.a.Beat(ctx, e.a.owner, l.held())
			if !errors.Is(err, context.Canceled) || slices.Contains(got, lost) {
				e.Errorf("got %v, %v", got, err)
			}
		}},
	}
}
