package driver

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

func acquireRows() []row {
	return []row{
		{"free locks are taken together, under one token", func(e *env) {
			l := e.Acquire(e.A, refA, refB, refC)
			if l.Token <= 0 || len(l.Reclaimed) != 0 || len(l.Acquired.Refs) != 0 {
				e.Errorf("got %+v", l.Acquired)
			}
			e.WantLock(l)
		}},
		{"an acquisition returns the values of those of its refs that have a row", func(e *env) {
			e.Must(e.Update(e.B, suite.Move(refA, "", v1), suite.Move(refB, "", driver.Deleted)))
			l := e.Acquire(e.A, refA, refB, refC)
			if want := (map[string]driver.Value{refA: v1, refB: driver.Deleted}); !maps.Equal(l.Values(), want) {
				e.Errorf("got %v, want %v", l.Values(), want)
			}
			for _, r := range l.Acquired.Refs {
				if w := e.GetOne(r.Name); !r.Time.Equal(w.Time) || r.Op != w.Op {
					e.Errorf("got %+v, want %+v", r, w)
				}
			}
		}},
		{"a refused acquisition takes nothing and returns every holder", func(e *env) {
			c, a := e.Acquire(e.B, refC), e.Acquire(e.A, refA)
			rows := map[string]driver.LockInfo{refA: e.Row(refA), refC: e.Row(refC)}
			_, err := e.TryAcquire(e.B, "HEAD", refA, refB, refC, "refs/x")
			for _, h := range e.WantHolders(err, refA, refC) {
				l := map[string]lock{refA: a, refC: c}[h.Ref]
				if h.Project != e.Project || h.Owner != l.Owner || h.Token != l.Token ||
					!h.Heartbeat.Equal(rows[h.Ref].Heartbeat) || h.StaleAfter != staleAfter || h.Age < 0 || h.Age > time.Hour {
					e.Errorf("got %+v, want that of %+v", h, l)
				}
			}
			e.WantFree("HEAD", refB, "refs/x")
			e.WantLock(a)
			e.WantLock(c)
			for ref, was := range rows {
				if now := e.Row(ref); !now.Heartbeat.Equal(was.Heartbeat) {
					e.Errorf("the heartbeat of %s went from %v to %v", ref, was.Heartbeat, now.Heartbeat)
				}
			}
		}},
		{"an acquisition that one fresh lock refuses does not change stale locks, and names them", func(e *env) {
			old, fresh := e.Acquire(e.A, refA), e.Acquire(e.A, refB)
			e.Age(old, stale)
			_, err := e.TryAcquire(e.B, refA, refB, refC)
			if h := e.WantHolders(err, refA, refB); !h[0].Stale() || h[1].Stale() {
				e.Errorf("got %+v", h)
			}
			e.WantLock(old)
			e.WantLock(fresh)
			e.WantFree(refC)
		}},
		{"a process is refused by its own lock", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Refused(e.A, refA)
			e.WantLock(l)
		}},
		{"a waiter changes neither the result nor the lock", func(e *env) {
			l := e.Acquire(e.A, refA)
			q := notified(e, e.B)
			for range 3 {
				q.refused([]string{refA, refB}, refA)
			}
			e.WantFree(refB)
			e.WantLock(l)
			if got := e.Beat(e.A, l.IDs()...); got[0] != driver.BeatRenewed {
				e.Errorf("the holder's beat says %v", got)
			}
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Releasing(), Updates: []driver.Update{suite.Move(refA, "", v1)}}))
			q.acquire(refA, refB)
		}},
		{"locks of one project don't refuse those of another", func(e *env) {
			e.Acquire(e.A, refA)
			for _, p := range []string{e.Project + "/b", e.Project + "_", e.Project + "A"} {
				r := e.AcquireRequest(e.B, refA)
				r.Project = p
				_, err := e.SendAcquire(e.B, r)
				e.Must(err)
			}
		}},
		{"a lock records its owner, its time and its stale-after", func(e *env) {
			before := e.Now(e.B)
			for _, after := range []time.Duration{time.Millisecond, 1500 * time.Millisecond, 100 * 24 * time.Hour} {
				r := e.AcquireRequest(e.A, refA)
				r.StaleAfter = after
				l, err := e.SendAcquire(e.A, r)
				e.Must(err)
				got := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project}})
				if len(got) != 1 || got[0].StaleAfter != after || got[0].Owner != r.Owner || got[0].Token != l.Token {
					e.Fatalf("got %+v, want %+v", got, l)
				}
				if at := got[0].Heartbeat; at.Before(before.Truncate(time.Microsecond)) || at.After(e.Now(e.B)) {
					e.Errorf("the heartbeat is %v, the acquisition was after %v", at, before)
				}
				e.Release(e.A, l)
			}
		}},
		{"P2 every token is larger than all earlier ones of any of the refs, of any owner", func(e *env) {
			sets := [][]string{{refA}, {refA, refB}, {refB, refC}, {refC}, {refA, refB, refC}, {refB}}
			last := make(map[string]driver.Token)
			for i := range 10 * len(sets) {
				p := []process{e.A, e.B, e.B}[i%3]
				l := e.Acquire(p, sets[i%len(sets)]...)
				for _, ref := range l.Refs() {
					if l.Token <= last[ref] {
						e.Fatalf("acquisition %d of %s has token %d after %d", i, ref, l.Token, last[ref])
					}
					last[ref] = l.Token
				}
				e.Release(p, l)
			}
		}},
		{"an acquisition whose context has ended returns its error and takes nothing", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			if _, err := e.A.Acquire(ctx, e.AcquireRequest(e.A, refA)); !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
			e.WantFree(refA)
		}},
	}
}

