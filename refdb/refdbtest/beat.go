package refdbtest

import (
	"context"
	"errors"
	"fmt"
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
			if got := e.beat(e.a, l.ids()...); got[0] != beaten {
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
			e.release(e.a, gone)
			old := e.acquire(e.a, "HEAD")
			e.age(old, stale)
			e.acquire(e.b, "HEAD")
			asked := []refdb.LockID{l.ids()[1], gone.ids()[0], l.ids()[0], old.ids()[0]}
			if got, want := e.beat(e.a, asked...), []refdb.BeatResult{beaten, lost, beaten, lost}; !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			slices.Reverse(asked)
			if got, want := e.beat(e.a, asked...), []refdb.BeatResult{lost, beaten, lost, beaten}; !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
		}},
		{"locks of the same name in several projects are beaten each for itself", func(e *env) {
			var asked []refdb.LockID
			var want []refdb.BeatResult
			for i, p := range []string{"", "/b", "_", "A"} {
				r := e.request(e.a, refA, refB)
				r.Project += p
				l, err := e.send(e.a, r)
				e.must(err)
				e.age(l, 10*time.Minute)
				if i%2 == 0 {
					e.release(e.a, l, refA)
					want = append(want, lost, beaten)
				} else {
					want = append(want, beaten, beaten)
				}
				asked = append(asked, l.ids()...)
			}
			if got := e.beat(e.a, asked...); !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			for i, id := range asked {
				l, ok := e.db.RowLock(e, id.Project, id.Ref)
				if ok != (want[i] == beaten) || ok && e.now(e.a).Sub(l.Heartbeat) > 5*time.Minute {
					e.Errorf("the row of %+v is %+v (%v)", id, l, ok)
				}
			}
		}},
		{"only the rows that were named are beaten, not all of the owner's", func(e *env) {
			a, b := e.acquire(e.a, refA), e.acquire(e.a, refB)
			e.age(a, 10*time.Minute)
			e.age(b, 10*time.Minute)
			was := e.row(refB).Heartbeat
			e.beat(e.a, a.ids()...)
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
				if got := e.beat(e.a, l.ids()...); !slices.Equal(got, want) {
					e.Fatalf("got %v", got)
				}
				e.release(e.a, l, names[n])
				want[n] = lost
			}
			if got := e.beat(e.a, l.ids()...); !slices.Equal(got, want) {
				e.Fatalf("got %v", got)
			}
			if now := e.row(refA).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat of %s went from %v to %v", refA, was, now)
			}
		}},
		{"many locks of several owners are beaten together", func(e *env) {
			var asked []refdb.LockID
			for i, names := range slices.Collect(slices.Chunk(manyNames(e.most(1500)), e.most(750))) {
				asked = append(asked, e.acquire(process{e.a.Driver, fmt.Sprintf("owner/%d", i)}, names...).ids()...)
			}
			slices.Reverse(asked)
			if got := e.beat(e.a, asked...); !slices.Equal(got, slices.Repeat([]refdb.BeatResult{beaten}, len(asked))) {
				e.Errorf("got %v", got)
			}
		}},
		{"P2 another token is lost, larger or smaller, and its row not refreshed", func(e *env) {
			l := e.acquire(e.a, refA)
			e.age(l, 10*time.Minute)
			was := e.row(refA).Heartbeat
			for _, token := range []refdb.Token{l.Token - 1, l.Token + 1, 0} {
				id := l.ids()[0]
				id.Token = token
				if got := e.beat(e.a, id); got[0] != lost {
					e.Errorf("token %d of %d: got %v", token, l.Token, got)
				}
			}
			if now := e.row(refA).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat went from %v to %v", was, now)
			}
		}},
		{"P2 a row of another owner is lost, whatever its token, and not refreshed", func(e *env) {
			for _, n := range []int{2, e.most(1000)} {
				names := manyNames(n)
				l := e.acquire(e.a, names...)
				e.age(l, 10*time.Minute)
				e.disown(names[1])
				was := e.row(names[1]).Heartbeat
				want := slices.Repeat([]refdb.BeatResult{beaten}, n)
				want[1] = lost
				for range 2 {
					if got := e.beat(e.a, l.ids()...); !slices.Equal(got, want) {
						e.Fatalf("of %d rows: got %v", n, got)
					}
				}
				if now := e.row(names[1]).Heartbeat; !now.Equal(was) {
					e.Errorf("the heartbeat went from %v to %v", was, now)
				}
				e.db.Exec(e, "DELETE FROM locks WHERE project = '"+e.project+"'")
			}
		}},
		{"P2 a row that Gerrit's plugin has taken over is lost", func(e *env) {
			l := e.acquire(e.a, refA)
			e.db.TakeOver(e, e.project, refA, gerrit)
			e.db.Age(e, e.project, refA, time.Minute)
			was := e.row(refA).Heartbeat
			if got := e.beat(e.a, l.ids()...); got[0] != lost {
				e.Errorf("got %v", got)
			}
			if now := e.row(refA).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat went from %v to %v", was, now)
			}
		}},
		{"a lock that stands for an intent is not beaten", func(e *env) {
			l, other := e.prepare(e.a, move(refA, "", v1)), e.acquire(e.a, refB)
			e.age(l, 10*time.Minute)
			was := e.row(refA).Heartbeat
			if got, want := e.beat(e.a, l.ids()[0], other.ids()[0]), []refdb.BeatResult{lost, beaten}; !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			if now := e.row(refA).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat went from %v to %v", was, now)
			}
			e.wantIntended(l)
		}},
		{"P7 a beat that could not be sent is an error, never a loss", func(e *env) {
			l := e.acquire(e.a, refA)
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			got, err := e.a.Beat(ctx, l.ids())
			if !errors.Is(err, context.Canceled) || slices.Contains(got, lost) {
				e.Errorf("got %v, %v", got, err)
			}
		}},
	}
}
