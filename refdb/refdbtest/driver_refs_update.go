package refdbtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// absent are the values that stand for a ref that is not there.
func absent() []refdb.Value {
	return []refdb.Value{refdb.Unknown, refdb.Deleted, refdb.Deleted256}
}

func updateRows() []row {
	return []row{
		{"P6 refs are created, moved and deleted together", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", v1)))
			e.must(e.update(e.a, move(refA, v1, v2), move(refB, v1, refdb.Deleted), move(refC, "", v3)))
			e.wantRefs(map[string]refdb.Value{refA: v2, refB: refdb.Deleted, refC: v3})
		}},
		{"P6 one mismatch stops every update, and all of them are named in order", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", refdb.Deleted256), move(refC, "", v3)))
			before := e.list(e.project)
			err := e.update(e.b,
				move("HEAD", "", v1),    // matches, but is not to be created
				move(refA, v2, v3),      // wrong value
				move(refB, v1, v2),      // deleted
				move(refC, v3, v2),      // matches, but is not to be moved
				move("refs/x", v1, v2),  // unknown
				move("refs/z", "", v1),  // matches
				move("refs/zz", v3, v1), // unknown
			)
			e.wantMismatches(err,
				refdb.Mismatch{Ref: refA, Want: v2, Have: v1},
				refdb.Mismatch{Ref: refB, Want: v1, Have: refdb.Deleted256},
				refdb.Mismatch{Ref: "refs/x", Want: v1, Have: refdb.Unknown},
				refdb.Mismatch{Ref: "refs/zz", Want: v3, Have: refdb.Unknown},
			)
			after := e.list(e.project)
			if len(before) != len(after) {
				e.Fatalf("the project held %v and holds %v", before, after)
			}
			for i, r := range after {
				if b := before[i]; b.Name != r.Name || b.Value != r.Value || b.Op != r.Op || !b.Time.Equal(r.Time) {
					e.Errorf("%+v became %+v", b, r)
				}
			}
		}},
		{"an absent Old matches a ref that is unknown or deleted, whatever its zeros", func(e *env) {
			for i, old := range absent() {
				for j, have := range absent() {
					ref := fmt.Sprintf("refs/heads/%d-%d", i, j)
					if have != refdb.Unknown {
						e.must(e.update(e.a, move(ref, "", have)))
					}
					if err := e.update(e.b, move(ref, old, v1)); err != nil {
						e.Errorf("expecting %q of a ref that holds %q: %v", old, have, err)
					}
					if got := e.getOne(ref); got.Value != v1 {
						e.Errorf("expecting %q of a ref that holds %q left %v", old, have, got)
					}
				}
			}
		}},
		{"an absent Old does not match a ref that exists", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			for _, old := range absent() {
				e.wantMismatches(e.update(e.b, move(refA, old, v2)), refdb.Mismatch{Ref: refA, Want: old, Have: v1})
			}
			e.wantRefs(map[string]refdb.Value{refA: v1})
		}},
		{"an Old that holds something does not match a ref that is unknown or deleted", func(e *env) {
			for i, have := range absent() {
				ref := fmt.Sprintf("refs/heads/%d", i)
				if have != refdb.Unknown {
					e.must(e.update(e.a, move(ref, "", have)))
				}
				e.wantMismatches(e.update(e.b, move(ref, v1, v2)), refdb.Mismatch{Ref: ref, Want: v1, Have: have})
			}
			e.wantRefs(map[string]refdb.Value{"refs/heads/1": refdb.Deleted, "refs/heads/2": refdb.Deleted256})
		}},
		{"a wrong Old leaves the ref alone and says what it holds", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			e.wantMismatches(e.update(e.b, move(refA, v2, v3)), refdb.Mismatch{Ref: refA, Want: v2, Have: v1})
			e.wantRefs(map[string]refdb.Value{refA: v1})
		}},
		{"values are compared by bytes", func(e *env) {
			for i, v := range []refdb.Value{"abcdef", "caf\u00e9", "x "} {
				ref := fmt.Sprintf("refs/heads/%d", i)
				e.must(e.update(e.a, move(ref, "", v)))
				other := []refdb.Value{"ABCDEF", "cafe\u0301", "x"}[i]
				e.wantMismatches(e.update(e.b, move(ref, other, v1)), refdb.Mismatch{Ref: ref, Want: other, Have: v})
			}
		}},
		{"a deleted ref keeps its row, and is created again from zero", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			e.must(e.update(e.a, move(refA, v1, refdb.Deleted)))
			e.wantRefs(map[string]refdb.Value{refA: refdb.Deleted})
			e.must(e.update(e.a, move(refA, refdb.Deleted, v2)))
			e.wantRefs(map[string]refdb.Value{refA: v2})
		}},
		{"a ref that never existed can be deleted, which leaves a tombstone", func(e *env) {
			e.must(e.update(e.a, move(refA, "", refdb.Deleted)))
			e.wantRefs(map[string]refdb.Value{refA: refdb.Deleted})
		}},
		{"moving a ref to what it holds is an update too", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Origin: refdb.Origin{ID: "again"}, Updates: []refdb.Update{move(refA, v1, v1)}}))
			if got := e.getOne(refA); got.Value != v1 || got.Op != "again" {
				e.Errorf("got %+v", got)
			}
		}},
		{"adopting takes any Old of an unknown ref", func(e *env) {
			e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Adopt: true, Updates: []refdb.Update{move(refA, v1, v2), move(refB, "", v1), move(refC, v1, refdb.Deleted)}}))
			e.wantRefs(map[string]refdb.Value{refA: v2, refB: v1, refC: refdb.Deleted})
		}},
		{"adopting does not take a wrong Old of a ref that has a row", func(e *env) {
			e.must(e.update(e.a, move(refA, "", refdb.Deleted), move(refB, "", v1)))
			err := e.sendUpdate(e.a, refdb.UpdateRequest{Adopt: true, Updates: []refdb.Update{move(refA, v1, v2), move(refB, v2, v3), move(refC, v1, v2)}})
			e.wantMismatches(err,
				refdb.Mismatch{Ref: refA, Want: v1, Have: refdb.Deleted},
				refdb.Mismatch{Ref: refB, Want: v2, Have: v1})
			e.wantRefs(map[string]refdb.Value{refA: refdb.Deleted, refB: v1})
		}},
		{"an update of one project leaves the same refs of its neighbours alone", func(e *env) {
			for _, p := range []string{e.project, e.project + "/b", e.project + "_"} {
				e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Project: p, Updates: []refdb.Update{move(refA, "", v1)}}))
			}
			e.must(e.update(e.a, move(refA, v1, v2)))
			for _, p := range []string{e.project + "/b", e.project + "_"} {
				if got := e.list(p); len(got) != 1 || got[0].Value != v1 {
					e.Errorf("project %q holds %v", p, got)
				}
			}
		}},
		{"an update whose context has ended says so and writes nothing", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			err := e.a.Update(ctx, refdb.UpdateRequest{Project: e.project, Origin: refdb.Origin{ID: "late"}, Updates: []refdb.Update{move(refA, "", v1)}})
			if !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
			e.wantRefs(nil)
		}},
	}
}

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
			r := e.acquireRequest(e.a, refA)
			r.Project += "/x"
			_, err := e.sendAcquire(e.a, r)
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
				r := e.acquireRequest(e.a, ref)
				r.StaleAfter = after
				l, err := e.sendAcquire(e.a, r)
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
			e.must(e.sendUpdate(e.b, refdb.UpdateRequest{Locks: refdb.AdvisoryLocks, Updates: []refdb.Update{move(refA, "", v1), move(refB, "", v1)}}))
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v1})
			e.wantLock(fresh)
			e.wantLock(old)
		}},
		{"an advisory update still compares", func(e *env) {
			e.acquire(e.a, refA)
			err := e.sendUpdate(e.b, refdb.UpdateRequest{Locks: refdb.AdvisoryLocks, Updates: []refdb.Update{move(refA, v1, v2)}})
			e.wantMismatches(err, refdb.Mismatch{Ref: refA, Want: v1})
		}},
	}
}

