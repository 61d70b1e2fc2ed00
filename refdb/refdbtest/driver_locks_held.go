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
			again, err := e.sendAcquire(e.a, l.AcquireRequest)
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
				r := e.acquireRequest(e.a, refA, refB)
				r.Project += p
				l, err := e.sendAcquire(e.a, r)
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
			names := manyNames(e.scale(1000))
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
			for i, names := range slices.Collect(slices.Chunk(manyNames(e.scale(1500)), e.scale(750))) {
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
			for _, n := range []int{2, e.scale(1000)} {
				names := manyNames(n)
				l := e.acquire(e.a, names...)
				e.age(l, 10*time.Minute)
				e.changeOwner(names[1])
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

func releaseRows() []row {
	return []row{
		{"a release frees the lock for anybody", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			if missing := e.release(e.a, l); len(missing) != 0 {
				e.Errorf("%q were missing", missing)
			}
			e.wantFree(refA, refB)
			e.acquire(e.b, refA, refB)
		}},
		{"a second release finds nothing, and leaves the next holder alone", func(e *env) {
			l := e.acquire(e.a, refA)
			e.release(e.a, l)
			next := e.acquire(e.b, refA)
			if missing := e.release(e.a, l); !slices.Equal(missing, []string{refA}) {
				e.Errorf("%q were missing", missing)
			}
			e.wantLock(next)
		}},
		{"rows that don't match are named in order, and the others are deleted", func(e *env) {
			l := e.acquire(e.a, "HEAD", refA, refB, refC, "refs/x")
			for _, ref := range []string{refC, refA} {
				e.db.Age(e, e.project, ref, stale)
			}
			e.must(e.update(e.b, move(refA, "", v1))) // ends the stale lock
			next := e.acquire(e.b, refC)              // reclaims it
			if missing := e.release(e.a, l); !slices.Equal(missing, []string{refA, refC}) {
				e.Errorf("%q were missing", missing)
			}
			e.wantFree("HEAD", refA, refB, "refs/x")
			e.wantLock(next)
		}},
		{"a release names its refs, and leaves the rest of the lock", func(e *env) {
			l := e.acquire(e.a, refA, refB, refC)
			if missing := e.release(e.a, l, refA, refC); len(missing) != 0 {
				e.Errorf("%q were missing", missing)
			}
			e.wantFree(refA, refC)
			e.wantLock(l, refB)
		}},
		{"a release in one project leaves the same refs of its neighbours alone", func(e *env) {
			l := e.acquire(e.a, refA)
			for _, p := range []string{"/b", "_", "A"} {
				other := l
				other.Project += p
				if missing := e.release(e.a, other); !slices.Equal(missing, []string{refA}) {
					e.Errorf("project %q: %q were missing", other.Project, missing)
				}
			}
			e.wantLock(l)
		}},
		{"P2 another token releases nothing", func(e *env) {
			l := e.acquire(e.a, refA)
			for _, token := range []refdb.Token{l.Token - 1, l.Token + 1, 0} {
				other := l
				other.Token = token
				if missing := e.release(e.a, other); !slices.Equal(missing, []string{refA}) {
					e.Errorf("token %d released %d", token, l.Token)
				}
			}
			e.wantLock(l)
		}},
		{"P2 the right token releases nothing of another owner", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.changeOwner(refA)
			if missing := e.release(e.a, l); !slices.Equal(missing, []string{refA}) {
				e.Errorf("%q were missing", missing)
			}
			e.wantChangedOwner(l, refA)
			e.wantFree(refB)
			alone := e.acquire(e.a, refC)
			e.changeOwner(refC)
			if missing := e.release(e.a, alone); !slices.Equal(missing, []string{refC}) {
				e.Errorf("%q were missing", missing)
			}
			e.wantChangedOwner(alone, refC)
		}},
		{"P2 a lock that Gerrit's plugin has taken over is not released", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.db.TakeOver(e, e.project, refA, gerrit)
			if missing := e.release(e.a, l); !slices.Equal(missing, []string{refA}) {
				e.Errorf("%q were missing", missing)
			}
			e.wantGerrits(refA)
			e.wantFree(refB)
		}},
		{"a stale lock that nobody took is released by its holder", func(e *env) {
			l := e.acquire(e.a, refA)
			e.age(l, stale)
			if missing := e.release(e.a, l); len(missing) != 0 {
				e.Error("it was not")
			}
		}},
	}
}

