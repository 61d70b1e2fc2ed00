package refdbtest

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func acquireRows() []row {
	return []row{
		{"free locks are taken together, under one token", func(e *env) {
			l := e.acquire(e.a, refA, refB, refC)
			if l.Token <= 0 || len(l.Reclaimed) != 0 || len(l.Acquired.Refs) != 0 {
				e.Errorf("got %+v", l.Acquired)
			}
			e.wantLock(l)
		}},
		{"an acquisition returns what its refs hold, and only those that have a row", func(e *env) {
			e.must(e.update(e.b, move(refA, "", v1), move(refB, "", refdb.Deleted)))
			l := e.acquire(e.a, refA, refB, refC)
			if want := (map[string]refdb.Value{refA: v1, refB: refdb.Deleted}); !maps.Equal(l.values(), want) {
				e.Errorf("got %v, want %v", l.values(), want)
			}
			for _, r := range l.Acquired.Refs {
				if w := e.getOne(r.Name); !r.Time.Equal(w.Time) || r.Op != w.Op {
					e.Errorf("got %+v, want %+v", r, w)
				}
			}
		}},
		{"a refused acquisition takes nothing and returns every holder", func(e *env) {
			c, a := e.acquire(e.b, refC), e.acquire(e.a, refA)
			rows := map[string]refdb.LockInfo{refA: e.row(refA), refC: e.row(refC)}
			_, err := e.tryAcquire(e.b, "HEAD", refA, refB, refC, "refs/x")
			for _, h := range e.wantHolders(err, refA, refC) {
				l := map[string]lock{refA: a, refC: c}[h.Ref]
				if h.Project != e.project || h.Owner != l.Owner || h.Token != l.Token ||
					!h.Heartbeat.Equal(rows[h.Ref].Heartbeat) || h.StaleAfter != staleAfter || h.Age < 0 || h.Age > time.Minute {
					e.Errorf("got %+v, want that of %+v", h, l)
				}
			}
			e.wantFree("HEAD", refB, "refs/x")
			e.wantLock(a)
			e.wantLock(c)
			for ref, was := range rows {
				if now := e.row(ref); !now.Heartbeat.Equal(was.Heartbeat) {
					e.Errorf("the heartbeat of %s went from %v to %v", ref, was.Heartbeat, now.Heartbeat)
				}
			}
		}},
		{"an acquisition that one fresh lock refuses leaves the stale ones, and names them", func(e *env) {
			old, fresh := e.acquire(e.a, refA), e.acquire(e.a, refB)
			e.age(old, stale)
			_, err := e.tryAcquire(e.b, refA, refB, refC)
			if h := e.wantHolders(err, refA, refB); !h[0].Stale() || h[1].Stale() {
				e.Errorf("got %+v", h)
			}
			e.wantLock(old)
			e.wantLock(fresh)
			e.wantFree(refC)
		}},
		{"a process is refused by its own lock", func(e *env) {
			l := e.acquire(e.a, refA)
			e.refused(e.a, refA)
			e.wantLock(l)
		}},
		{"asking to wait changes neither the answer nor the lock", func(e *env) {
			l := e.acquire(e.a, refA)
			q := e.notified(e.b)
			for range 3 {
				q.refused([]string{refA, refB}, refA)
			}
			e.wantFree(refB)
			e.wantLock(l)
			if got := e.beat(e.a, l.ids()...); got[0] != refdb.Beaten {
				e.Errorf("the holder's beat says %v", got)
			}
			e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Fence: l.releasing(), Updates: []refdb.Update{move(refA, "", v1)}}))
			q.acquire(refA, refB)
		}},
		{"locks of one project don't stand on those of another", func(e *env) {
			e.acquire(e.a, refA)
			for _, p := range []string{e.project + "/b", e.project + "_", e.project + "A"} {
				r := e.acquireRequest(e.b, refA)
				r.Project = p
				_, err := e.sendAcquire(e.b, r)
				e.must(err)
			}
		}},
		{"a lock records who took it, when, and how long it may be silent", func(e *env) {
			before := e.now(e.b)
			for _, after := range []time.Duration{time.Millisecond, 1500 * time.Millisecond, 100 * 24 * time.Hour} {
				r := e.acquireRequest(e.a, refA)
				r.StaleAfter = after
				l, err := e.sendAcquire(e.a, r)
				e.must(err)
				got := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}})
				if len(got) != 1 || got[0].StaleAfter != after || got[0].Owner != r.Owner || got[0].Token != l.Token {
					e.Fatalf("got %+v, want %+v", got, l)
				}
				if at := got[0].Heartbeat; at.Before(before.Truncate(time.Microsecond)) || at.After(e.now(e.b)) {
					e.Errorf("the heartbeat is %v, the acquisition was after %v", at, before)
				}
				e.release(e.a, l)
			}
		}},
		{"P2 every token is larger than any before it on any of the refs, whoever took them", func(e *env) {
			sets := [][]string{{refA}, {refA, refB}, {refB, refC}, {refC}, {refA, refB, refC}, {refB}}
			last := make(map[string]refdb.Token)
			for i := range 10 * len(sets) {
				p := []process{e.a, e.b, e.b}[i%3]
				l := e.acquire(p, sets[i%len(sets)]...)
				for _, ref := range l.refs() {
					if l.Token <= last[ref] {
						e.Fatalf("acquisition %d of %s has token %d after %d", i, ref, l.Token, last[ref])
					}
					last[ref] = l.Token
				}
				e.release(p, l)
			}
		}},
		{"an acquisition whose context has ended says so and takes nothing", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			if _, err := e.a.Acquire(ctx, e.acquireRequest(e.a, refA)); !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
			e.wantFree(refA)
		}},
	}
}

