package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

func beatRows() []row {
	const (
		lost   = driver.BeatLost
		beaten = driver.BeatRenewed
	)
	return []row{
		{"a beat sets the heartbeat to the database's time, and nothing else", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Age(l, 10*time.Minute)
			before := e.Now(e.B)
			if got := e.Beat(e.A, l.IDs()...); got[0] != beaten {
				e.Fatalf("got %v", got)
			}
			if at := e.Row(refA).Heartbeat; at.Before(before.Truncate(time.Microsecond)) || at.After(e.Now(e.B)) {
				e.Errorf("the heartbeat is %v, the beat was after %v", at, before)
			}
			e.WantLock(l)
			if got := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project}}); got[0].StaleAfter != staleAfter {
				e.Errorf("got %+v", got)
			}
			again, err := e.SendAcquire(e.A, l.AcquireRequest)
			e.Must(err)
			if again.Token != l.Token {
				e.Error("the lock lost its nonce")
			}
		}},
		{"a beat of no locks does nothing", func(e *env) {
			if got := e.Beat(e.A); len(got) != 0 {
				e.Errorf("got %v", got)
			}
		}},
		{"the results are in the order of the request", func(e *env) {
			l, gone := e.Acquire(e.A, refA, refC), e.Acquire(e.A, refB)
			e.Release(e.A, gone)
			old := e.Acquire(e.A, "HEAD")
			e.Age(old, stale)
			e.Acquire(e.B, "HEAD")
			asked := []driver.LockID{l.IDs()[1], gone.IDs()[0], l.IDs()[0], old.IDs()[0]}
			if got, want := e.Beat(e.A, asked...), []driver.BeatResult{beaten, lost, beaten, lost}; !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			slices.Reverse(asked)
			if got, want := e.Beat(e.A, asked...), []driver.BeatResult{lost, beaten, lost, beaten}; !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
		}},
		{"locks of the same name in several projects are beaten each for itself", func(e *env) {
			var asked []driver.LockID
			var want []driver.BeatResult
			for i, p := range []string{"", "/b", "_", "A"} {
				r := e.AcquireRequest(e.A, refA, refB)
				r.Project += p
				l, err := e.SendAcquire(e.A, r)
				e.Must(err)
				e.Age(l, 10*time.Minute)
				if i%2 == 0 {
					e.Release(e.A, l, refA)
					want = append(want, lost, beaten)
				} else {
					want = append(want, beaten, beaten)
				}
				asked = append(asked, l.IDs()...)
			}
			if got := e.Beat(e.A, asked...); !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			for i, id := range asked {
				l, ok := e.DB.RowLock(e, id.Project, id.Ref)
				if ok != (want[i] == beaten) || ok && e.Now(e.A).Sub(l.Heartbeat) > 5*time.Minute {
					e.Errorf("the row of %+v is %+v (%v)", id, l, ok)
				}
			}
		}},
		{"only the named rows are beaten, not all rows of the owner", func(e *env) {
			a, b := e.Acquire(e.A, refA), e.Acquire(e.A, refB)
			e.Age(a, 10*time.Minute)
			e.Age(b, 10*time.Minute)
			was := e.Row(refB).Heartbeat
			e.Beat(e.A, a.IDs()...)
			if now := e.Row(refB).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat of %s went from %v to %v", refB, was, now)
			}
		}},
		{"lost locks are found among many, and locks that were not named are not beaten", func(e *env) {
			names := suite.ManyNames(e.Scale(1000))
			l, other := e.Acquire(e.A, names...), e.Acquire(e.A, refA)
			e.Age(other, 10*time.Minute)
			was := e.Row(refA).Heartbeat
			want := slices.Repeat([]driver.BeatResult{beaten}, len(names))
			for _, n := range []int{0, len(names) / 2} {
				if got := e.Beat(e.A, l.IDs()...); !slices.Equal(got, want) {
					e.Fatalf("got %v", got)
				}
				e.Release(e.A, l, names[n])
				want[n] = lost
			}
			if got := e.Beat(e.A, l.IDs()...); !slices.Equal(got, want) {
				e.Fatalf("got %v", got)
			}
			if now := e.Row(refA).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat of %s went from %v to %v", refA, was, now)
			}
		}},
		{"many locks of several owners are beaten together", func(e *env) {
			var asked []driver.LockID
			for i, names := range slices.Collect(slices.Chunk(suite.ManyNames(e.Scale(1500)), e.Scale(750))) {
				asked = append(asked, e.Acquire(process{Driver: e.A.Driver, Owner: fmt.Sprintf("owner/%d", i)}, names...).IDs()...)
			}
			slices.Reverse(asked)
			if got := e.Beat(e.A, asked...); !slices.Equal(got, slices.Repeat([]driver.BeatResult{beaten}, len(asked))) {
				e.Errorf("got %v", got)
			}
		}},
		{"P2 a lock with another token, larger or smaller, is lost, and its row not refreshed", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Age(l, 10*time.Minute)
			was := e.Row(refA).Heartbeat
			for _, token := range []driver.Token{l.Token - 1, l.Token + 1, 0} {
				id := l.IDs()[0]
				id.Token = token
				if got := e.Beat(e.A, id); got[0] != lost {
					e.Errorf("token %d of %d: got %v", token, l.Token, got)
				}
			}
			if now := e.Row(refA).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat went from %v to %v", was, now)
			}
		}},
		{"P2 a row of another owner is lost, whatever its token, and not refreshed", func(e *env) {
			for _, n := range []int{2, e.Scale(1000)} {
				names := suite.ManyNames(n)
				l := e.Acquire(e.A, names...)
				e.Age(l, 10*time.Minute)
				e.ChangeOwner(names[1])
				was := e.Row(names[1]).Heartbeat
				want := slices.Repeat([]driver.BeatResult{beaten}, n)
				want[1] = lost
				for range 2 {
					if got := e.Beat(e.A, l.IDs()...); !slices.Equal(got, want) {
						e.Fatalf("of %d rows: got %v", n, got)
					}
				}
				if now := e.Row(names[1]).Heartbeat; !now.Equal(was) {
					e.Errorf("the heartbeat went from %v to %v", was, now)
				}
				e.DB.Exec(e, "DELETE FROM locks WHERE project = '"+e.Project+"'")
			}
		}},
		{"P2 a row that Gerrit's plugin has taken over is lost", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.DB.TakeOver(e, e.Project, refA, gerrit)
			e.DB.Age(e, e.Project, refA, time.Minute)
			was := e.Row(refA).Heartbeat
			if got := e.Beat(e.A, l.IDs()...); got[0] != lost {
				e.Errorf("got %v", got)
			}
			if now := e.Row(refA).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat went from %v to %v", was, now)
			}
		}},
		{"a lock of an intent is not beaten", func(e *env) {
			l, other := e.Prepare(e.A, suite.Move(refA, "", v1)), e.Acquire(e.A, refB)
			e.Age(l, 10*time.Minute)
			was := e.Row(refA).Heartbeat
			if got, want := e.Beat(e.A, l.IDs()[0], other.IDs()[0]), []driver.BeatResult{lost, beaten}; !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			if now := e.Row(refA).Heartbeat; !now.Equal(was) {
				e.Errorf("the heartbeat went from %v to %v", was, now)
			}
			e.WantIntended(l)
		}},
		{"P7 a beat that could not be sent is an error, never a loss", func(e *env) {
			l := e.Acquire(e.A, refA)
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			got, err := e.A.Beat(ctx, l.IDs())
			if !errors.Is(err, context.Canceled) || slices.Contains(got, lost) {
				e.Errorf("got %v, %v", got, err)
			}
		}},
	}
}

