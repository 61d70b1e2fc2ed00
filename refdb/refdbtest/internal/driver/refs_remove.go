package driver

import (
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

func removeRows() []row {
	return []row{
		{"a project is removed completely, including tombstones, and nothing else", func(e *env) {
			neighbours := []string{"/b", "_b", "%", "-", "A", " "}
			for _, n := range append(neighbours, "") {
				e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: e.Project + n, Updates: []driver.Update{suite.Move(refA, "", v1), suite.Move(refB, "", driver.Deleted)}}))
				r := e.AcquireRequest(e.A, refA)
				r.Project += n
				l, err := e.SendAcquire(e.A, r)
				e.Must(err)
				e.Age(l, stale)
			}
			if n := e.Remove(driver.RemoveRequest{Limit: 100}); n != 2 {
				e.Errorf("removed %d refs, want 2", n)
			}
			e.WantRefs(nil)
			e.WantFree(refA)
			for _, n := range neighbours {
				if got := e.List(e.Project + n); len(got) != 2 {
					e.Errorf("project %q holds %v", e.Project+n, got)
				}
				if _, ok := e.DB.RowLock(e, e.Project+n, refA); !ok {
					e.Errorf("the lock of project %q is gone", e.Project+n)
				}
			}
		}},
		{"a removed ref is unknown again", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			e.Remove(driver.RemoveRequest{Limit: 10})
			e.WantMismatches(e.Update(e.A, suite.Move(refA, v1, v2)), driver.Mismatch{Ref: refA, Want: v1})
			e.Must(e.Update(e.A, suite.Move(refA, "", v2)))
		}},
		{"removing nothing removes nothing", func(e *env) {
			if n := e.Remove(driver.RemoveRequest{Limit: 10}); n != 0 {
				e.Errorf("removed %d", n)
			}
		}},
		{"a call removes at most Limit refs, and the locks are removed with the last one", func(e *env) {
			var updates []driver.Update
			for i := range 10 {
				updates = append(updates, suite.Move(fmt.Sprintf("refs/heads/%d", i), "", v1))
			}
			e.Must(e.Update(e.A, updates...))
			l := e.Acquire(e.A, "refs/heads/0", "refs/heads/9", "refs/x")
			e.Age(l, stale)
			var got []int
			for left := 10; left > 0; {
				n := e.Remove(driver.RemoveRequest{Limit: 4})
				got, left = append(got, n), left-n
				if refs := e.List(e.Project); len(refs) != left {
					e.Fatalf("%d refs are left, want %d", len(refs), left)
				}
				if left > 0 {
					e.WantLock(l)
				}
			}
			if !slices.Equal(got, []int{4, 4, 2}) {
				e.Errorf("removed %v", got)
			}
			e.WantFree(l.Refs()...)
		}},
		{"a fresh lock on any ref of the project refuses its removal", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			old, l := e.Acquire(e.A, refB), e.Acquire(e.A, "refs/not/stored")
			e.Age(old, stale)
			_, err := e.B.Remove(e.Context(), driver.RemoveRequest{Project: e.Project, Limit: 10})
			holders := e.Holders(err)
			if !slices.ContainsFunc(holders, func(h driver.LockInfo) bool {
				return h.Project == e.Project && h.Ref == "refs/not/stored" && h.Owner == l.Owner && h.Token == l.Token && !h.Stale()
			}) {
				e.Errorf("the holders are %+v", holders)
			}
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantLock(l)
			e.WantLock(old)
			e.Release(e.A, l)
			if n := e.Remove(driver.RemoveRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
		}},
		{"a fresh lock of Gerrit's refuses the removal too", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project, Ref: refA, Owner: gerrit, Age: time.Second})
			_, err := e.B.Remove(e.Context(), driver.RemoveRequest{Project: e.Project, Limit: 10})
			e.WantHolders(err, refA)
			e.DB.Age(e, e.Project, refA, 30*time.Second)
			if n := e.Remove(driver.RemoveRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
		}},
		{"a lock of another project with the same prefix refuses nothing", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			for _, n := range []string{"/b", "_", "%", "A"} {
				r := e.AcquireRequest(e.A, refA)
				r.Project += n
				_, err := e.SendAcquire(e.A, r)
				e.Must(err)
			}
			if n := e.Remove(driver.RemoveRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
		}},
		{"a forced removal ignores a fresh lock, whose holder learns of the loss", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			l := e.Acquire(e.A, refA)
			if n := e.Remove(driver.RemoveRequest{Limit: 10, Locks: driver.AdvisoryLocks}); n != 1 {
				e.Errorf("removed %d", n)
			}
			e.WantFree(refA)
			if got := e.Beat(e.A, l.IDs()...); got[0] != driver.BeatLost {
				e.Errorf("the holder's beat says %v", got)
			}
			e.WantLost(e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Fence(), Updates: []driver.Update{suite.Move(refA, "", v1)}}), refA)
		}},
		{"a forced removal removes at most Limit refs, and the locks with the last one unless there are intents", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1), suite.Move(refC, "", v1)))
			fresh, old := e.Acquire(e.A, refA), e.Acquire(e.A, "refs/x")
			e.Age(old, stale)
			forced := driver.RemoveRequest{Limit: 2, Locks: driver.AdvisoryLocks}
			if n := e.Remove(forced); n != 2 {
				e.Errorf("removed %d", n)
			}
			e.WantLock(fresh)
			e.WantLock(old)
			l := e.Prepare(e.A, suite.Move("refs/y", "", v1))
			forced.Project = e.Project
			_, err := e.B.Remove(e.Context(), forced)
			if !slices.ContainsFunc(e.Holders(err), func(h driver.LockInfo) bool { return h.Ref == "refs/y" && h.Intended() }) {
				e.Errorf("refused by %v", err)
			}
			e.Drop(e.A, l)
			if n := e.Remove(forced); n != 1 {
				e.Errorf("removed %d", n)
			}
			e.WantFree(refA, "refs/x")
		}},
		{"purging tombstones takes the deleted refs of one project only", func(e *env) {
			want := map[string]driver.Value{refA: v1, refB: "0"}
			for _, p := range []string{e.Project, e.Project + "/b", e.Project + "_"} {
				e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: p, Updates: []driver.Update{
					suite.Move("refs/dead/1", "", driver.Deleted), suite.Move("refs/dead/2", "", driver.Deleted256),
					suite.Move(refA, "", v1), suite.Move(refB, "", "0"),
				}}))
			}
			if n := e.PurgeTombstones(driver.TombstoneRequest{Limit: 10}); n != 2 {
				e.Errorf("removed %d refs, want 2", n)
			}
			e.WantRefs(want)
			for _, p := range []string{"/b", "_"} {
				if got := e.List(e.Project + p); len(got) != 4 {
					e.Errorf("project %q holds %v", e.Project+p, got)
				}
			}
		}},
		{"purging tombstones observes its limit", func(e *env) {
			for i := range 5 {
				e.Must(e.Update(e.A, suite.Move(fmt.Sprintf("refs/heads/%d", i), "", driver.Deleted)))
			}
			for _, want := range []int{2, 2, 1, 0} {
				if n := e.PurgeTombstones(driver.TombstoneRequest{Limit: 2}); n != want {
					e.Errorf("removed %d, want %d", n, want)
				}
			}
		}},
		{"purging tombstones takes refs that were deleted long enough ago", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", driver.Deleted), suite.Move(refB, "", driver.Deleted), suite.Move(refC, "", v1)))
			// Give two of them the time of an old lock: SQL that every database understands.
			l := e.Acquire(e.A, refA)
			e.Age(l, 2*time.Hour)
			e.DB.Exec(e, fmt.Sprintf(`UPDATE refs SET time = (SELECT l.heartbeat FROM locks l WHERE l.project = '%s' AND l.ref = '%s')
				WHERE project = '%[1]s' AND ref IN ('%s', '%s')`, e.Project, refA, refA, refC))
			for _, step := range []struct {
				olderThan time.Duration
				want      int
			}{{3 * time.Hour, 0}, {time.Hour, 1}, {time.Hour, 0}} {
				if n := e.PurgeTombstones(driver.TombstoneRequest{Limit: 10, OlderThan: step.olderThan}); n != step.want {
					e.Errorf("older than %v: removed %d, want %d", step.olderThan, n, step.want)
				}
			}
			e.WantRefs(map[string]driver.Value{refB: driver.Deleted, refC: v1})
		}},
		{"purging tombstones ignores locks, and ends none", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", driver.Deleted)))
			fresh, old := e.Acquire(e.A, refA), e.Acquire(e.A, refB)
			e.Age(old, stale)
			if n := e.PurgeTombstones(driver.TombstoneRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
			e.WantRefs(nil)
			e.WantLock(fresh)
			e.WantLock(old)
		}},
	}
}