// A caller that got no reply to its acquisition repeats it with the same nonce.
func nonceRows() []row {
	return []row{
		{"P7 the same request again is the same acquisition", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			first := e.acquire(e.a, refA, refB)
			again, err := e.sendAcquire(e.a, first.AcquireRequest)
			e.must(err)
			if again.Token != first.Token || !maps.Equal(again.values(), map[string]refdb.Value{refA: v1}) {
				e.Errorf("got %+v, then %+v", first.Acquired, again.Acquired)
			}
			e.wantLock(first)
		}},
		{"P7 it is the same acquisition through another connection, and however old", func(e *env) {
			first := e.acquire(e.a, refA, refB)
			e.age(first, stale)
			again, err := e.sendAcquire(e.spawn(e.a.owner), first.AcquireRequest)
			e.must(err)
			if again.Token != first.Token || len(again.Reclaimed) != 0 {
				e.Errorf("got %+v, then %+v", first.Acquired, again.Acquired)
			}
			e.wantLock(first)
		}},
		{"another nonce is another acquisition, of the same owner too", func(e *env) {
			l := e.acquire(e.a, refA)
			r := l.AcquireRequest
			r.Nonce += "x"
			_, err := e.sendAcquire(e.a, r)
			e.wantHolders(err, refA)
			e.wantLock(l)
		}},
		{"P7 an acquisition of which others took a part is given up, and refused by them", func(e *env) {
			l := e.acquire(e.a, refA, refB, refC)
			e.db.Age(e, e.project, refB, stale)
			other := e.acquire(e.b, refB)
			_, err := e.sendAcquire(e.a, l.AcquireRequest)
			e.wantHolders(err, refB)
			e.wantFree(refA, refC)
			e.wantLock(other)
		}},
		{"P7 an acquisition of which a part is gone starts over, with a larger token", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.db.Age(e, e.project, refB, stale)
			e.must(e.update(e.b, move(refB, "", v1))) // ends the stale lock
			again, err := e.sendAcquire(e.a, l.AcquireRequest)
			e.must(err)
			if again.Token <= l.Token || !maps.Equal(again.values(), map[string]refdb.Value{refB: v1}) {
				e.Errorf("got %+v after token %d", again.Acquired, l.Token)
			}
			e.wantLock(again)
		}},
		{"P7 an acquisition of which others took a part and grew stale starts over, and reclaims", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.db.Age(e, e.project, refB, stale)
			other := e.acquire(e.b, refB)
			e.age(other, stale)
			again, err := e.sendAcquire(e.a, l.AcquireRequest)
			e.must(err)
			if again.Token <= other.Token || len(again.Reclaimed) != 1 || again.Reclaimed[0].Token != other.Token {
				e.Errorf("got %+v, want token %d reclaimed", again.Acquired, other.Token)
			}
			e.wantLock(again)
		}},
		{"P7 an acquisition that was released meanwhile is made anew", func(e *env) {
			l := e.acquire(e.a, refA)
			e.release(e.a, l)
			again, err := e.sendAcquire(e.a, l.AcquireRequest)
			e.must(err)
			if again.Token <= l.Token {
				e.Errorf("got token %d after %d", again.Token, l.Token)
			}
			e.wantLock(again)
		}},
		{"P1 P7 a lock that Gerrit's plugin took over, and left the nonce in, is not one's own", func(e *env) {
			for _, refs := range [][]string{{refA}, {refB, refC}} {
				l := e.acquire(e.a, refs...)
				for _, ref := range refs {
					e.db.TakeOver(e, e.project, ref, gerrit)
				}
				for range 2 {
					_, err := e.sendAcquire(e.a, l.AcquireRequest)
					e.wantHolders(err, refs...)
				}
				e.wantGerrits(refs...)
			}
		}},
		{"P1 P7 an acquisition of which Gerrit's plugin took over a part is given up, and refused by that", func(e *env) {
			l := e.acquire(e.a, refA, refB, refC)
			e.db.TakeOver(e, e.project, refB, gerrit)
			_, err := e.sendAcquire(e.a, l.AcquireRequest)
			e.wantHolders(err, refB)
			e.wantFree(refA, refC)
			e.wantGerrits(refB)
		}},
		{"P5 a lock that Gerrit's plugin took over is reclaimed by the first owner, once stale, as anybody's", func(e *env) {
			l := e.acquire(e.a, refA)
			e.db.TakeOver(e, e.project, refA, gerrit)
			e.db.Age(e, e.project, refA, stale)
			was := e.row(refA).Token
			again, err := e.sendAcquire(e.a, l.AcquireRequest)
			e.must(err)
			if again.Token <= was || len(again.Reclaimed) != 1 || again.Reclaimed[0].Token != was || again.Reclaimed[0].Owner != gerrit {
				e.Errorf("got %+v, want token %d reclaimed", again.Acquired, was)
			}
			e.wantLock(again)
		}},
		{"a lock of Gerrit's, which has no nonce, is nobody's own", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: e.a.owner})
			e.refused(e.a, refA)
		}},
	}
}