// A caller that got no reply to its acquisition repeats it with the same nonce.
func nonceRows() []row {
	return []row{
		{"P7 a repeated request is the same acquisition", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			first := e.Acquire(e.A, refA, refB)
			again, err := e.SendAcquire(e.A, first.AcquireRequest)
			e.Must(err)
			if again.Token != first.Token || !maps.Equal(again.Values(), map[string]driver.Value{refA: v1}) {
				e.Errorf("got %+v, then %+v", first.Acquired, again.Acquired)
			}
			e.WantLock(first)
		}},
		{"P7 a repeated request is the same acquisition through another connection, and however old", func(e *env) {
			first := e.Acquire(e.A, refA, refB)
			e.Age(first, stale)
			again, err := e.SendAcquire(e.Spawn(e.A.Owner), first.AcquireRequest)
			e.Must(err)
			if again.Token != first.Token || len(again.Reclaimed) != 0 {
				e.Errorf("got %+v, then %+v", first.Acquired, again.Acquired)
			}
			e.WantLock(first)
		}},
		{"another nonce is another acquisition, even of the same owner", func(e *env) {
			l := e.Acquire(e.A, refA)
			r := l.AcquireRequest
			r.Nonce += "x"
			_, err := e.SendAcquire(e.A, r)
			e.WantHolders(err, refA)
			e.WantLock(l)
		}},
		{"P7 an acquisition of which others have taken a part is refused, and its other locks end", func(e *env) {
			l := e.Acquire(e.A, refA, refB, refC)
			e.DB.Age(e, e.Project, refB, stale)
			other := e.Acquire(e.B, refB)
			_, err := e.SendAcquire(e.A, l.AcquireRequest)
			e.WantHolders(err, refB)
			e.WantFree(refA, refC)
			e.WantLock(other)
		}},
		{"P7 an acquisition that has lost a part of its locks starts over, with a larger token", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			e.DB.Age(e, e.Project, refB, stale)
			e.Must(e.Update(e.B, suite.Move(refB, "", v1))) // ends the stale lock
			again, err := e.SendAcquire(e.A, l.AcquireRequest)
			e.Must(err)
			if again.Token <= l.Token || !maps.Equal(again.Values(), map[string]driver.Value{refB: v1}) {
				e.Errorf("got %+v after token %d", again.Acquired, l.Token)
			}
			e.WantLock(again)
		}},
		{"P7 an acquisition of which others hold a stale part starts over, and reclaims", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			e.DB.Age(e, e.Project, refB, stale)
			other := e.Acquire(e.B, refB)
			e.Age(other, stale)
			again, err := e.SendAcquire(e.A, l.AcquireRequest)
			e.Must(err)
			if again.Token <= other.Token || len(again.Reclaimed) != 1 || again.Reclaimed[0].Token != other.Token {
				e.Errorf("got %+v, want token %d reclaimed", again.Acquired, other.Token)
			}
			e.WantLock(again)
		}},
		{"P7 an acquisition that was released meanwhile is made again", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Release(e.A, l)
			again, err := e.SendAcquire(e.A, l.AcquireRequest)
			e.Must(err)
			if again.Token <= l.Token {
				e.Errorf("got token %d after %d", again.Token, l.Token)
			}
			e.WantLock(again)
		}},
		{"P1 P7 a lock that Gerrit's plugin took over with its nonce belongs to the plugin", func(e *env) {
			for _, refs := range [][]string{{refA}, {refB, refC}} {
				l := e.Acquire(e.A, refs...)
				for _, ref := range refs {
					e.DB.TakeOver(e, e.Project, ref, gerrit)
				}
				for range 2 {
					_, err := e.SendAcquire(e.A, l.AcquireRequest)
					e.WantHolders(err, refs...)
				}
				e.WantGerrits(refs...)
			}
		}},
		{"P1 P7 an acquisition of which Gerrit's plugin took over a part is refused, and its other locks end", func(e *env) {
			l := e.Acquire(e.A, refA, refB, refC)
			e.DB.TakeOver(e, e.Project, refB, gerrit)
			_, err := e.SendAcquire(e.A, l.AcquireRequest)
			e.WantHolders(err, refB)
			e.WantFree(refA, refC)
			e.WantGerrits(refB)
		}},
		{"P5 a stale lock of Gerrit's plugin is reclaimed by its first owner like any other", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.DB.TakeOver(e, e.Project, refA, gerrit)
			e.DB.Age(e, e.Project, refA, stale)
			was := e.Row(refA).Token
			again, err := e.SendAcquire(e.A, l.AcquireRequest)
			e.Must(err)
			if again.Token <= was || len(again.Reclaimed) != 1 || again.Reclaimed[0].Token != was || again.Reclaimed[0].Owner != gerrit {
				e.Errorf("got %+v, want token %d reclaimed", again.Acquired, was)
			}
			e.WantLock(again)
		}},
		{"a lock of Gerrit's, which has no nonce, belongs to no acquisition", func(e *env) {
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project, Ref: refA, Owner: e.A.Owner})
			e.Refused(e.A, refA)
		}},
	}
}

