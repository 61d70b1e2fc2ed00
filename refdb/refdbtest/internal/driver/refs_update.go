package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// absent are the values that stand for a ref that is not there.
func absent() []driver.Value {
	return []driver.Value{driver.Unknown, driver.Deleted, driver.Deleted256}
}

func updateRows() []row {
	return []row{
		{"P6 refs are created, moved and deleted together", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1)))
			e.Must(e.Update(e.A, suite.Move(refA, v1, v2), suite.Move(refB, v1, driver.Deleted), suite.Move(refC, "", v3)))
			e.WantRefs(map[string]driver.Value{refA: v2, refB: driver.Deleted, refC: v3})
		}},
		{"P6 one mismatch stops every update, and all of them are named in order", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", driver.Deleted256), suite.Move(refC, "", v3)))
			before := e.List(e.Project)
			err := e.Update(e.B,
				suite.Move("HEAD", "", v1),    // matches, but is not to be created
				suite.Move(refA, v2, v3),      // wrong value
				suite.Move(refB, v1, v2),      // deleted
				suite.Move(refC, v3, v2),      // matches, but is not to be moved
				suite.Move("refs/x", v1, v2),  // unknown
				suite.Move("refs/z", "", v1),  // matches
				suite.Move("refs/zz", v3, v1), // unknown
			)
			e.WantMismatches(err,
				driver.Mismatch{Ref: refA, Want: v2, Have: v1},
				driver.Mismatch{Ref: refB, Want: v1, Have: driver.Deleted256},
				driver.Mismatch{Ref: "refs/x", Want: v1, Have: driver.Unknown},
				driver.Mismatch{Ref: "refs/zz", Want: v3, Have: driver.Unknown},
			)
			after := e.List(e.Project)
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
					if have != driver.Unknown {
						e.Must(e.Update(e.A, suite.Move(ref, "", have)))
					}
					if err := e.Update(e.B, suite.Move(ref, old, v1)); err != nil {
						e.Errorf("expecting %q of a ref that holds %q: %v", old, have, err)
					}
					if got := e.GetOne(ref); got.Value != v1 {
						e.Errorf("expecting %q of a ref that holds %q left %v", old, have, got)
					}
				}
			}
		}},
		{"an absent Old does not match a ref that exists", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			for _, old := range absent() {
				e.WantMismatches(e.Update(e.B, suite.Move(refA, old, v2)), driver.Mismatch{Ref: refA, Want: old, Have: v1})
			}
			e.WantRefs(map[string]driver.Value{refA: v1})
		}},
		{"an Old that is not absent does not match a ref that is unknown or deleted", func(e *env) {
			for i, have := range absent() {
				ref := fmt.Sprintf("refs/heads/%d", i)
				if have != driver.Unknown {
					e.Must(e.Update(e.A, suite.Move(ref, "", have)))
				}
				e.WantMismatches(e.Update(e.B, suite.Move(ref, v1, v2)), driver.Mismatch{Ref: ref, Want: v1, Have: have})
			}
			e.WantRefs(map[string]driver.Value{"refs/heads/1": driver.Deleted, "refs/heads/2": driver.Deleted256})
		}},
		{"a wrong Old does not change the ref, and the error has its value", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			e.WantMismatches(e.Update(e.B, suite.Move(refA, v2, v3)), driver.Mismatch{Ref: refA, Want: v2, Have: v1})
			e.WantRefs(map[string]driver.Value{refA: v1})
		}},
		{"values are compared by bytes", func(e *env) {
			for i, v := range []driver.Value{"abcdef", "caf\u00e9", "x "} {
				ref := fmt.Sprintf("refs/heads/%d", i)
				e.Must(e.Update(e.A, suite.Move(ref, "", v)))
				other := []driver.Value{"ABCDEF", "cafe\u0301", "x"}[i]
				e.WantMismatches(e.Update(e.B, suite.Move(ref, other, v1)), driver.Mismatch{Ref: ref, Want: other, Have: v})
			}
		}},
		{"a deleted ref keeps its row, and is created again from zero", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			e.Must(e.Update(e.A, suite.Move(refA, v1, driver.Deleted)))
			e.WantRefs(map[string]driver.Value{refA: driver.Deleted})
			e.Must(e.Update(e.A, suite.Move(refA, driver.Deleted, v2)))
			e.WantRefs(map[string]driver.Value{refA: v2})
		}},
		{"a ref that never existed can be deleted, which leaves a tombstone", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", driver.Deleted)))
			e.WantRefs(map[string]driver.Value{refA: driver.Deleted})
		}},
		{"moving a ref to its present value is an update too", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Origin: driver.Origin{ID: "again"}, Updates: []driver.Update{suite.Move(refA, v1, v1)}}))
			if got := e.GetOne(refA); got.Value != v1 || got.Op != "again" {
				e.Errorf("got %+v", got)
			}
		}},
		{"Adopt accepts any Old of an unknown ref", func(e *env) {
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Adopt: true, Updates: []driver.Update{suite.Move(refA, v1, v2), suite.Move(refB, "", v1), suite.Move(refC, v1, driver.Deleted)}}))
			e.WantRefs(map[string]driver.Value{refA: v2, refB: v1, refC: driver.Deleted})
		}},
		{"Adopt does not accept a wrong Old of a ref that has a row", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", driver.Deleted), suite.Move(refB, "", v1)))
			err := e.SendUpdate(e.A, driver.UpdateRequest{Adopt: true, Updates: []driver.Update{suite.Move(refA, v1, v2), suite.Move(refB, v2, v3), suite.Move(refC, v1, v2)}})
			e.WantMismatches(err,
				driver.Mismatch{Ref: refA, Want: v1, Have: driver.Deleted},
				driver.Mismatch{Ref: refB, Want: v2, Have: v1})
			e.WantRefs(map[string]driver.Value{refA: driver.Deleted, refB: v1})
		}},
		{"an update of one project does not affect the same refs of other projects", func(e *env) {
			for _, p := range []string{e.Project, e.Project + "/b", e.Project + "_"} {
				e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: p, Updates: []driver.Update{suite.Move(refA, "", v1)}}))
			}
			e.Must(e.Update(e.A, suite.Move(refA, v1, v2)))
			for _, p := range []string{e.Project + "/b", e.Project + "_"} {
				if got := e.List(p); len(got) != 1 || got[0].Value != v1 {
					e.Errorf("project %q holds %v", p, got)
				}
			}
		}},
		{"many new refs are checked like few, whatever refs are between them", suite.Long(func(e *env) {
			for _, n := range []int{3, 150, 300} {
				for what, refused := range map[string]bool{
					"nothing": false, "another ref": false, "a deleted ref": false, "a lock on another ref": false, "a stale lock": false,
					"a ref that exists": true, "a lock": true,
				} {
					var updates []driver.Update
					want := map[string]driver.Value{}
					for i := range n {
						ref := fmt.Sprintf("refs/heads/%d/%s/%03d", n, strings.ReplaceAll(what, " ", "-"), i)
						updates, want[ref] = append(updates, suite.Move(ref, "", v2)), v2
					}
					first, middle, last := updates[0].Ref, updates[n/2].Ref, updates[n-1].Ref
					var l lock
					switch what {
					case "another ref":
						e.Must(e.Update(e.A, suite.Move(middle+"-", "", v1)))
						want[middle+"-"] = v1
					case "a deleted ref":
						e.Must(e.Update(e.A, suite.Move(first, "", driver.Deleted)))
					case "a lock on another ref":
						l = e.Acquire(e.A, middle+"-")
					case "a stale lock":
						e.Age(e.Acquire(e.A, last), stale)
					case "a lock":
						l = e.Acquire(e.A, last)
					case "a ref that exists":
						e.Must(e.Update(e.A, suite.Move(last, "", v1)))
					}
					err := e.Update(e.B, updates...)
					switch {
					case !refused:
						e.Must(err)
						e.WantFree(last)
					case what == "a lock":
						e.WantHolders(err, last)
						want = map[string]driver.Value{}
					default:
						e.WantMismatches(err, driver.Mismatch{Ref: last, Have: v1})
						want = map[string]driver.Value{last: v1}
					}
					if what == "a lock" || what == "a lock on another ref" {
						e.WantLock(l)
					}
					got := map[string]driver.Value{}
					for _, r := range e.List(e.Project) {
						if strings.HasPrefix(r.Name, first[:len(first)-3]) {
							got[r.Name] = r.Value
						}
					}
					if !maps.Equal(got, want) {
						e.Errorf("%s among %d: the project holds %d refs of %d: %v", what, n, len(got), len(want), got)
					}
				}
			}
		})},
		{"an update whose context has ended returns its error and writes nothing", func(e *env) {
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			err := e.A.Update(ctx, driver.UpdateRequest{Project: e.Project, Origin: driver.Origin{ID: "late"}, Updates: []driver.Update{suite.Move(refA, "", v1)}})
			if !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
			e.WantRefs(nil)
		}},
	}
}

