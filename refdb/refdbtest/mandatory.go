package refdbtest

import (
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func mandatoryRows() []row {
	return []row{
		{"a fresh lock refuses an update that isn't made through it, even of its own process", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			l := e.acquire(e.a, refA)
			for _, p := range []process{e.a, e.b} {
				e.wantHolders(e.update(p, move(refA, v1, v2)), refA)
			}
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantLock(l)
		}},
		{"a refused update names every holder, stale ones too, and ends none", func(e *env) {
			a, c := e.acquire(e.a, refA), e.acquire(e.b, refC)
			e.age(a, stale)
			row := e.row(refC)
			holders := e.wantHolders(e.update(e.b, move(refA, "", v1), move(refB, "", v1), move(refC, "", v1)), refA, refC)
			h := holders[1]
			if h.Project != e.project || h.Owner != e.b.owner || h.Token != c.Token || !h.Heartbeat.Equal(row.Heartbeat) ||
				h.StaleAfter != staleAfter || h.Age < 0 || h.Age > time.Minute || h.Stale() || !holders[0].Stale() {
				e.Errorf("got %+v", holders)
			}
			e.wantRefs(nil)
			e.wantLock(a)
			e.wantLock(c)
		}},
		{"a lock refuses an update of any of its refs, and with it that of the others", func(e *env) {
			e.acquire(e.a, refB)
			e.wantHolders(e.update(e.b, move(refA, "", v1), move(refB, "", v1), move(refC, "", v1)), refB)
			e.wantRefs(nil)
		}},
		{"a lock on another ref, or on the ref in another project, is no obstacle", func(e *env) {
			e.acquire(e.a, refB)
			e.acquire(e.a, refA+"/x")
			r := e.request(e.a, refA)
			r.Project += "/x"
			_, err := e.send(e.a, r)
			e.must(err)
			e.must(e.update(e.b, move(refA, "", v1)))
		}},
		{"a lock comes before a mismatch", func(e *env) {
			e.acquire(e.a, refA)
			e.wantHolders(e.update(e.b, move(refA, v1, v2), move(refB, v1, v2)), refA)
		}},
		{"an update that passes a stale lock ends it, and its holder learns", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.age(l, stale)
			e.must(e.update(e.b, move(refA, "", v1)))
			e.wantFree(refA)
			e.wantLock(l, refB)
			if got := e.beat(e.a, l.ids()...); got[0] != refdb.BeatLost || got[1] != refdb.Beaten {
				e.Errorf("the holder's beat says %v", got)
			}
		}},
		{"a stale lock stays if the update fails", func(e *env) {
			l := e.acquire(e.a, refA)
			e.age(l, stale)
			e.wantMismatches(e.update(e.b, move(refA, v1, v2)), refdb.Mismatch{Ref: refA, Want: v1})
			e.wantLock(l)
		}},
		{"P3 a lock is judged by what its own holder relies on", func(e *env) {
			for ref, after := range map[string]time.Duration{refA: time.Minute, refB: time.Hour} {
				r := e.request(e.a, ref)
				r.StaleAfter = after
				l, err := e.send(e.a, r)
				e.must(err)
				e.age(l, 30*time.Minute)
			}
			e.must(e.update(e.b, move(refA, "", v1)))
			e.wantHolders(e.update(e.b, move(refB, "", v1)), refB)
		}},
		{"a lock of Gerrit's refuses for 30 s", func(e *env) {
			gerrit := refdb.LockInfo{Project: e.project, Owner: gerrit, Ref: refA, Age: 15 * time.Second}
			e.db.InsertLock(e, gerrit)
			gerrit.Ref, gerrit.Age = refB, 31*time.Second
			e.db.InsertLock(e, gerrit)
			h := e.wantHolders(e.update(e.a, move(refA, "", v1), move(refB, "", v1)), refA, refB)
			if h[0].Stale() || !h[1].Stale() || h[0].StaleAfter != refdb.DefaultStaleAfter {
				e.Errorf("got %+v", h)
			}
			e.must(e.update(e.a, move(refB, "", v1)))
			e.wantFree(refB)
		}},
		{"a heartbeat in the future is fresh", func(e *env) {
			if !e.futureTimes() {
				return // such a row can't be
			}
			e.age(e.acquire(e.a, refA), -2*time.Hour)
			e.wantHolders(e.update(e.b, move(refA, "", v1)), refA)
		}},
		{"an advisory update ignores locks and leaves them, stale or fresh", func(e *env) {
			fresh, old := e.acquire(e.a, refA), e.acquire(e.a, refB)
			e.age(old, stale)
			e.must(e.transact(e.b, refdb.UpdateRequest{Locks: refdb.AdvisoryLocks, Updates: []refdb.Update{move(refA, "", v1), move(refB, "", v1)}}))
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v1})
			e.wantLock(fresh)
			e.wantLock(old)
		}},
		{"an advisory update still compares", func(e *env) {
			e.acquire(e.a, refA)
			err := e.transact(e.b, refdb.UpdateRequest{Locks: refdb.AdvisoryLocks, Updates: []refdb.Update{move(refA, v1, v2)}})
			e.wantMismatches(err, refdb.Mismatch{Ref: refA, Want: v1})
		}},
	}
}