func reclaimRows() []row {
	return []row{
		{"P5 a stale lock is taken over: larger token, new owner, new heartbeat", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Age(l, stale)
			was := e.Row(refA)
			got := e.Acquire(e.B, refA)
			if got.Token <= l.Token {
				e.Errorf("got token %d after %d", got.Token, l.Token)
			}
			e.WantLock(got)
			if now := e.Row(refA); now.Heartbeat.Sub(was.Heartbeat) < staleAfter {
				e.Errorf("the heartbeat went from %v to %v only", was.Heartbeat, now.Heartbeat)
			}
			e.Refused(e.A, refA)
		}},
		{"P5 free and stale locks are taken together, and the stale ones are reported in their earlier state", func(e *env) {
			b, c := e.Acquire(e.A, refB), e.Acquire(e.B, refC)
			e.Age(b, stale)
			e.Age(c, 2*stale)
			rows := map[string]driver.LockInfo{refB: e.Row(refB), refC: e.Row(refC)}
			got := e.Acquire(e.B, refA, refB, refC, "refs/x")
			e.WantLock(got)
			if len(got.Reclaimed) != 2 {
				e.Fatalf("reclaimed %+v", got.Reclaimed)
			}
			for _, r := range got.Reclaimed {
				was := rows[r.Ref]
				if r.Project != e.Project || r.Owner != was.Owner || r.Token != was.Token || !r.Heartbeat.Equal(was.Heartbeat) ||
					r.StaleAfter != staleAfter || !r.Stale() || r.Age > 3*stale {
					e.Errorf("got %+v, want %+v", r, was)
				}
				if got.Token <= was.Token {
					e.Errorf("got token %d after %d", got.Token, was.Token)
				}
			}
		}},
		{"P3 the stale-after of the holder decides, not that of the contender", func(e *env) {
			r := e.AcquireRequest(e.A, refA)
			r.StaleAfter = 2 * time.Hour
			l, err := e.SendAcquire(e.A, r)
			e.Must(err)
			impatient := e.AcquireRequest(e.B, refA)
			impatient.StaleAfter = time.Millisecond
			e.Age(l, 2*time.Hour-time.Minute)
			_, err = e.SendAcquire(e.B, impatient)
			e.WantHolders(err, refA)

			e.Age(l, 2*time.Minute)
			patient := e.AcquireRequest(e.B, refA)
			patient.StaleAfter = 100 * time.Hour
			got, err := e.SendAcquire(e.B, patient)
			e.Must(err)
			e.Age(got, 99*time.Hour) // from now on the reclaimer's own setting counts
			e.Refused(e.A, refA)
		}},
		{"P3 a lock of Gerrit's is stale after 30 s, whatever the contender's stale-after", func(e *env) {
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project, Ref: refA, Owner: gerrit, Age: time.Second})
			impatient := e.AcquireRequest(e.B, refA)
			impatient.StaleAfter = time.Millisecond
			_, err := e.SendAcquire(e.B, impatient)
			e.WantHolders(err, refA)

			e.DB.Age(e, e.Project, refA, 30*time.Second)
			was := e.Row(refA)
			got := e.Acquire(e.B, refA)
			if len(got.Reclaimed) != 1 || got.Reclaimed[0].StaleAfter != driver.DefaultStaleAfter || got.Token <= was.Token {
				e.Errorf("got %+v", got.Acquired)
			}
			e.WantLock(got)
		}},
		{"a heartbeat in the future is fresh", func(e *env) {
			if !e.FutureTimes() {
				return // such a row can't exist
			}
			l := e.Acquire(e.A, refA)
			e.Age(l, -2*time.Hour)
			if h := e.Refused(e.B, refA); h[0].Age >= 0 || h[0].Stale() {
				e.Errorf("got %+v", h)
			}
			e.WantLock(l)
		}},
		{"a token in the future still yields a larger one", func(e *env) {
			if !e.FutureTimes() {
				return // such a row can't exist
			}
			future := driver.TokenOf(e.Now(e.A).Add(time.Hour))
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project, Ref: refA, Owner: gerrit, Token: future, Age: time.Minute})
			got := e.Acquire(e.B, refA, refB)
			if got.Token <= future {
				e.Fatalf("got token %d after %d", got.Token, future)
			}
			// Later tokens of each of the refs are larger still.
			e.Release(e.B, got)
			for _, ref := range []string{refA, refB} {
				if l := e.Acquire(e.A, ref); l.Token <= got.Token {
					e.Errorf("%s has token %d after %d", ref, l.Token, got.Token)
				}
			}
		}},
		{"a lock without heartbeat and token is stale, and its token 0", func(e *env) {
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project, Ref: refA, Owner: gerrit})
			e.DB.Exec(e, "UPDATE locks SET heartbeat = NULL, token = NULL WHERE project = '"+e.Project+"'")
			got := e.Acquire(e.B, refA)
			if len(got.Reclaimed) != 1 || got.Reclaimed[0].Token != 0 || !got.Reclaimed[0].Heartbeat.Equal(time.UnixMicro(0)) {
				e.Errorf("got %+v", got.Acquired)
			}
			e.WantLock(got)
		}},
		{"a beat revives a stale lock that was not taken over", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Age(l, stale)
			if got := e.Beat(e.A, l.IDs()...); got[0] != driver.BeatRenewed {
				e.Errorf("the beat says %v", got)
			}
			e.Refused(e.B, refA)
			e.WantLock(l)
		}},
		{"P2 the token of a reclaimed lock is no longer valid", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Age(l, stale)
			successor := e.Acquire(e.B, refA)
			was := e.Row(refA)
			if got := e.Beat(e.A, l.IDs()...); got[0] != driver.BeatLost {
				e.Errorf("its beat says %v", got)
			}
			if missing := e.Release(e.A, l); len(missing) != 1 {
				e.Error("its release released its successor's")
			}
			e.WantLost(e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Fence(), Updates: []driver.Update{suite.Move(refA, "", v1)}}), refA)
			e.WantLock(successor)
			if now := e.Row(refA); !now.Heartbeat.Equal(was.Heartbeat) {
				e.Errorf("its successor's heartbeat went from %v to %v", was.Heartbeat, now.Heartbeat)
			}
			e.WantRefs(nil)
		}},
		{"a reclaim leaves nothing behind", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			e.Age(l, stale)
			e.Acquire(e.B, refA, refB)
			for _, m := range e.Locks(driver.LockQuery{Markers: true}) {
				if m.Owner == e.B.Owner && m.Ref == refA && m.Project == suite.Marker(e.Project, l.Token) {
					e.Errorf("a marker is left: %+v", m)
				}
			}
			if got := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project}}); len(got) != 2 {
				e.Errorf("the project's locks are %+v", got)
			}
		}},
		{"a marker of a crashed reclaim for an earlier token does not prevent a reclaim", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.DB.InsertLock(e, driver.LockInfo{Project: suite.Marker(e.Project, l.Token-1), Ref: refA, Owner: gerrit})
			e.Age(l, stale)
			e.WantLock(e.Acquire(e.B, refA))
		}},
	}
}