func mandatoryRows() []row {
	return []row{
		{"a fresh lock refuses an update without it, even of its own process", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			l := e.Acquire(e.A, refA)
			for _, p := range []process{e.A, e.B} {
				e.WantHolders(e.Update(p, suite.Move(refA, v1, v2)), refA)
			}
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantLock(l)
		}},
		{"a refused update names every holder, including stale ones, and ends no lock", func(e *env) {
			a, c := e.Acquire(e.A, refA), e.Acquire(e.B, refC)
			e.Age(a, stale)
			row := e.Row(refC)
			holders := e.WantHolders(e.Update(e.B, suite.Move(refA, "", v1), suite.Move(refB, "", v1), suite.Move(refC, "", v1)), refA, refC)
			h := holders[1]
			if h.Project != e.Project || h.Owner != e.B.Owner || h.Token != c.Token || !h.Heartbeat.Equal(row.Heartbeat) ||
				h.StaleAfter != staleAfter || h.Age < 0 || h.Age > time.Hour || h.Stale() || !holders[0].Stale() {
				e.Errorf("got %+v", holders)
			}
			e.WantRefs(nil)
			e.WantLock(a)
			e.WantLock(c)
		}},
		{"a lock refuses an update of any of its refs together with others", func(e *env) {
			e.Acquire(e.A, refB)
			e.WantHolders(e.Update(e.B, suite.Move(refA, "", v1), suite.Move(refB, "", v1), suite.Move(refC, "", v1)), refB)
			e.WantRefs(nil)
		}},
		{"a lock on another ref, or on the ref in another project, refuses nothing", func(e *env) {
			e.Acquire(e.A, refB)
			e.Acquire(e.A, refA+"/x")
			r := e.AcquireRequest(e.A, refA)
			r.Project += "/x"
			_, err := e.SendAcquire(e.A, r)
			e.Must(err)
			e.Must(e.Update(e.B, suite.Move(refA, "", v1)))
		}},
		{"a lock takes precedence over a mismatch", func(e *env) {
			e.Acquire(e.A, refA)
			e.WantHolders(e.Update(e.B, suite.Move(refA, v1, v2), suite.Move(refB, v1, v2)), refA)
		}},
		{"an update that passes a stale lock ends the lock, whose holder learns of the loss", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			e.Age(l, stale)
			e.Must(e.Update(e.B, suite.Move(refA, "", v1)))
			e.WantFree(refA)
			e.WantLock(l, refB)
			if got := e.Beat(e.A, l.IDs()...); got[0] != driver.BeatLost || got[1] != driver.BeatRenewed {
				e.Errorf("the holder's beat says %v", got)
			}
		}},
		{"a stale lock stays if the update fails", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Age(l, stale)
			e.WantMismatches(e.Update(e.B, suite.Move(refA, v1, v2)), driver.Mismatch{Ref: refA, Want: v1})
			e.WantLock(l)
		}},
		{"P3 the stale-after of the lock's holder decides whether the lock is stale", func(e *env) {
			for ref, after := range map[string]time.Duration{refA: time.Minute, refB: time.Hour} {
				r := e.AcquireRequest(e.A, ref)
				r.StaleAfter = after
				l, err := e.SendAcquire(e.A, r)
				e.Must(err)
				e.Age(l, 30*time.Minute)
			}
			e.Must(e.Update(e.B, suite.Move(refA, "", v1)))
			e.WantHolders(e.Update(e.B, suite.Move(refB, "", v1)), refB)
		}},
		{"a lock of Gerrit's refuses updates for 30 s", func(e *env) {
			gerrit := driver.LockInfo{Project: e.Project, Owner: gerrit, Ref: refA, Age: time.Second}
			e.DB.InsertLock(e, gerrit)
			gerrit.Ref, gerrit.Age = refB, 31*time.Second
			e.DB.InsertLock(e, gerrit)
			h := e.WantHolders(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1)), refA, refB)
			if h[0].Stale() || !h[1].Stale() || h[0].StaleAfter != driver.DefaultStaleAfter {
				e.Errorf("got %+v", h)
			}
			e.Must(e.Update(e.A, suite.Move(refB, "", v1)))
			e.WantFree(refB)
		}},
		{"a heartbeat in the future is fresh", func(e *env) {
			if !e.FutureTimes() {
				return // such a row can't be
			}
			e.Age(e.Acquire(e.A, refA), -2*time.Hour)
			e.WantHolders(e.Update(e.B, suite.Move(refA, "", v1)), refA)
		}},
		{"an advisory update ignores locks and leaves them, stale or fresh", func(e *env) {
			fresh, old := e.Acquire(e.A, refA), e.Acquire(e.A, refB)
			e.Age(old, stale)
			e.Must(e.SendUpdate(e.B, driver.UpdateRequest{Locks: driver.AdvisoryLocks, Updates: []driver.Update{suite.Move(refA, "", v1), suite.Move(refB, "", v1)}}))
			e.WantRefs(map[string]driver.Value{refA: v1, refB: v1})
			e.WantLock(fresh)
			e.WantLock(old)
		}},
		{"an advisory update still compares values", func(e *env) {
			e.Acquire(e.A, refA)
			err := e.SendUpdate(e.B, driver.UpdateRequest{Locks: driver.AdvisoryLocks, Updates: []driver.Update{suite.Move(refA, v1, v2)}})
			e.WantMismatches(err, driver.Mismatch{Ref: refA, Want: v1})
		}},
	}
}