func releaseRows() []row {
	return []row{
		{"a release frees the lock for any process", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			if missing := e.Release(e.A, l); len(missing) != 0 {
				e.Errorf("%q were missing", missing)
			}
			e.WantFree(refA, refB)
			e.Acquire(e.B, refA, refB)
		}},
		{"a second release finds nothing, and does not affect the next holder", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Release(e.A, l)
			next := e.Acquire(e.B, refA)
			if missing := e.Release(e.A, l); !slices.Equal(missing, []string{refA}) {
				e.Errorf("%q were missing", missing)
			}
			e.WantLock(next)
		}},
		{"rows that don't match are named in order, and the others are deleted", func(e *env) {
			l := e.Acquire(e.A, "HEAD", refA, refB, refC, "refs/x")
			for _, ref := range []string{refC, refA} {
				e.DB.Age(e, e.Project, ref, stale)
			}
			e.Must(e.Update(e.B, suite.Move(refA, "", v1))) // ends the stale lock
			next := e.Acquire(e.B, refC)                    // reclaims it
			if missing := e.Release(e.A, l); !slices.Equal(missing, []string{refA, refC}) {
				e.Errorf("%q were missing", missing)
			}
			e.WantFree("HEAD", refA, refB, "refs/x")
			e.WantLock(next)
		}},
		{"a release ends only the named refs of the lock", func(e *env) {
			l := e.Acquire(e.A, refA, refB, refC)
			if missing := e.Release(e.A, l, refA, refC); len(missing) != 0 {
				e.Errorf("%q were missing", missing)
			}
			e.WantFree(refA, refC)
			e.WantLock(l, refB)
		}},
		{"a release in one project does not affect the same refs of other projects", func(e *env) {
			l := e.Acquire(e.A, refA)
			for _, p := range []string{"/b", "_", "A"} {
				other := l
				other.Project += p
				if missing := e.Release(e.A, other); !slices.Equal(missing, []string{refA}) {
					e.Errorf("project %q: %q were missing", other.Project, missing)
				}
			}
			e.WantLock(l)
		}},
		{"P2 another token releases nothing", func(e *env) {
			l := e.Acquire(e.A, refA)
			for _, token := range []driver.Token{l.Token - 1, l.Token + 1, 0} {
				other := l
				other.Token = token
				if missing := e.Release(e.A, other); !slices.Equal(missing, []string{refA}) {
					e.Errorf("token %d released %d", token, l.Token)
				}
			}
			e.WantLock(l)
		}},
		{"P2 the right token releases nothing of another owner", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			e.ChangeOwner(refA)
			if missing := e.Release(e.A, l); !slices.Equal(missing, []string{refA}) {
				e.Errorf("%q were missing", missing)
			}
			e.WantChangedOwner(l, refA)
			e.WantFree(refB)
			alone := e.Acquire(e.A, refC)
			e.ChangeOwner(refC)
			if missing := e.Release(e.A, alone); !slices.Equal(missing, []string{refC}) {
				e.Errorf("%q were missing", missing)
			}
			e.WantChangedOwner(alone, refC)
		}},
		{"P2 a lock that Gerrit's plugin has taken over is not released", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			e.DB.TakeOver(e, e.Project, refA, gerrit)
			if missing := e.Release(e.A, l); !slices.Equal(missing, []string{refA}) {
				e.Errorf("%q were missing", missing)
			}
			e.WantGerrits(refA)
			e.WantFree(refB)
		}},
		{"a stale lock that was not taken over is released by its holder", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Age(l, stale)
			if missing := e.Release(e.A, l); len(missing) != 0 {
				e.Error("it was not")
			}
		}},
	}
}

