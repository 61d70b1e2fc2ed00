package refdbtest

import (
	"github.com/globalrefdb/globalrefdb/refdb"
)

func fenceRows() []row {
	fenced := func(e *env, p process, l lock, updates ...refdb.Update) error {
		return e.transact(p, refdb.UpdateRequest{Fence: l.fence(), Updates: updates})
	}
	releasing := func(e *env, p process, l lock, updates ...refdb.Update) error {
		return e.transact(p, refdb.UpdateRequest{Fence: l.releasing(), Updates: updates})
	}
	return []row{
		{"a fenced update passes its own lock and keeps it", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.must(fenced(e, e.a, l, move(refA, "", v1), move(refB, "", v2)))
			e.must(fenced(e, e.a, l, move(refA, v1, v2)))
			e.wantRefs(map[string]refdb.Value{refA: v2, refB: v2})
			e.wantLock(l)
		}},
		{"P2 a fence whose lock was reclaimed writes nothing", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			l := e.acquire(e.a, refA)
			e.age(l, stale)
			successor := e.acquire(e.b, refA)
			e.wantLost(fenced(e, e.a, l, move(refA, v1, v2)), refA)
			e.wantLost(releasing(e, e.a, l, move(refA, v1, v2)), refA)
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantLock(successor)
		}},
		{"P2 a fence whose lock was released, even taken again by its owner, writes nothing", func(e *env) {
			l := e.acquire(e.a, refA)
			e.release(e.a, l)
			e.wantLost(fenced(e, e.a, l, move(refA, "", v1)), refA)
			e.acquire(e.a, refA)
			e.wantLost(fenced(e, e.a, l, move(refA, "", v1)), refA)
			e.wantRefs(nil)
		}},
		{"P2 a fence that lost one of its refs writes nothing, and names those it lost", func(e *env) {
			l := e.acquire(e.a, "HEAD", refA, refB, refC)
			for _, ref := range []string{refA, refC} {
				e.db.Age(e, e.project, ref, stale)
			}
			e.must(e.update(e.b, move(refA, "", v1))) // ends the stale lock
			e.acquire(e.b, refC)                      // reclaims it
			e.wantLost(releasing(e, e.a, l, move(refB, "", v1)), refA, refC)
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantLock(l, "HEAD", refB)
		}},
		{"P2 a fence whose lock has another owner writes nothing, whatever the token", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.disown(refB)
			e.wantLost(fenced(e, e.a, l, move(refA, "", v1)), refB)
			e.wantLost(releasing(e, e.a, l, move(refA, "", v1)), refB)
			e.wantLock(l, refA)
			e.wantDisowned(l, refB)
			alone := e.acquire(e.a, refC)
			e.disown(refC)
			e.wantLost(fenced(e, e.a, alone, move(refC, "", v1)), refC)
			e.wantLost(releasing(e, e.a, alone, move(refC, "", v1)), refC)
			e.wantDisowned(alone, refC)
			e.wantRefs(nil)
		}},
		{"a fence holds as long as nobody took the lock, stale or not", func(e *env) {
			l := e.acquire(e.a, refA)
			e.age(l, stale)
			e.must(fenced(e, e.a, l, move(refA, "", v1)))
			e.wantLock(l)
		}},
		{"a lost fence comes before a lock, a lock before a mismatch", func(e *env) {
			l := e.acquire(e.a, refA)
			e.acquire(e.b, refB)
			updates := []refdb.Update{move(refA, v1, v2), move(refB, v1, v2)}
			e.wantHolders(fenced(e, e.a, l, updates...), refB)
			e.release(e.a, l)
			e.wantLost(fenced(e, e.a, l, updates...), refA)
			e.wantRefs(nil)
		}},
		{"a fence need not cover the refs of the update", func(e *env) {
			l := e.acquire(e.a, refA)
			e.must(fenced(e, e.a, l, move(refB, "", v1), move(refC, "", v1)))
			e.wantRefs(map[string]refdb.Value{refB: v1, refC: v1})
			e.wantLock(l)
		}},
		{"a fence is no pass for the locks of others", func(e *env) {
			l, foreign := e.acquire(e.a, refA), e.acquire(e.b, refB)
			e.wantHolders(fenced(e, e.a, l, move(refA, "", v1), move(refB, "", v1)), refB)
			e.wantHolders(releasing(e, e.a, l, move(refA, "", v1), move(refB, "", v1)), refB)
			e.wantRefs(nil)
			e.wantLock(l)
			e.wantLock(foreign)
		}},
		{"a fence is no pass for another lock of the same process", func(e *env) {
			l := e.acquire(e.a, refA)
			e.acquire(e.a, refB)
			e.wantHolders(fenced(e, e.a, l, move(refB, "", v1)), refB)
		}},
		{"a stale foreign lock on an updated ref is ended by a fenced update, and stays if that fails", func(e *env) {
			l, foreign := e.acquire(e.a, refA), e.acquire(e.b, refB)
			e.age(foreign, stale)
			e.wantMismatches(fenced(e, e.a, l, move(refB, v1, v2)), refdb.Mismatch{Ref: refB, Want: v1})
			e.wantLock(foreign)
			e.must(fenced(e, e.a, l, move(refB, "", v1)))
			e.wantFree(refB)
			e.wantLock(l)
		}},
		{"a stale foreign lock on another ref is left alone", func(e *env) {
			l, foreign := e.acquire(e.a, refA), e.acquire(e.b, refB)
			e.age(foreign, stale)
			e.must(fenced(e, e.a, l, move(refA, "", v1)))
			e.wantLock(foreign)
		}},
		{"an update that releases ends the whole lock with it", func(e *env) {
			l, other := e.acquire(e.a, refA, refB), e.acquire(e.a, refC)
			e.must(releasing(e, e.a, l, move(refA, "", v1)))
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantFree(refA, refB)
			e.wantLock(other)
			e.wantLost(fenced(e, e.a, l, move(refA, v1, v2)), refA, refB)
		}},
		{"an update that releases and fails keeps the lock", func(e *env) {
			l := e.acquire(e.a, refA, refB)
			e.wantMismatches(releasing(e, e.a, l, move(refA, "", v1), move(refB, v1, v2)), refdb.Mismatch{Ref: refB, Want: v1})
			e.wantRefs(nil)
			e.wantLock(l)
		}},
		{"a fenced update compares as any other, and may adopt", func(e *env) {
			l := e.acquire(e.a, refA)
			e.wantMismatches(fenced(e, e.a, l, move(refA, v1, v2)), refdb.Mismatch{Ref: refA, Want: v1})
			e.must(e.transact(e.a, refdb.UpdateRequest{Fence: l.fence(), Adopt: true, Updates: []refdb.Update{move(refA, v1, v2)}}))
			e.wantRefs(map[string]refdb.Value{refA: v2})
		}},
		{"an advisory update with a fence passes the locks of others, not the loss of its own", func(e *env) {
			l, foreign := e.acquire(e.a, refA), e.acquire(e.b, refB)
			t := refdb.UpdateRequest{Fence: l.fence(), Locks: refdb.AdvisoryLocks, Updates: []refdb.Update{move(refB, "", v1)}}
			e.must(e.transact(e.a, t))
			e.release(e.a, l)
			t.Updates = []refdb.Update{move(refB, v1, v2)}
			e.wantLost(e.transact(e.a, t), refA)
			e.wantRefs(map[string]refdb.Value{refB: v1})
			e.wantLock(foreign)
		}},
		{"a fence of one project says nothing of the same ref in another", func(e *env) {
			l := e.acquire(e.a, refA)
			err := e.transact(e.a, refdb.UpdateRequest{Project: e.project + "/x", Fence: l.fence(), Updates: []refdb.Update{move(refA, "", v1)}})
			if len(e.list(e.project+"/x")) != 0 {
				e.Errorf("wrote under another project's lock: %v", err)
			}
		}},
	}
}