func fenceRows() []row {
	fenced := func(e *env, p process, l lock, updates ...driver.Update) error {
		return e.SendUpdate(p, driver.UpdateRequest{Fence: l.Fence(), Updates: updates})
	}
	releasing := func(e *env, p process, l lock, updates ...driver.Update) error {
		return e.SendUpdate(p, driver.UpdateRequest{Fence: l.Releasing(), Updates: updates})
	}
	return []row{
		{"a fenced update passes its own lock and keeps it", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			e.Must(fenced(e, e.A, l, suite.Move(refA, "", v1), suite.Move(refB, "", v2)))
			e.Must(fenced(e, e.A, l, suite.Move(refA, v1, v2)))
			e.WantRefs(map[string]driver.Value{refA: v2, refB: v2})
			e.WantLock(l)
		}},
		{"P2 a fence whose lock was reclaimed writes nothing", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			l := e.Acquire(e.A, refA)
			e.Age(l, stale)
			successor := e.Acquire(e.B, refA)
			e.WantLost(fenced(e, e.A, l, suite.Move(refA, v1, v2)), refA)
			e.WantLost(releasing(e, e.A, l, suite.Move(refA, v1, v2)), refA)
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantLock(successor)
		}},
		{"P2 a fence whose lock was released writes nothing, even if its owner has taken the lock again", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Release(e.A, l)
			e.WantLost(fenced(e, e.A, l, suite.Move(refA, "", v1)), refA)
			e.Acquire(e.A, refA)
			e.WantLost(fenced(e, e.A, l, suite.Move(refA, "", v1)), refA)
			e.WantRefs(nil)
		}},
		{"P2 a fence that lost one of its refs writes nothing, and names the lost refs", func(e *env) {
			l := e.Acquire(e.A, "HEAD", refA, refB, refC)
			for _, ref := range []string{refA, refC} {
				e.DB.Age(e, e.Project, ref, stale)
			}
			e.Must(e.Update(e.B, suite.Move(refA, "", v1))) // ends the stale lock
			e.Acquire(e.B, refC)                            // reclaims it
			e.WantLost(releasing(e, e.A, l, suite.Move(refB, "", v1)), refA, refC)
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantLock(l, "HEAD", refB)
		}},
		{"P2 a fence whose lock has another owner writes nothing, whatever the token", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			e.ChangeOwner(refB)
			e.WantLost(fenced(e, e.A, l, suite.Move(refA, "", v1)), refB)
			e.WantLost(releasing(e, e.A, l, suite.Move(refA, "", v1)), refB)
			e.WantLock(l, refA)
			e.WantChangedOwner(l, refB)
			alone := e.Acquire(e.A, refC)
			e.ChangeOwner(refC)
			e.WantLost(fenced(e, e.A, alone, suite.Move(refC, "", v1)), refC)
			e.WantLost(releasing(e, e.A, alone, suite.Move(refC, "", v1)), refC)
			e.WantChangedOwner(alone, refC)
			e.WantRefs(nil)
		}},
		{"a fence holds until the lock is taken over, stale or not", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Age(l, stale)
			e.Must(fenced(e, e.A, l, suite.Move(refA, "", v1)))
			e.WantLock(l)
		}},
		{"a lost fence takes precedence over a lock, a lock over a mismatch", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Acquire(e.B, refB)
			updates := []driver.Update{suite.Move(refA, v1, v2), suite.Move(refB, v1, v2)}
			e.WantHolders(fenced(e, e.A, l, updates...), refB)
			e.Release(e.A, l)
			e.WantLost(fenced(e, e.A, l, updates...), refA)
			e.WantRefs(nil)
		}},
		{"a fence need not cover the refs of the update", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Must(fenced(e, e.A, l, suite.Move(refB, "", v1), suite.Move(refC, "", v1)))
			e.WantRefs(map[string]driver.Value{refB: v1, refC: v1})
			e.WantLock(l)
		}},
		{"a fence does not pass the locks of others", func(e *env) {
			l, foreign := e.Acquire(e.A, refA), e.Acquire(e.B, refB)
			e.WantHolders(fenced(e, e.A, l, suite.Move(refA, "", v1), suite.Move(refB, "", v1)), refB)
			e.WantHolders(releasing(e, e.A, l, suite.Move(refA, "", v1), suite.Move(refB, "", v1)), refB)
			e.WantRefs(nil)
			e.WantLock(l)
			e.WantLock(foreign)
		}},
		{"a fence does not pass another lock of the same process", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Acquire(e.A, refB)
			e.WantHolders(fenced(e, e.A, l, suite.Move(refB, "", v1)), refB)
		}},
		{"a fenced update ends another owner's stale lock on an updated ref, unless the update fails", func(e *env) {
			l, foreign := e.Acquire(e.A, refA), e.Acquire(e.B, refB)
			e.Age(foreign, stale)
			e.WantMismatches(fenced(e, e.A, l, suite.Move(refB, v1, v2)), driver.Mismatch{Ref: refB, Want: v1})
			e.WantLock(foreign)
			e.Must(fenced(e, e.A, l, suite.Move(refB, "", v1)))
			e.WantFree(refB)
			e.WantLock(l)
		}},
		{"a fenced update does not end another owner's stale lock on another ref", func(e *env) {
			l, foreign := e.Acquire(e.A, refA), e.Acquire(e.B, refB)
			e.Age(foreign, stale)
			e.Must(fenced(e, e.A, l, suite.Move(refA, "", v1)))
			e.WantLock(foreign)
		}},
		{"a releasing update ends the whole lock", func(e *env) {
			l, other := e.Acquire(e.A, refA, refB), e.Acquire(e.A, refC)
			e.Must(releasing(e, e.A, l, suite.Move(refA, "", v1)))
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantFree(refA, refB)
			e.WantLock(other)
			e.WantLost(fenced(e, e.A, l, suite.Move(refA, v1, v2)), refA, refB)
		}},
		{"a releasing update that fails keeps the lock", func(e *env) {
			l := e.Acquire(e.A, refA, refB)
			e.WantMismatches(releasing(e, e.A, l, suite.Move(refA, "", v1), suite.Move(refB, v1, v2)), driver.Mismatch{Ref: refB, Want: v1})
			e.WantRefs(nil)
			e.WantLock(l)
		}},
		{"a fenced update compares values like any other, and may adopt", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.WantMismatches(fenced(e, e.A, l, suite.Move(refA, v1, v2)), driver.Mismatch{Ref: refA, Want: v1})
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Fence(), Adopt: true, Updates: []driver.Update{suite.Move(refA, v1, v2)}}))
			e.WantRefs(map[string]driver.Value{refA: v2})
		}},
		{"an advisory update with a fence ignores the locks of others, but not the loss of its own lock", func(e *env) {
			l, foreign := e.Acquire(e.A, refA), e.Acquire(e.B, refB)
			t := driver.UpdateRequest{Fence: l.Fence(), Locks: driver.AdvisoryLocks, Updates: []driver.Update{suite.Move(refB, "", v1)}}
			e.Must(e.SendUpdate(e.A, t))
			e.Release(e.A, l)
			t.Updates = []driver.Update{suite.Move(refB, v1, v2)}
			e.WantLost(e.SendUpdate(e.A, t), refA)
			e.WantRefs(map[string]driver.Value{refB: v1})
			e.WantLock(foreign)
		}},
		{"a fence of one project does not apply to the same ref in another", func(e *env) {
			l := e.Acquire(e.A, refA)
			err := e.SendUpdate(e.A, driver.UpdateRequest{Project: e.Project + "/x", Fence: l.Fence(), Updates: []driver.Update{suite.Move(refA, "", v1)}})
			if len(e.List(e.Project+"/x")) != 0 {
				e.Errorf("wrote under another project's lock: %v", err)
			}
		}},
	}
}
