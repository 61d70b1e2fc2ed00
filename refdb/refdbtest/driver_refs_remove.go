package refdbtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func removeRows() []row {
	return []row{
		{"a project is removed whole, tombstones too, and nothing else", func(e *env) {
			neighbours := []string{"/b", "_b", "%", "-", "A", " "}
			for _, n := range append(neighbours, "") {
				e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Project: e.project + n, Updates: []refdb.Update{move(refA, "", v1), move(refB, "", refdb.Deleted)}}))
				r := e.acquireRequest(e.a, refA)
				r.Project += n
				l, err := e.sendAcquire(e.a, r)
				e.must(err)
				e.age(l, stale)
			}
			if n := e.remove(refdb.RemoveRequest{Limit: 100}); n != 2 {
				e.Errorf("removed %d refs, want 2", n)
			}
			e.wantRefs(nil)
			e.wantFree(refA)
			for _, n := range neighbours {
				if got := e.list(e.project + n); len(got) != 2 {
					e.Errorf("project %q holds %v", e.project+n, got)
				}
				if _, ok := e.db.RowLock(e, e.project+n, refA); !ok {
					e.Errorf("the lock of project %q is gone", e.project+n)
				}
			}
		}},
		{"a removed ref is unknown again", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			e.remove(refdb.RemoveRequest{Limit: 10})
			e.wantMismatches(e.update(e.a, move(refA, v1, v2)), refdb.Mismatch{Ref: refA, Want: v1})
			e.must(e.update(e.a, move(refA, "", v2)))
		}},
		{"removing nothing removes nothing", func(e *env) {
			if n := e.remove(refdb.RemoveRequest{Limit: 10}); n != 0 {
				e.Errorf("removed %d", n)
			}
		}},
		{"a call removes at most as many refs as it may, and the locks go with the last", func(e *env) {
			var updates []refdb.Update
			for i := range 10 {
				updates = append(updates, move(fmt.Sprintf("refs/heads/%d", i), "", v1))
			}
			e.must(e.update(e.a, updates...))
			l := e.acquire(e.a, "refs/heads/0", "refs/heads/9", "refs/x")
			e.age(l, stale)
			var got []int
			for left := 10; left > 0; {
				n := e.remove(refdb.RemoveRequest{Limit: 4})
				got, left = append(got, n), left-n
				if refs := e.list(e.project); len(refs) != left {
					e.Fatalf("%d refs are left, want %d", len(refs), left)
				}
				if left > 0 {
					e.wantLock(l)
				}
			}
			if !slices.Equal(got, []int{4, 4, 2}) {
				e.Errorf("removed %v", got)
			}
			e.wantFree(l.refs()...)
		}},
		{"a fresh lock on any ref of the project refuses its removal", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			old, l := e.acquire(e.a, refB), e.acquire(e.a, "refs/not/stored")
			e.age(old, stale)
			_, err := e.b.Remove(e.Context(), refdb.RemoveRequest{Project: e.project, Limit: 10})
			holders := e.holders(err)
			if !slices.ContainsFunc(holders, func(h refdb.LockInfo) bool {
				return h.Project == e.project && h.Ref == "refs/not/stored" && h.Owner == l.Owner && h.Token == l.Token && !h.Stale()
			}) {
				e.Errorf("the holders are %+v", holders)
			}
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantLock(l)
			e.wantLock(old)
			e.release(e.a, l)
			if n := e.remove(refdb.RemoveRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
		}},
		{"a fresh lock of Gerrit's refuses it too", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refA, Owner: gerrit, Age: 15 * time.Second})
			_, err := e.b.Remove(e.Context(), refdb.RemoveRequest{Project: e.project, Limit: 10})
			e.wantHolders(err, refA)
			e.db.Age(e, e.project, refA, 16*time.Second)
			if n := e.remove(refdb.RemoveRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
		}},
		{"a lock on a neighbour, whose name starts alike, refuses nothing", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			for _, n := range []string{"/b", "_", "%", "A"} {
				r := e.acquireRequest(e.a, refA)
				r.Project += n
				_, err := e.sendAcquire(e.a, r)
				e.must(err)
			}
			if n := e.remove(refdb.RemoveRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
		}},
		{"force removes in spite of a fresh lock, whose holder learns", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			l := e.acquire(e.a, refA)
			if n := e.remove(refdb.RemoveRequest{Limit: 10, Locks: refdb.AdvisoryLocks}); n != 1 {
				e.Errorf("removed %d", n)
			}
			e.wantFree(refA)
			if got := e.beat(e.a, l.ids()...); got[0] != refdb.BeatLost {
				e.Errorf("the holder's beat says %v", got)
			}
			e.wantLost(e.sendUpdate(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(refA, "", v1)}}), refA)
		}},
		{"force removes at most as many refs as it may, and the locks go with the last, whose intents it heeds", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", v1), move(refC, "", v1)))
			fresh, old := e.acquire(e.a, refA), e.acquire(e.a, "refs/x")
			e.age(old, stale)
			forced := refdb.RemoveRequest{Limit: 2, Locks: refdb.AdvisoryLocks}
			if n := e.remove(forced); n != 2 {
				e.Errorf("removed %d", n)
			}
			e.wantLock(fresh)
			e.wantLock(old)
			l := e.prepare(e.a, move("refs/y", "", v1))
			forced.Project = e.project
			_, err := e.b.Remove(e.Context(), forced)
			if !slices.ContainsFunc(e.holders(err), func(h refdb.LockInfo) bool { return h.Ref == "refs/y" && h.Intended() }) {
				e.Errorf("refused by %v", err)
			}
			e.drop(e.a, l)
			if n := e.remove(forced); n != 1 {
				e.Errorf("removed %d", n)
			}
			e.wantFree(refA, "refs/x")
		}},
		{"purging tombstones takes the deleted refs of one project only", func(e *env) {
			want := map[string]refdb.Value{refA: v1, refB: "0"}
			for _, p := range []string{e.project, e.project + "/b", e.project + "_"} {
				e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Project: p, Updates: []refdb.Update{
					move("refs/dead/1", "", refdb.Deleted), move("refs/dead/2", "", refdb.Deleted256),
					move(refA, "", v1), move(refB, "", "0"),
				}}))
			}
			if n := e.purgeTombstones(refdb.TombstoneRequest{Limit: 10}); n != 2 {
				e.Errorf("removed %d refs, want 2", n)
			}
			e.wantRefs(want)
			for _, p := range []string{"/b", "_"} {
				if got := e.list(e.project + p); len(got) != 4 {
					e.Errorf("project %q holds %v", e.project+p, got)
				}
			}
		}},
		{"purging tombstones heeds its limit", func(e *env) {
			for i := range 5 {
				e.must(e.update(e.a, move(fmt.Sprintf("refs/heads/%d", i), "", refdb.Deleted)))
			}
			for _, want := range []int{2, 2, 1, 0} {
				if n := e.purgeTombstones(refdb.TombstoneRequest{Limit: 2}); n != want {
					e.Errorf("removed %d, want %d", n, want)
				}
			}
		}},
		{"purging tombstones takes those that were deleted long enough ago", func(e *env) {
			e.must(e.update(e.a, move(refA, "", refdb.Deleted), move(refB, "", refdb.Deleted), move(refC, "", v1)))
			// Give two of them the time of an old lock: SQL that every database understands.
			l := e.acquire(e.a, refA)
			e.age(l, 2*time.Hour)
			e.db.Exec(e, fmt.Sprintf(`UPDATE refs SET time = (SELECT l.heartbeat FROM locks l WHERE l.project = '%s' AND l.ref = '%s')
				WHERE project = '%[1]s' AND ref IN ('%s', '%s')`, e.project, refA, refA, refC))
			for _, step := range []struct {
				olderThan time.Duration
				want      int
			}{{3 * time.Hour, 0}, {time.Hour, 1}, {time.Hour, 0}} {
				if n := e.purgeTombstones(refdb.TombstoneRequest{Limit: 10, OlderThan: step.olderThan}); n != step.want {
					e.Errorf("older than %v: removed %d, want %d", step.olderThan, n, step.want)
				}
			}
			e.wantRefs(map[string]refdb.Value{refB: refdb.Deleted, refC: v1})
		}},
		{"purging tombstones neither heeds locks nor ends them", func(e *env) {
			e.must(e.update(e.a, move(refA, "", refdb.Deleted)))
			fresh, old := e.acquire(e.a, refA), e.acquire(e.a, refB)
			e.age(old, stale)
			if n := e.purgeTombstones(refdb.TombstoneRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
			e.wantRefs(nil)
			e.wantLock(fresh)
			e.wantLock(old)
		}},
	}
}

// remove is a Remove of the row's project that succeeds.
func (e *env) remove(r refdb.RemoveRequest) (n int) {
	e.Helper()
	r.Project = e.project
	e.must(retry(func() (err error) {
		n, err = e.b.Remove(e.Context(), r)
		return err
	}))
	return n
}

// purgeTombstones is a PurgeTombstones of the row's project that succeeds.
func (e *env) purgeTombstones(r refdb.TombstoneRequest) (n int) {
	e.Helper()
	r.Project = e.project
	e.must(retry(func() (err error) {
		n, err = e.b.PurgeTombstones(e.Context(), r)
		return err
	}))
	return n
}
