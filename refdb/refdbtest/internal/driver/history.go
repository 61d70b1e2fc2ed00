package driver

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// Every change of a value has a row in the history, written by the transaction that made it.
func historyRows() []row {
	return []row{
		{"each change of a ref is recorded with its old and new value, time and author", func(e *env) {
			before, err := e.A.Now(e.Context())
			e.Must(err)
			e.Change(e.A, "one", suite.Move(refA, "", v1))
			e.Change(e.B, "two", suite.Move(refA, v1, v2))
			e.Change(e.A, "three", suite.Move(refA, v2, driver.Deleted))
			e.Change(e.B, "four", suite.Move(refA, "", v3))
			after, err := e.A.Now(e.Context())
			e.Must(err)
			got := e.WantLog("a ->1", "a 1>2", "a 2>0", "a 0>3")
			if len(got) != 4 {
				return
			}
			for i, id := range []string{"one", "two", "three", "four"} {
				p := []process{e.A, e.B}[i%2]
				if c := got[i]; c.Project != e.Project || c.Ref != refA || c.Op != id || c.Owner != p.Owner || c.By != suite.By(p, id).By || !between(c.Time, before, after) {
					e.Errorf("between %s and %s: %+v", before, after, c)
				}
				if i > 0 && got[i].Position <= got[i-1].Position {
					e.Errorf("position %d follows %d", got[i].Position, got[i-1].Position)
				}
			}
		}},
		{"an update of several refs has one position, after all earlier ones", func(e *env) {
			e.Change(e.A, "one", suite.Move(refC, "", v1))
			e.Change(e.B, "two", suite.Move(refA, "", v1), suite.Move(refB, "", v2), suite.Move(refC, v1, v3))
			e.Change(e.A, "three", suite.Move(refB, v2, v3))
			got := e.WantLog("c ->1", "a ->1", "b ->2", "c 1>3", "b 2>3")
			if len(got) == 5 && (got[1].Position != got[2].Position || got[2].Position != got[3].Position || got[0].Position >= got[1].Position || got[4].Position <= got[3].Position) {
				e.Errorf("%+v", got)
			}
		}},
		{"the recorded old value is the value of the row", func(e *env) {
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Adopt: true, Updates: []driver.Update{suite.Move(refA, v1, v2)}}))
			e.Must(e.Update(e.A, suite.Move(refA, v2, driver.Deleted)))
			e.Must(e.Update(e.A, suite.Move(refA, "", driver.Deleted), suite.Move(refB, "", driver.Deleted)))
			e.Must(e.Update(e.A, suite.Move(refA, driver.Deleted, v1)))
			e.Must(e.Update(e.A, suite.Move(refA, v1, v1)))
			e.WantLog("a ->2", "a 2>0", "a 0>0", "b ->0", "a 0>1", "a 1>1")
		}},
		{"refused requests are not recorded", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			e.WantMismatches(e.Update(e.A, suite.Move(refA, v2, v3), suite.Move(refB, "", v1)), driver.Mismatch{Ref: refA, Want: v2, Have: v1})
			l := e.Acquire(e.B, refB)
			if err := e.Update(e.A, suite.Move(refB, "", v1)); err == nil {
				e.Error("a locked ref was moved")
			}
			e.Release(e.B, l)
			e.WantLog("a ->1")
		}},
		{"an update through its lock is recorded, whether or not the lock ends", func(e *env) {
			l := e.Acquire(e.A, refA)
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Origin: suite.By(e.A, "one"), Updates: []driver.Update{suite.Move(refA, "", v1)}, Fence: l.Fence()}))
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Origin: suite.By(e.A, "two"), Updates: []driver.Update{suite.Move(refA, v1, v2)}, Fence: l.Releasing()}))
			if got := e.WantLog("a ->1", "a 1>2"); len(got) == 2 && (got[0].Op != "one" || got[1].Op != "two" || got[1].By != suite.By(e.A, "two").By) {
				e.Errorf("%+v", got)
			}
		}},
		{"many refs in one update are recorded, each once", func(e *env) {
			n := e.Scale(2000)
			refs := numbered(n)
			e.Change(e.A, "one", suite.Creations(refs)...)
			var updates []driver.Update
			for _, ref := range refs {
				updates = append(updates, suite.Move(ref, v1, v2))
			}
			e.Change(e.A, "two", updates...)
			got := e.ReadLogOf(e.Project, "", 1000)
			if len(got) != 2*n {
				e.Fatalf("%d changes, want %d", len(got), 2*n)
			}
			for i, c := range got {
				want := driver.Change{Project: e.Project, Ref: refs[i%n], Old: "", New: v1, Position: got[0].Position, Time: c.Time, Op: "one", Owner: e.A.Owner, By: suite.By(e.A, "one").By}
				if i >= n {
					want.Old, want.New, want.Position, want.Op, want.By = v1, v2, got[n].Position, "two", suite.By(e.A, "two").By
				}
				if c != want {
					e.Fatalf("change %d is %+v, want %+v", i, c, want)
				}
			}
		}},
		{"the end of an intent is recorded if the ref took the new value", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refB, "", v1)))
			l := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, v1, v2), suite.Move(refC, "", v3))
			e.WantLog("b ->1")
			e.Must(suite.Retry(func() error {
				return e.B.Finish(e.Context(), driver.FinishRequest{
					Project: e.Project, Origin: driver.Origin{ID: "finish", Owner: l.Owner, By: "alice"}, Token: l.Token,
					Done: []driver.Update{suite.Move(refA, "", v1), suite.Move(refB, v1, v2)}, Dropped: []string{refC},
				})
			}))
			got := e.WantLog("b ->1", "a ->1", "b 1>2")
			if len(got) == 3 && (got[1].Op != "finish" || got[1].Owner != l.Owner || got[1].By != "alice" || got[1].Position != got[2].Position) {
				e.Errorf("%+v", got)
			}
		}},
		{"a decision is recorded as a change by the decider if the ref took the new value", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v2))
			for i, d := range []driver.Decision{driver.TakeNew, driver.KeepOld} {
				e.Must(suite.Retry(func() error {
					_, err := e.B.Resolve(e.Context(), driver.ResolveRequest{Origin: driver.Origin{ID: "decide", Owner: e.B.Owner, By: "an operator"}, Intents: l.IDs()[i : i+1], Decision: d, Reason: "x"})
					return err
				}))
			}
			if got := e.WantLog("a ->1"); len(got) == 1 && (got[0].Op != "decide" || got[0].Owner != e.B.Owner || got[0].By != "an operator") {
				e.Errorf("%+v", got)
			}
		}},
		{"a removal is recorded for each ref that had a value, and for no neighbour of the project", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v2), suite.Move(refC, "", v3)))
			e.Must(e.Update(e.A, suite.Move(refC, v3, driver.Deleted)))
			other := e.Project + "/b"
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: other, Updates: []driver.Update{suite.Move(refA, "", v1)}}))
			e.Remove(driver.RemoveRequest{Origin: suite.By(e.B, "remove"), Limit: 10})
			got := e.WantLog("a ->1", "b ->2", "c ->3", "c 3>0", "a 1>-", "b 2>-")
			if len(got) == 6 && (got[4].Op != "remove" || got[4].Owner != e.B.Owner || got[4].By != suite.By(e.B, "remove").By || got[4].Position != got[5].Position) {
				e.Errorf("%+v", got[4:])
			}
			if got := e.ReadLogOf(other, "", 3); suite.SaidAll(got) != "a ->1" {
				e.Errorf("the log of %s says %q", other, suite.SaidAll(got))
			}
			e.Must(e.Update(e.A, suite.Move(refA, "", v2)))
			e.WantLog("a ->1", "b ->2", "c ->3", "c 3>0", "a 1>-", "b 2>-", "a ->2")
		}},
		{"purging a deleted ref is not a change", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			e.Must(e.Update(e.A, suite.Move(refA, v1, driver.Deleted)))
			if n, err := e.A.PurgeTombstones(e.Context(), driver.TombstoneRequest{Project: e.Project, Limit: 10}); n != 1 || err != nil {
				e.Fatalf("purged %d, %v", n, err)
			}
			e.WantLog("a ->1", "a 1>0")
		}},
		{"a log of one ref or of all comes in pages, newest first", func(e *env) {
			names := []string{"refs/heads/%", "refs/heads/o'brien", "refs/heads/ö"}
			for _, ref := range names {
				e.Must(e.Update(e.A, suite.Move(ref, "", v1)))
			}
			for _, ref := range names {
				e.Must(e.Update(e.A, suite.Move(ref, v1, v2)))
			}
			for _, ref := range names {
				if got := e.ReadLog(ref); len(got) != 2 || got[0].Ref != ref || got[1].Ref != ref || got[1].New != v2 {
					e.Errorf("%s: %+v", ref, got)
				}
			}
			for limit := 1; limit <= 7; limit++ {
				if got := e.ReadLogOf(e.Project, "", limit); len(got) != 6 || !slices.IsSortedFunc(got, func(a, b driver.Change) int { return a.Key().Compare(b.Key()) }) {
					e.Errorf("by pages of %d: %+v", limit, got)
				}
			}
			if got := e.ReadLog("refs/heads/none"); len(got) != 0 {
				e.Errorf("%+v", got)
			}
		}},
		{"the history has an epoch, which began before its changes", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			s := e.History()
			c := e.ReadLog("")[0]
			if len(s.Epochs) != 1 || s.Epochs[0].ID == "" || s.Epochs[0].First > c.Position || s.Epochs[0].Began.After(c.Time) || time.Since(s.Epochs[0].Began) > 24*time.Hour ||
				s.Pruned < s.Epochs[0].First || s.Pruned > c.Position {
				e.Errorf("%+v, and the change %+v", s, c)
			}
		}},
	}
}