// A caller that gave up on the reply to its acquisition abandons it: it may have been carried
// out or not.
func abandonRows() []row {
	return []row{
		{"abandoning an acquisition deletes its locks, and no others", func(e *env) {
			l, other := e.Acquire(e.A, refA, refB), e.Acquire(e.A, refC)
			e.Abandon(e.B, l.AcquireRequest)
			e.WantFree(refA, refB)
			e.WantLock(other)
			e.Abandon(e.A, l.AcquireRequest) // nothing is left to delete
		}},
		{"abandoning an acquisition that was never carried out deletes nothing", func(e *env) {
			a, b := e.Acquire(e.A, refA), e.Acquire(e.B, refB)
			e.Abandon(e.A, e.AcquireRequest(e.A, refA, refB, refC))
			e.WantLock(a)
			e.WantLock(b)
		}},
		{"a row with another nonce of the same owner is not abandoned", func(e *env) {
			l := e.Acquire(e.A, refA)
			r := l.AcquireRequest
			r.Nonce += "x"
			e.Abandon(e.A, r)
			e.WantLock(l)
		}},
		{"a row with the same nonce of another owner is not abandoned", func(e *env) {
			l := e.Acquire(e.A, refA)
			r := l.AcquireRequest
			r.Owner = e.B.Owner
			e.Abandon(e.B, r)
			e.WantLock(l)
		}},
		{"P2 a row that Gerrit's plugin has taken over with its nonce is not abandoned, and the other rows are", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			e.DB.TakeOver(e, e.Project, refA, gerrit)
			alone := l.AcquireRequest
			alone.Refs = []string{refA}
			e.Abandon(e.A, alone)
			e.Abandon(e.A, l.AcquireRequest)
			e.WantGerrits(refA)
			e.WantFree(refB)
		}},
		{"a reclaimed row is not abandoned, and the other rows are", func(e *env) {
			l := e.Acquire(e.A, refA, refB, refC)
			e.DB.Age(e, e.Project, refB, stale)
			next := e.Acquire(e.B, refB)
			e.Abandon(e.A, l.AcquireRequest)
			e.WantFree(refA, refC)
			e.WantLock(next)
		}},
		{"a lock of Gerrit's, which has no nonce, is not abandoned", func(e *env) {
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project, Ref: refA, Owner: e.A.Owner})
			e.Abandon(e.A, e.AcquireRequest(e.A, refA))
			e.Row(refA)
		}},
		{"abandoning an acquisition in one project does not affect the same refs of other projects", func(e *env) {
			l := e.Acquire(e.A, refA)
			for _, p := range []string{"/b", "_", "A"} {
				r := l.AcquireRequest
				r.Project += p
				e.Abandon(e.A, r)
			}
			e.WantLock(l)
		}},
		{"the maximum number of locks of an acquisition are abandoned at once", func(e *env) {
			names := suite.ManyNames(e.Scale(driver.MaxLockRefs))
			l := e.Acquire(e.A, names...)
			e.Abandon(e.A, l.AcquireRequest)
			if got := e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project}}); len(got) != 0 {
				e.Errorf("%d locks are left", len(got))
			}
		}},
		{"locks of intents are not abandoned", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1))
			e.Abandon(e.A, l.Lock().AcquireRequest)
			e.WantIntended(l)
		}},
	}
}
