package refdbtest

import (
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

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
			r := e.request(e.a, refA)
			r.StaleAfter = 2 * time.Hour
			l, err := e.send(e.a, r)
			e.must(err)
			impatient := e.request(e.b, refA)
			impatient.StaleAfter = time.Millisecond
			e.age(l, 2*time.Hour-time.Minute)
			_, err = e.send(e.b, impatient)
			e.wantHolders(err, refA)

			e.age(l, 2*time.Minute)
			patient := e.request(e.b, refA)
			patient.StaleAfter = 100 * time.Hour
			got, err := e.send(e.b, patient)
			e.must(err)
			e.age(got, 99*time.Hour) // the reclaimer's own setting counts from now on
			e.refused(e.a, refA)
		}},
		{"P3 a lock of Gerrit's is stale after 30 s, whatever the contender relies on", func(e *env) {
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit, Age: 15 * time.Second})
			impatient := e.request(e.b, refA)
			impatient.StaleAfter = time.Millisecond
			_, err := e.send(e.b, impatient)
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
				return // such a row can't be
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
				return // such a row can't be
			}
			future := refdb.TokenOf(e.now(e.a).Add(time.Hour))
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit, Token: future, Age: time.Minute})
			got := e.acquire(e.b, refA, refB)
			if got.Token <= future {
				e.Fatalf("got token %d after %d", got.Token, future)
			}
			// And so it stays, for all of its refs.
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
			e.wantLost(e.transact(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(refA, "", v1)}}), refA)
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

// marker is the project of the row that a reclaim puts up for a moment.
func marker(project string, t refdb.Token) string {
	return refdb.ReclaimPrefix + project + "_" + t.Time().Format("2006-01-02T15:04:05.000000000Z")
}