// Operators end the locks of others by Purge.
func purgeRows() []row {
	return []row{
		{"a purge ends the locks of any owners, fresh or stale", func(e *env) {
			a, b := e.acquire(e.a, refA, refB), e.acquire(e.b, refC)
			e.db.Age(e, e.project, refA, stale)
			if got := e.purge(e.b, standing(slices.Concat(a.ids(), b.ids())...)...); !slices.Equal(got, []bool{true, true, true}) {
				e.Errorf("got %v", got)
			}
			e.wantFree(refA, refB, refC)
			if got := e.beat(e.a, a.ids()...); got[0] != refdb.BeatLost || got[1] != refdb.BeatLost {
				e.Errorf("the holder's beat says %v", got)
			}
		}},
		{"a purge of nothing is nothing", func(e *env) {
			if got := e.purge(e.a); len(got) != 0 {
				e.Errorf("got %v", got)
			}
		}},
		{"a second purge finds nothing, and leaves the next holder alone", func(e *env) {
			l := e.acquire(e.a, refA)
			e.purge(e.b, standing(l.ids()...)...)
			next := e.acquire(e.b, refA)
			if got := e.purge(e.b, standing(l.ids()...)...); got[0] {
				e.Error("it purged the next holder's")
			}
			e.wantLock(next)
		}},
		{"P2 another token purges nothing", func(e *env) {
			l := e.acquire(e.a, refA)
			for _, token := range []refdb.Token{l.Token - 1, l.Token + 1, 0} {
				id := l.ids()[0]
				id.Token = token
				if got := e.purge(e.b, standing(id)...); got[0] {
					e.Errorf("token %d purged %d", token, l.Token)
				}
			}
			e.wantLock(l)
		}},
		{"P2 the right token purges nothing of another owner", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			listed := []refdb.StandingLock{asListed(e.row(refA)), asListed(e.row(refB))}
			e.changeOwner(refA)
			for _, one := range []refdb.StandingLock{listed[0], standing(l.ids()[0])[0]} {
				if got := e.purge(e.b, one); got[0] {
					e.Errorf("%+v was purged", one)
				}
			}
			if got := e.purge(e.b, listed...); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("got %v", got)
			}
			e.wantChangedOwner(l, refA)
			e.wantFree(refB)
		}},
		{"what became of each row comes back in the order it was asked, over projects", func(e *env) {
			var asked []refdb.StandingLock
			var want []bool
			for i, p := range []string{"A", "", "_", "/b"} {
				r := e.acquireRequest([]process{e.a, e.b}[i/2], refA, refB)
				r.Project += p
				l, err := e.sendAcquire(e.a, r)
				e.must(err)
				rows := standing(l.ids()...)
				slices.Reverse(rows)
				if i%2 == 0 {
					rows[0].Token++
				}
				asked = append(asked, rows...)
				want = append(want, i%2 != 0, true)
			}
			if got := e.purge(e.b, asked...); !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			for i, l := range asked {
				if _, ok := e.db.RowLock(e, l.Project, l.Ref); ok == want[i] {
					e.Errorf("the row of %+v stands: %v", l, ok)
				}
			}
		}},
		{"on condition of the heartbeat, a purge leaves a lock that has beaten since", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.age(l, stale)
			seen := []refdb.StandingLock{asListed(e.row(refA)), asListed(e.row(refB))}
			e.beat(e.a, l.ids()[0])
			if got := e.purge(e.b, seen...); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("got %v", got)
			}
			e.wantLock(l, refA)
			e.wantFree(refB)
		}},
		{"the heartbeat that a list of locks gives is the condition that matches", func(e *env) {
			e.acquire(e.a, refA)
			l := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}})[0]
			if got := e.purge(e.b, asListed(l)); !got[0] {
				e.Errorf("%+v was not purged", l)
			}
		}},
		{"the heartbeat alone does not do: the token counts too", func(e *env) {
			l := e.acquire(e.a, refA)
			other := asListed(e.row(refA))
			other.Token++
			if got := e.purge(e.b, other); got[0] {
				e.Error("another token purged it")
			}
			e.wantLock(l)
		}},
		{"a lock without token and heartbeat is named by token 0", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit})
			nameless := refdb.LockID{Project: e.project, Ref: refA, Owner: gerrit}
			if got := e.purge(e.a, standing(nameless)...); got[0] {
				e.Fatal("token 0 purged a lock that has a token")
			}
			e.db.Exec(e, "UPDATE locks SET heartbeat = NULL, token = NULL WHERE project = '"+e.project+"'")
			l := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}})[0]
			if got := e.purge(e.a, asListed(l)); !got[0] {
				e.Errorf("%+v was not purged", l)
			}
			e.wantFree(refA)
		}},
		{"a lock of Gerrit's is purged as any other", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit})
			l := e.row(refA)
			if got := e.purge(e.a, standing(l.ID())...); !got[0] {
				e.Errorf("%+v was not purged", l)
			}
		}},
		{"a marker is purged as a lock is", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: marker(e.project, 1), Ref: refA, Owner: gerrit})
			for _, m := range e.locks(refdb.LockQuery{Markers: true}) {
				if m.Project != marker(e.project, 1) {
					continue
				}
				if got := e.purge(e.a, asListed(m)); !got[0] {
					e.Errorf("%+v was not purged", m)
				}
				return
			}
			e.Error("the marker is not listed")
		}},
		{"a lock that stands for an intent is not purged, and keeps nothing else from it", func(e *env) {
			l, other := e.prepare(e.a, move(refA, "", v1)), e.acquire(e.a, refB)
			e.age(l, 50*years)
			for _, intent := range []refdb.StandingLock{standing(l.ids()...)[0], asListed(e.row(refA))} {
				if got := e.purge(e.b, intent); got[0] {
					e.Errorf("%+v was purged", intent)
				}
			}
			if got := e.purge(e.b, standing(l.ids()[0], other.ids()[0])...); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("got %v", got)
			}
			e.wantIntended(l)
			e.wantFree(refB)
		}},
	}
}