func reclaimRows() []row {
	return []row{
		{"P5 a stale lock is taken over: larger token, new owner, new heartbeat", func(e *env) {
			l := e.acquire(e.a, refA)
			e.age(l, stale)
			was := e.row(refA)
			got := e.acquire(e.b, refA)
			if got.Token <= l.Token {
				e.Errorf("got token %d after %d", got.Token, l.Token)
			}
			e.wantLock(got)
			if now := e.row(refA); now.Heartbeat.Sub(was.Heartbeat) < staleAfter {
				e.Errorf("the heartbeat went from %v to %v only", was.Heartbeat, now.Heartbeat)
			}
			e.refused(e.a, refA)
		}},
		{"P5 free and stale locks are taken together, and the stale ones reported as they were", func(e *env) {
			b, c := e.acquire(e.a, refB), e.acquire(e.b, refC)
			e.age(b, stale)
			e.age(c, 2*stale)
			rows := map[string]refdb.LockInfo{refB: e.row(refB), refC: e.row(refC)}
			got := e.acquire(e.b, refA, refB, refC, "refs/x")
			e.wantLock(got)
			if len(got.Reclaimed) != 2 {
				e.Fatalf("reclaimed %+v", got.Reclaimed)
			}
			for _, r := range got.Reclaimed {
				was := rows[r.Ref]
				if r.Project != e.project || r.Owner != was.Owner || r.Token != was.Token || !r.Heartbeat.Equal(was.Heartbeat) ||
					r.StaleAfter != staleAfter || !r.Stale() || r.Age > 3*stale {
					e.Errorf("got %+v, want %+v", r, was)
				}
				if got.Token <= was.Token {
					e.Errorf("got token %d after %d", got.Token, was.Token)
				}
			}
		}},
		{"P3 staleness is what the lock's own holder relies on, not the contender", func(e *env) {
			r := e.acquireRequest(e.a, refA)
			r.StaleAfter = 2 * time.Hour
			l, err := e.sendAcquire(e.a, r)
			e.must(err)
			impatient := e.acquireRequest(e.b, refA)
			impatient.StaleAfter = time.Millisecond
			e.age(l, 2*time.Hour-time.Minute)
			_, err = e.sendAcquire(e.b, impatient)
			e.wantHolders(err, refA)

			e.age(l, 2*time.Minute)
			patient := e.acquireRequest(e.b, refA)
			patient.StaleAfter = 100 * time.Hour
			got, err := e.sendAcquire(e.b, patient)
			e.must(err)
			e.age(got, 99*time.Hour) // from now on the reclaimer's own setting counts
			e.refused(e.a, refA)
		}},
		{"P3 a lock of Gerrit's is stale after 30 s, whatever the contender relies on", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit, Age: 15 * time.Second})
			impatient := e.acquireRequest(e.b, refA)
			impatient.StaleAfter = time.Millisecond
			_, err := e.sendAcquire(e.b, impatient)
			e.wantHolders(err, refA)

			e.db.Age(e, e.project, refA, 16*time.Second)
			was := e.row(refA)
			got := e.acquire(e.b, refA)
			if len(got.Reclaimed) != 1 || got.Reclaimed[0].StaleAfter != refdb.DefaultStaleAfter || got.Token <= was.Token {
				e.Errorf("got %+v", got.Acquired)
			}
			e.wantLock(got)
		}},
		{"a heartbeat in the future is fresh", func(e *env) {
			if !e.futureTimes() {
				return // such a row can't exist
			}
			l := e.acquire(e.a, refA)
			e.age(l, -2*time.Hour)
			if h := e.refused(e.b, refA); h[0].Age >= 0 || h[0].Stale() {
				e.Errorf("got %+v", h)
			}
			e.wantLock(l)
		}},
		{"a token in the future still yields a larger one", func(e *env) {
			if !e.futureTimes() {
				return // such a row can't exist
			}
			future := refdb.TokenOf(e.now(e.a).Add(time.Hour))
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit, Token: future, Age: time.Minute})
			got := e.acquire(e.b, refA, refB)
			if got.Token <= future {
				e.Fatalf("got token %d after %d", got.Token, future)
			}
			// Later tokens of each of the refs are larger still.
			e.release(e.b, got)
			for _, ref := range []string{refA, refB} {
				if l := e.acquire(e.a, ref); l.Token <= got.Token {
					e.Errorf("%s has token %d after %d", ref, l.Token, got.Token)
				}
			}
		}},
		{"a lock without heartbeat and token is stale, and its token 0", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit})
			e.db.Exec(e, "UPDATE locks SET heartbeat = NULL, token = NULL WHERE project = '"+e.project+"'")
			got := e.acquire(e.b, refA)
			if len(got.Reclaimed) != 1 || got.Reclaimed[0].Token != 0 || !got.Reclaimed[0].Heartbeat.Equal(time.UnixMicro(0)) {
				e.Errorf("got %+v", got.Acquired)
			}
			e.wantLock(got)
		}},
		{"a beat revives a stale lock that nobody took", func(e *env) {
			l := e.acquire(e.a, refA)
			e.age(l, stale)
			if got := e.beat(e.a, l.ids()...); got[0] != refdb.Beaten {
				e.Errorf("the beat says %v", got)
			}
			e.refused(e.b, refA)
			e.wantLock(l)
		}},
		{"P2 the token of a lock that was reclaimed counts for nothing", func(e *env) {
			l := e.acquire(e.a, refA)
			e.age(l, stale)
			successor := e.acquire(e.b, refA)
			was := e.row(refA)
			if got := e.beat(e.a, l.ids()...); got[0] != refdb.BeatLost {
				e.Errorf("its beat says %v", got)
			}
			if missing := e.release(e.a, l); len(missing) != 1 {
				e.Error("its release released its successor's")
			}
			e.wantLost(e.sendUpdate(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(refA, "", v1)}}), refA)
			e.wantLock(successor)
			if now := e.row(refA); !now.Heartbeat.Equal(was.Heartbeat) {
				e.Errorf("its successor's heartbeat went from %v to %v", was.Heartbeat, now.Heartbeat)
			}
			e.wantRefs(nil)
		}},
		{"a reclaim leaves nothing behind", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.age(l, stale)
			e.acquire(e.b, refA, refB)
			for _, m := range e.locks(refdb.LockQuery{Markers: true}) {
				if m.Owner == e.b.owner && m.Ref == refA && m.Project == marker(e.project, l.Token) {
					e.Errorf("a marker is left: %+v", m)
				}
			}
			if got := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}}); len(got) != 2 {
				e.Errorf("the project's locks are %+v", got)
			}
		}},
		{"a marker that a crashed reclaim left for an earlier token is no obstacle", func(e *env) {
			l := e.acquire(e.a, refA)
			e.db.InsertLock(e, refdb.LockInfo{Project: marker(e.project, l.Token-1), Ref: refA, Owner: gerrit})
			e.age(l, stale)
			e.wantLock(e.acquire(e.b, refA))
		}},
	}
}