func fenceRows() []row {
	fenced := func(e *env, p process, l lock, updates ...refdb.Update) error {
		return e.sendUpdate(p, refdb.UpdateRequest{Fence: l.fence(), Updates: updates})
	}
	releasing := func(e *env, p process, l lock, updates ...refdb.Update) error {
		return e.sendUpdate(p, refdb.UpdateRequest{Fence: l.releasing(), Updates: updates})
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
			e.changeOwner(refB)
			e.wantLost(fenced(e, e.a, l, move(refA, "", v1)), refB)
			e.wantLost(releasing(e, e.a, l, move(refA, "", v1)), refB)
			e.wantLock(l, refA)
			e.wantChangedOwner(l, refB)
			alone := e.acquire(e.a, refC)
			e.changeOwner(refC)
			e.wantLost(fenced(e, e.a, alone, move(refC, "", v1)), refC)
			e.wantLost(releasing(e, e.a, alone, move(refC, "", v1)), refC)
			e.wantChangedOwner(alone, refC)
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
			e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Fence: l.fence(), Adopt: true, Updates: []refdb.Update{move(refA, v1, v2)}}))
			e.wantRefs(map[string]refdb.Value{refA: v2})
		}},
		{"an advisory update with a fence passes the locks of others, not the loss of its own", func(e *env) {
			l, foreign := e.acquire(e.a, refA), e.acquire(e.b, refB)
			t := refdb.UpdateRequest{Fence: l.fence(), Locks: refdb.AdvisoryLocks, Updates: []refdb.Update{move(refB, "", v1)}}
			e.must(e.sendUpdate(e.a, t))
			e.release(e.a, l)
			t.Updates = []refdb.Update{move(refB, v1, v2)}
			e.wantLost(e.sendUpdate(e.a, t), refA)
			e.wantRefs(map[string]refdb.Value{refB: v1})
			e.wantLock(foreign)
		}},
		{"a fence of one project says nothing of the same ref in another", func(e *env) {
			l := e.acquire(e.a, refA)
			err := e.sendUpdate(e.a, refdb.UpdateRequest{Project: e.project + "/x", Fence: l.fence(), Updates: []refdb.Update{move(refA, "", v1)}})
			if len(e.list(e.project+"/x")) != 0 {
				e.Errorf("wrote under another project's lock: %v", err)
			}
		}},
	}
}