// A reader of changes gets each once, in order.
func changesRows() []row {
	return []row{
		{"changes come in the order of position, project and ref, in pages of any size", suite.Long(func(e *env) {
			after := e.Beginning()
			e.Must(e.Update(e.A, suite.Move(refB, "", v1), suite.Move(refC, "", v1)))
			e.Must(e.Update(e.B, suite.Move(refA, "", v1)))
			e.Must(e.Update(e.A, suite.Move(refA, v1, v2), suite.Move(refB, v1, v2)))
			e.Complete()
			for limit := 1; limit <= 6; limit++ {
				got := e.Changes(e.A, driver.ChangesRequest{Project: e.Project, After: after, Limit: limit})
				if suite.SaidAll(got) != "b ->1, c ->1, a ->1, a 1>2, b 1>2" {
					e.Errorf("by pages of %d: %s", limit, suite.SaidAll(got))
				}
				if !slices.Equal(got, e.ReadLog("")) {
					e.Errorf("by pages of %d: got %+v, the log has %+v", limit, got, e.ReadLog(""))
				}
			}
		})},
		{"changes of all projects are the changes of each project together", suite.Alone(func(e *env) {
			after := e.Beginning()
			for _, p := range []string{"", "/a", "/B", "%"} {
				e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: e.Project + p, Updates: []driver.Update{suite.Move(refA, "", v1)}}))
			}
			e.Must(e.Update(e.A, suite.Move(refA, v1, v2)))
			e.Complete()
			got := slices.DeleteFunc(e.Changes(e.B, driver.ChangesRequest{After: after, Limit: 2}), func(c driver.Change) bool {
				return c.Project != e.Project && (len(c.Project) != len(e.Project)+1 && len(c.Project) != len(e.Project)+2 || c.Project[:len(e.Project)] != e.Project || c.Project[len(e.Project)] >= '0' && c.Project[len(e.Project)] <= '9')
			})
			if !slices.IsSortedFunc(got, func(a, b driver.Change) int { return a.Key().Compare(b.Key()) }) || len(got) != 5 {
				e.Errorf("%+v", got)
			}
			if got := e.Changes(e.B, driver.ChangesRequest{Project: e.Project, After: after, Limit: 5}); suite.SaidAll(got) != "a ->1, a 1>2" {
				e.Errorf("%+v", got)
			}
			if got := e.Changes(e.B, driver.ChangesRequest{Project: e.Project + "/a", After: after, Limit: 5}); len(got) != 1 || got[0].Project != e.Project+"/a" {
				e.Errorf("%+v", got)
			}
		})},
		{"a prefix selects refs by their bytes", func(e *env) {
			after := e.Beginning()
			e.Must(e.Update(e.A, suite.Move("refs/heads/a%b/c", "", v1), suite.Move("refs/heads/aXb/c", "", v1), suite.Move("refs/heads/a_b", "", v1), suite.Move("refs/heads/ä", "", v1)))
			e.Complete()
			for prefix, want := range map[string]string{
				"refs/heads/a%": "a%b/c ->1", "refs/heads/a_": "a_b ->1", "refs/heads/A": "", "refs/heads/ä": "ä ->1", "refs/tags/": "",
				"refs/heads/a": "a%b/c ->1, aXb/c ->1, a_b ->1",
			} {
				if got := e.Changes(e.A, driver.ChangesRequest{Project: e.Project, Prefix: prefix, After: after, Limit: 1}); suite.SaidAll(got) != want {
					e.Errorf("%s: %s", prefix, suite.SaidAll(got))
				}
			}
		}},
		{"the newest change is the last one in order, or none if all were pruned", suite.Alone(func(e *env) {
			both := func() []driver.Change {
				return append(e.ReadLogOf(e.Project, "", 100), e.ReadLogOf(e.Project+"/a", "", 100)...)
			}
			want := func(what string) {
				e.Helper()
				log := both()
				upto := e.CompleteOf(log)
				c, state, err := e.B.Newest(e.Context())
				e.Must(err)
				slices.SortFunc(log, func(a, b driver.Change) int { return b.Key().Compare(a.Key()) })
				if c != append(log, driver.Change{})[0] || state.Upto < upto || len(state.Epochs) == 0 {
					e.Errorf("%s: got %+v of %+v", what, c, state)
				}
			}
			want("without a change")
			e.Must(e.Update(e.A, suite.Move(refB, "", v1), suite.Move(refA, "", v1), suite.Move(refC, "", v1)))
			want("of one update")
			e.Must(e.Update(e.A, suite.Move(refA, v1, v2), suite.Move(refB, v1, v2)))
			want("of a later update")
			e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: e.Project + "/a", Updates: []driver.Update{suite.Move(refA, "", v1)}}))
			want("of another project")
			_, err := e.A.Prune(e.Context(), driver.PruneRequest{Upto: e.CompleteOf(both()), EvenUnread: math.MinInt64, Limit: 100})
			e.Must(err)
			if all := both(); len(all) > 0 {
				e.Fatalf("%d are left", len(all))
			}
			want("after all were pruned")
			e.Must(e.Update(e.A, suite.Move(refA, v2, v3)))
			want("after that")
		})},
		{"the last read change is looked up, and a page without changes ends at the complete position", func(e *env) {
			e.Change(e.A, "one", suite.Move(refA, "", v1))
			e.Complete()
			last := e.ReadLog("")[0].Key()
			for _, c := range []struct {
				last  driver.ChangeKey
				op    string
				found bool
			}{
				{driver.ChangeKey{}, "", false},
				{last, "one", true},
				{driver.ChangeKey{Position: last.Position, Project: last.Project, Ref: refB}, "", false},
				{driver.ChangeKey{Position: last.Position + 1, Project: last.Project, Ref: last.Ref}, "", false},
			} {
				page, err := e.B.Changes(e.Context(), driver.ChangesRequest{Project: e.Project, After: last, Last: c.last, Limit: 1})
				e.Must(err)
				if page.LastOp != c.op || page.LastFound != c.found || len(page.Changes) != 0 {
					e.Errorf("%+v: %+v", c.last, page)
				}
				if page.Next != (driver.ChangeKey{Position: page.State.Upto + 1}) {
					e.Errorf("nothing comes before %+v, and all up to %d is complete", page.Next, page.State.Upto)
				}
			}
		}},
		{"a transaction without changes completes no position, unless positions are times", suite.Alone(func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			newest := e.Complete()
			before, err := e.A.Now(e.Context())
			e.Must(err)
			for range 3 {
				e.WantMismatches(e.Update(e.A, suite.Move(refA, v2, v3)), driver.Mismatch{Ref: refA, Want: v2, Have: v1})
				l := e.Prepare(e.A, suite.Move(refA, v1, v2))
				e.Must(suite.Retry(func() error { return e.TryFinish(e.A, l, nil, []string{refA}) }))
			}
			s := e.History()
			after, err := e.A.Now(e.Context())
			e.Must(err)
			if s.Ended < s.Upto {
				e.Errorf("complete are more than have ended: %+v", s)
			}
			const drift = time.Minute // between the clocks of Now and of positions
			if at := time.UnixMicro(int64(s.Upto)); s.Upto > newest && !between(at, before.Add(-drift), after.Add(drift)) {
				e.Errorf("complete up to %d, the last change is at %d", s.Upto, newest)
			}
		})},
		{"an update that has returned precedes later requests", func(e *env) {
			var last driver.Position
			for i := range 20 {
				p := []process{e.A, e.B}[i%2]
				ref := fmt.Sprintf("refs/heads/%d", i)
				e.Must(e.Update(p, suite.Move(ref, "", v1)))
				c := e.ReadLog(ref)
				if len(c) != 1 || c[0].Position <= last {
					e.Fatalf("after %d: %+v", last, c)
				}
				last = c[0].Position
			}
		}},
		{"a reader that follows writers gets each change once, in order", func(e *env) {
			const writers = 4
			perWriter := min(25, max(8, e.Rounds()/4))
			after := e.Beginning()
			var writing sync.WaitGroup
			var done atomic.Bool
			for w := range writers {
				writing.Go(func() {
					p := []process{e.A, e.B}[w%2]
					own, shared := fmt.Sprintf("refs/heads/w%d", w), "refs/heads/shared"
					var old driver.Value
					for i := range perWriter {
						to := []driver.Value{v1, v2}[i%2]
						if err := e.Update(p, suite.Move(own, old, to)); err != nil {
							e.Errorf("%v", err)
						}
						old = to
						// All but one are refused.
						rows, err := p.Get(e.Context(), e.Project, []string{shared})
						if err != nil {
							e.Errorf("%v", err)
						}
						var have driver.Value
						if len(rows) > 0 {
							have = rows[0].Value
						}
						_ = e.Update(p, suite.Move(shared, have, to))
					}
				})
			}
			defer writing.Wait() // also if the reader fails
			go func() {
				writing.Wait()
				done.Store(true)
			}()
			var got []driver.Change
			r := driver.ChangesRequest{Project: e.Project, After: after, Limit: 7}
			last := driver.Position(0)
			for finished := false; !finished; {
				ended := done.Load()
				page, err := e.B.Changes(e.Context(), r)
				e.Must(err)
				got = append(got, page.Changes...)
				if len(got) > 10*writers*perWriter {
					e.Fatalf("%d changes, many of them twice", len(got))
				}
				r.After = page.Next
				if page.State.Upto < last {
					e.Fatalf("complete up to %d, and later up to %d", last, page.State.Upto)
				}
				last = page.State.Upto
				if ended && page.Next.Position > page.State.Upto {
					finished = last >= e.Complete()
				}
			}
			want := e.ReadLogOf(e.Project, "", 1000)
			if !slices.Equal(got, want) {
				e.Errorf("the reader got %d changes, the log has %d:\n%s\n%s", len(got), len(want), suite.SaidAll(got), suite.SaidAll(want))
			}
			values := map[string]driver.Value{}
			for _, c := range want {
				if values[c.Ref] != c.Old {
					e.Errorf("%s breaks the chain, the ref held %q", suite.Said(c), suite.Short(values[c.Ref]))
				}
				values[c.Ref] = c.New
			}
			e.WantRefs(values)
		}},
	}
}