// Operators end the locks of others by Purge.
func purgeRows() []row {
	return []row{
		{"a purge ends the locks of any owners, fresh or stale", func(e *env) {
			a, b := e.Acquire(e.A, refA, refB), e.Acquire(e.B, refC)
			e.DB.Age(e, e.Project, refA, stale)
			if got := e.Purge(e.B, suite.Standing(slices.Concat(a.IDs(), b.IDs())...)...); !slices.Equal(got, []bool{true, true, true}) {
				e.Errorf("got %v", got)
			}
			e.WantFree(refA, refB, refC)
			if got := e.Beat(e.A, a.IDs()...); got[0] != driver.BeatLost || got[1] != driver.BeatLost {
				e.Errorf("the holder's beat says %v", got)
			}
		}},
		{"a purge of no locks does nothing", func(e *env) {
			if got := e.Purge(e.A); len(got) != 0 {
				e.Errorf("got %v", got)
			}
		}},
		{"a second purge finds nothing, and does not affect the next holder", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Purge(e.B, suite.Standing(l.IDs()...)...)
			next := e.Acquire(e.B, refA)
			if got := e.Purge(e.B, suite.Standing(l.IDs()...)...); got[0] {
				e.Error("it purged the next holder's")
			}
			e.WantLock(next)
		}},
		{"P2 another token purges nothing", func(e *env) {
			l := e.Acquire(e.A, refA)
			for _, token := range []driver.Token{l.Token - 1, l.Token + 1, 0} {
				id := l.IDs()[0]
				id.Token = token
				if got := e.Purge(e.B, suite.Standing(id)...); got[0] {
					e.Errorf("token %d purged %d", token, l.Token)
				}
			}
			e.WantLock(l)
		}},
		{"P2 the right token purges nothing of another owner", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			listed := []driver.StandingLock{suite.AsListed(e.Row(refA)), suite.AsListed(e.Row(refB))}
			e.ChangeOwner(refA)
			for _, one := range []driver.StandingLock{listed[0], suite.Standing(l.IDs()[0])[0]} {
				if got := e.Purge(e.B, one); got[0] {
					e.Errorf("%+v was purged", one)
				}
			}
			if got := e.Purge(e.B, listed...); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("got %v", got)
			}
			e.WantChangedOwner(l, refA)
			e.WantFree(refB)
		}},
		{"what became of each row comes back in the order it was asked, over projects", func(e *env) {
			var asked []driver.StandingLock
			var want []bool
			for i, p := range []string{"A", "", "_", "/b"} {
				r := e.AcquireRequest([]process{e.A, e.B}[i/2], refA, refB)
				r.Project += p
				l, err := e.SendAcquire(e.A, r)
				e.Must(err)
				rows := suite.Standing(l.IDs()...)
				slices.Reverse(rows)
				if i%2 == 0 {
					rows[0].Token++
				}
				asked = append(asked, rows...)
				want = append(want, i%2 != 0, true)
			}
			if got := e.Purge(e.B, asked...); !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			for i, l := range asked {
				if _, ok := e.DB.RowLock(e, l.Project, l.Ref); ok == want[i] {
					e.Errorf("the row of %+v stands: %v", l, ok)
				}
			}
		}},
		{"on condition of the heartbeat, a purge leaves a lock that has beaten since", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			e.Age(l, stale)
			seen := []driver.StandingLock{suite.AsListed(e.Row(refA)), suite.AsListed(e.Row(refB))}
			e.Beat(e.A, l.IDs()[0])
			if got := e.Purge(e.B, seen...); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("got %v", got)
			}
			e.WantLock(l, refA)
			e.WantFree(refB)
		}},
		{"the heartbeat that a list of locks gives is the condition that matches", func(e *env) {
			e.Acquire(e.A, refA)
			l := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project}})[0]
			if got := e.Purge(e.B, suite.AsListed(l)); !got[0] {
				e.Errorf("%+v was not purged", l)
			}
		}},
		{"a purge requires the token even if the heartbeat matches", func(e *env) {
			l := e.Acquire(e.A, refA)
			other := suite.AsListed(e.Row(refA))
			other.Token++
			if got := e.Purge(e.B, other); got[0] {
				e.Error("another token purged it")
			}
			e.WantLock(l)
		}},
		{"a lock without token and heartbeat is named by token 0", func(e *env) {
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project, Ref: refA, Owner: gerrit})
			nameless := driver.LockID{Project: e.Project, Ref: refA, Owner: gerrit}
			if got := e.Purge(e.A, suite.Standing(nameless)...); got[0] {
				e.Fatal("token 0 purged a lock that has a token")
			}
			e.DB.Exec(e, "UPDATE locks SET heartbeat = NULL, token = NULL WHERE project = '"+e.Project+"'")
			l := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project}})[0]
			if got := e.Purge(e.A, suite.AsListed(l)); !got[0] {
				e.Errorf("%+v was not purged", l)
			}
			e.WantFree(refA)
		}},
		{"a lock of Gerrit's is purged like any other", func(e *env) {
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project, Ref: refA, Owner: gerrit})
			l := e.Row(refA)
			if got := e.Purge(e.A, suite.Standing(l.ID())...); !got[0] {
				e.Errorf("%+v was not purged", l)
			}
		}},
		{"a marker is purged like a lock", func(e *env) {
			e.DB.InsertLock(e, driver.LockInfo{Project: suite.Marker(e.Project, 1), Ref: refA, Owner: gerrit})
			for _, m := range e.Locks(driver.LockQuery{Markers: true}) {
				if m.Project != suite.Marker(e.Project, 1) {
					continue
				}
				if got := e.Purge(e.A, suite.AsListed(m)); !got[0] {
					e.Errorf("%+v was not purged", m)
				}
				return
			}
			e.Error("the marker is not listed")
		}},
		{"a lock of an intent is not purged, and the other locks are", func(e *env) {
			l, other := e.Prepare(e.A, suite.Move(refA, "", v1)), e.Acquire(e.A, refB)
			e.Age(l, 50*years)
			for _, intent := range []driver.StandingLock{suite.Standing(l.IDs()...)[0], suite.AsListed(e.Row(refA))} {
				if got := e.Purge(e.B, intent); got[0] {
					e.Errorf("%+v was purged", intent)
				}
			}
			if got := e.Purge(e.B, suite.Standing(l.IDs()[0], other.IDs()[0])...); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("got %v", got)
			}
			e.WantIntended(l)
			e.WantFree(refB)
		}},
	}
}