// marker returns the project of the row that a reclaim inserts and deletes.
func marker(project string, t refdb.Token) string {
	return refdb.ReclaimPrefix + project + "_" + t.Time().Format("2006-01-02T15:04:05.000000000Z")
}

// A caller that gave up on the reply to its acquisition abandons it: it may have been carried
// out or not.
func abandonRows() []row {
	return []row{
		{"abandoning an acquisition deletes its locks, and no others", func(e *env) {
			l, other := e.acquire(e.a, refA, refB), e.acquire(e.a, refC)
			e.abandon(e.b, l.AcquireRequest)
			e.wantFree(refA, refB)
			e.wantLock(other)
			e.abandon(e.a, l.AcquireRequest) // nothing is left to delete
		}},
		{"abandoning an acquisition that was never carried out deletes nothing", func(e *env) {
			a, b := e.acquire(e.a, refA), e.acquire(e.b, refB)
			e.abandon(e.a, e.acquireRequest(e.a, refA, refB, refC))
			e.wantLock(a)
			e.wantLock(b)
		}},
		{"another nonce of the same owner is left alone", func(e *env) {
			l := e.acquire(e.a, refA)
			r := l.AcquireRequest
			r.Nonce += "x"
			e.abandon(e.a, r)
			e.wantLock(l)
		}},
		{"the same nonce of another owner is left alone", func(e *env) {
			l := e.acquire(e.a, refA)
			r := l.AcquireRequest
			r.Owner = e.b.owner
			e.abandon(e.b, r)
			e.wantLock(l)
		}},
		{"P2 a row that Gerrit's plugin has taken over, and left the nonce in, is left alone, and the rest goes", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.db.TakeOver(e, e.project, refA, gerrit)
			alone := l.AcquireRequest
			alone.Refs = []string{refA}
			e.abandon(e.a, alone)
			e.abandon(e.a, l.AcquireRequest)
			e.wantGerrits(refA)
			e.wantFree(refB)
		}},
		{"a row that somebody reclaimed is left alone, and the rest goes", func(e *env) {
			l := e.acquire(e.a, refA, refB, refC)
			e.db.Age(e, e.project, refB, stale)
			next := e.acquire(e.b, refB)
			e.abandon(e.a, l.AcquireRequest)
			e.wantFree(refA, refC)
			e.wantLock(next)
		}},
		{"a lock of Gerrit's, which has no nonce, is left alone", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: e.a.owner})
			e.abandon(e.a, e.acquireRequest(e.a, refA))
			e.row(refA)
		}},
		{"abandoning an acquisition in one project leaves the same refs of its neighbours alone", func(e *env) {
			l := e.acquire(e.a, refA)
			for _, p := range []string{"/b", "_", "A"} {
				r := l.AcquireRequest
				r.Project += p
				e.abandon(e.a, r)
			}
			e.wantLock(l)
		}},
		{"as many locks as an acquisition may have are abandoned at once", func(e *env) {
			names := manyNames(e.scale(refdb.MaxLockRefs))
			l := e.acquire(e.a, names...)
			e.abandon(e.a, l.AcquireRequest)
			if got := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}}); len(got) != 0 {
				e.Errorf("%d locks are left", len(got))
			}
		}},
		{"locks that stand for intents are left alone", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			e.abandon(e.a, l.lock().AcquireRequest)
			e.wantIntended(l)
		}},
	}
}
