package refdbtest

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Every change of a value has a row in the history, written by the transaction that made it.
func historyRows() []row {
	return []row{
		{"each change of a ref is recorded: what it was, what it became, when, and by whom", func(e *env) {
			before, err := e.a.Now(e.Context())
			e.must(err)
			e.change(e.a, "one", move(refA, "", v1))
			e.change(e.b, "two", move(refA, v1, v2))
			e.change(e.a, "three", move(refA, v2, refdb.Deleted))
			e.change(e.b, "four", move(refA, "", v3))
			after, err := e.a.Now(e.Context())
			e.must(err)
			got := e.wantLog("a ->1", "a 1>2", "a 2>0", "a 0>3")
			if len(got) != 4 {
				return
			}
			for i, id := range []string{"one", "two", "three", "four"} {
				p := []process{e.a, e.b}[i%2]
				if c := got[i]; c.Project != e.project || c.Ref != refA || c.Op != id || c.Owner != p.owner || c.By != by(p, id).By || !between(c.Time, before, after) {
					e.Errorf("between %s and %s: %+v", before, after, c)
				}
				if i > 0 && got[i].Position <= got[i-1].Position {
					e.Errorf("position %d follows %d", got[i].Position, got[i-1].Position)
				}
			}
		}},
		{"an update that changes several refs has one position, and one after those before it", func(e *env) {
			e.change(e.a, "one", move(refC, "", v1))
			e.change(e.b, "two", move(refA, "", v1), move(refB, "", v2), move(refC, v1, v3))
			e.change(e.a, "three", move(refB, v2, v3))
			got := e.wantLog("c ->1", "a ->1", "b ->2", "c 1>3", "b 2>3")
			if len(got) == 5 && (got[1].Position != got[2].Position || got[2].Position != got[3].Position || got[0].Position >= got[1].Position || got[4].Position <= got[3].Position) {
				e.Errorf("%+v", got)
			}
		}},
		{"what was recorded as the old value is what the row held", func(e *env) {
			e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Adopt: true, Updates: []refdb.Update{move(refA, v1, v2)}}))
			e.must(e.update(e.a, move(refA, v2, refdb.Deleted)))
			e.must(e.update(e.a, move(refA, "", refdb.Deleted), move(refB, "", refdb.Deleted)))
			e.must(e.update(e.a, move(refA, refdb.Deleted, v1)))
			e.must(e.update(e.a, move(refA, v1, v1)))
			e.wantLog("a ->2", "a 2>0", "a 0>0", "b ->0", "a 0>1", "a 1>1")
		}},
		{"what was refused is not recorded", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			e.wantMismatches(e.update(e.a, move(refA, v2, v3), move(refB, "", v1)), refdb.Mismatch{Ref: refA, Want: v2, Have: v1})
			l := e.acquire(e.b, refB)
			if err := e.update(e.a, move(refB, "", v1)); err == nil {
				e.Error("a locked ref was moved")
			}
			e.release(e.b, l)
			e.wantLog("a ->1")
		}},
		{"an update through its lock is recorded, whether or not that ends", func(e *env) {
			l := e.acquire(e.a, refA)
			e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Origin: by(e.a, "one"), Updates: []refdb.Update{move(refA, "", v1)}, Fence: l.fence()}))
			e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Origin: by(e.a, "two"), Updates: []refdb.Update{move(refA, v1, v2)}, Fence: l.releasing()}))
			if got := e.wantLog("a ->1", "a 1>2"); len(got) == 2 && (got[0].Op != "one" || got[1].Op != "two" || got[1].By != by(e.a, "two").By) {
				e.Errorf("%+v", got)
			}
		}},
		{"many refs in one update are recorded, each once", func(e *env) {
			n := e.scale(2000)
			refs := numbered(n)
			e.change(e.a, "one", creations(refs)...)
			var updates []refdb.Update
			for _, ref := range refs {
				updates = append(updates, move(ref, v1, v2))
			}
			e.change(e.a, "two", updates...)
			got := e.logOf(e.project, "", 1000)
			if len(got) != 2*n {
				e.Fatalf("%d changes, want %d", len(got), 2*n)
			}
			for i, c := range got {
				want := refdb.Change{Project: e.project, Ref: refs[i%n], Old: "", New: v1, Position: got[0].Position, Time: c.Time, Op: "one", Owner: e.a.owner, By: by(e.a, "one").By}
				if i >= n {
					want.Old, want.New, want.Position, want.Op, want.By = v1, v2, got[n].Position, "two", by(e.a, "two").By
				}
				if c != want {
					e.Fatalf("change %d is %+v, want %+v", i, c, want)
				}
			}
		}},
		{"the end of an intent is recorded if the ref took the new value", func(e *env) {
			e.must(e.update(e.a, move(refB, "", v1)))
			l := e.prepare(e.a, move(refA, "", v1), move(refB, v1, v2), move(refC, "", v3))
			e.wantLog("b ->1")
			e.must(retry(func() error {
				return e.b.Finish(e.Context(), refdb.FinishRequest{
					Project: e.project, Origin: refdb.Origin{ID: "finish", Owner: l.Owner, By: "alice"}, Token: l.Token,
					Done: []refdb.Update{move(refA, "", v1), move(refB, v1, v2)}, Dropped: []string{refC},
				})
			}))
			got := e.wantLog("b ->1", "a ->1", "b 1>2")
			if len(got) == 3 && (got[1].Op != "finish" || got[1].Owner != l.Owner || got[1].By != "alice" || got[1].Position != got[2].Position) {
				e.Errorf("%+v", got)
			}
		}},
		{"a decision is recorded if the ref took the new value, as made by who decided", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1), move(refB, "", v2))
			for i, d := range []refdb.Decision{refdb.TakeNew, refdb.KeepOld} {
				e.must(retry(func() error {
					_, err := e.b.Resolve(e.Context(), refdb.ResolveRequest{Origin: refdb.Origin{ID: "decide", Owner: e.b.owner, By: "an operator"}, Intents: l.ids()[i : i+1], Decision: d, Reason: "x"})
					return err
				}))
			}
			if got := e.wantLog("a ->1"); len(got) == 1 && (got[0].Op != "decide" || got[0].Owner != e.b.owner || got[0].By != "an operator") {
				e.Errorf("%+v", got)
			}
		}},
		{"a removed project has a row for each ref that had a value, and its neighbours have none", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", v2), move(refC, "", v3)))
			e.must(e.update(e.a, move(refC, v3, refdb.Deleted)))
			other := e.project + "/b"
			e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Project: other, Updates: []refdb.Update{move(refA, "", v1)}}))
			e.remove(refdb.RemoveRequest{Origin: by(e.b, "remove"), Limit: 10})
			got := e.wantLog("a ->1", "b ->2", "c ->3", "c 3>0", "a 1>-", "b 2>-")
			if len(got) == 6 && (got[4].Op != "remove" || got[4].Owner != e.b.owner || got[4].By != by(e.b, "remove").By || got[4].Position != got[5].Position) {
				e.Errorf("%+v", got[4:])
			}
			if got := e.logOf(other, "", 3); saidAll(got) != "a ->1" {
				e.Errorf("the log of %s says %q", other, saidAll(got))
			}
			e.must(e.update(e.a, move(refA, "", v2)))
			e.wantLog("a ->1", "b ->2", "c ->3", "c 3>0", "a 1>-", "b 2>-", "a ->2")
		}},
		{"purging a deleted ref is no change", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			e.must(e.update(e.a, move(refA, v1, refdb.Deleted)))
			if n, err := e.a.PurgeTombstones(e.Context(), refdb.TombstoneRequest{Project: e.project, Limit: 10}); n != 1 || err != nil {
				e.Fatalf("purged %d, %v", n, err)
			}
			e.wantLog("a ->1", "a 1>0")
		}},
		{"a log is of one ref or of all, and comes by pages, newest first", func(e *env) {
			names := []string{"refs/heads/%", "refs/heads/o'brien", "refs/heads/ö"}
			for _, ref := range names {
				e.must(e.update(e.a, move(ref, "", v1)))
			}
			for _, ref := range names {
				e.must(e.update(e.a, move(ref, v1, v2)))
			}
			for _, ref := range names {
				if got := e.log(ref); len(got) != 2 || got[0].Ref != ref || got[1].Ref != ref || got[1].New != v2 {
					e.Errorf("%s: %+v", ref, got)
				}
			}
			for limit := 1; limit <= 7; limit++ {
				if got := e.logOf(e.project, "", limit); len(got) != 6 || !slices.IsSortedFunc(got, func(a, b refdb.Change) int { return a.Key().Compare(b.Key()) }) {
					e.Errorf("by pages of %d: %+v", limit, got)
				}
			}
			if got := e.log("refs/heads/none"); len(got) != 0 {
				e.Errorf("%+v", got)
			}
		}},
		{"the history has an epoch, which began before its changes", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			s := e.history()
			c := e.log("")[0]
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
		{"changes come in the order of position, project and ref, by pages of any size", func(e *env) {
			after := e.beginning()
			e.must(e.update(e.a, move(refB, "", v1), move(refC, "", v1)))
			e.must(e.update(e.b, move(refA, "", v1)))
			e.must(e.update(e.a, move(refA, v1, v2), move(refB, v1, v2)))
			e.complete()
			for limit := 1; limit <= 6; limit++ {
				got := e.changes(e.a, refdb.ChangesRequest{Project: e.project, After: after, Limit: limit})
				if saidAll(got) != "b ->1, c ->1, a ->1, a 1>2, b 1>2" {
					e.Errorf("by pages of %d: %s", limit, saidAll(got))
				}
				if !slices.Equal(got, e.log("")) {
					e.Errorf("by pages of %d: got %+v, the log has %+v", limit, got, e.log(""))
				}
			}
		}},
		{"changes of all projects are those of each, together", func(e *env) {
			after := e.beginning()
			for _, p := range []string{"", "/a", "/B", "%"} {
				e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Project: e.project + p, Updates: []refdb.Update{move(refA, "", v1)}}))
			}
			e.must(e.update(e.a, move(refA, v1, v2)))
			e.complete()
			got := slices.DeleteFunc(e.changes(e.b, refdb.ChangesRequest{After: after, Limit: 2}), func(c refdb.Change) bool {
				return c.Project != e.project && (len(c.Project) != len(e.project)+1 && len(c.Project) != len(e.project)+2 || c.Project[:len(e.project)] != e.project || c.Project[len(e.project)] >= '0' && c.Project[len(e.project)] <= '9')
			})
			if !slices.IsSortedFunc(got, func(a, b refdb.Change) int { return a.Key().Compare(b.Key()) }) || len(got) != 5 {
				e.Errorf("%+v", got)
			}
			if got := e.changes(e.b, refdb.ChangesRequest{Project: e.project, After: after, Limit: 5}); saidAll(got) != "a ->1, a 1>2" {
				e.Errorf("%+v", got)
			}
			if got := e.changes(e.b, refdb.ChangesRequest{Project: e.project + "/a", After: after, Limit: 5}); len(got) != 1 || got[0].Project != e.project+"/a" {
				e.Errorf("%+v", got)
			}
		}},
		{"a prefix selects refs by their bytes", func(e *env) {
			after := e.beginning()
			e.must(e.update(e.a, move("refs/heads/a%b/c", "", v1), move("refs/heads/aXb/c", "", v1), move("refs/heads/a_b", "", v1), move("refs/heads/ä", "", v1)))
			e.complete()
			for prefix, want := range map[string]string{
				"refs/heads/a%": "a%b/c ->1", "refs/heads/a_": "a_b ->1", "refs/heads/A": "", "refs/heads/ä": "ä ->1", "refs/tags/": "",
				"refs/heads/a": "a%b/c ->1, aXb/c ->1, a_b ->1",
			} {
				if got := e.changes(e.a, refdb.ChangesRequest{Project: e.project, Prefix: prefix, After: after, Limit: 1}); saidAll(got) != want {
					e.Errorf("%s: %s", prefix, saidAll(got))
				}
			}
		}},
		{"the newest change is the last one in their order, and none if all were pruned", alone(func(e *env) {
			both := func() []refdb.Change {
				return append(e.logOf(e.project, "", 100), e.logOf(e.project+"/a", "", 100)...)
			}
			want := func(what string) {
				e.Helper()
				log := both()
				upto := e.completeOf(log)
				c, state, err := e.b.Newest(e.Context())
				e.must(err)
				slices.SortFunc(log, func(a, b refdb.Change) int { return b.Key().Compare(a.Key()) })
				if c != append(log, refdb.Change{})[0] || state.Upto < upto || len(state.Epochs) == 0 {
					e.Errorf("%s: got %+v of %+v", what, c, state)
				}
			}
			want("without a change")
			e.must(e.update(e.a, move(refB, "", v1), move(refA, "", v1), move(refC, "", v1)))
			want("of one update")
			e.must(e.update(e.a, move(refA, v1, v2), move(refB, v1, v2)))
			want("of a later update")
			e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Project: e.project + "/a", Updates: []refdb.Update{move(refA, "", v1)}}))
			want("of another project")
			_, err := e.a.Prune(e.Context(), refdb.PruneRequest{Upto: e.completeOf(both()), EvenUnread: math.MinInt64, Limit: 100})
			e.must(err)
			if all := both(); len(all) > 0 {
				e.Fatalf("%d are left", len(all))
			}
			want("after all were pruned")
			e.must(e.update(e.a, move(refA, v2, v3)))
			want("after that")
		})},
		{"what was read last is looked up", func(e *env) {
			e.change(e.a, "one", move(refA, "", v1))
			e.complete()
			last := e.log("")[0].Key()
			for _, c := range []struct {
				last  refdb.ChangeKey
				op    string
				found bool
			}{
				{refdb.ChangeKey{}, "", false},
				{last, "one", true},
				{refdb.ChangeKey{Position: last.Position, Project: last.Project, Ref: refB}, "", false},
				{refdb.ChangeKey{Position: last.Position + 1, Project: last.Project, Ref: last.Ref}, "", false},
			} {
				page, err := e.b.Changes(e.Context(), refdb.ChangesRequest{Project: e.project, After: last, Last: c.last, Limit: 1})
				e.must(err)
				if page.LastOp != c.op || page.LastFound != c.found || len(page.Changes) != 0 {
					e.Errorf("%+v: %+v", c.last, page)
				}
			}
		}},
		{"an update that has returned is before what begins then", func(e *env) {
			var last refdb.Position
			for i := range 20 {
				p := []process{e.a, e.b}[i%2]
				ref := fmt.Sprintf("refs/heads/%d", i)
				e.must(e.update(p, move(ref, "", v1)))
				c := e.log(ref)
				if len(c) != 1 || c[0].Position <= last {
					e.Fatalf("after %d: %+v", last, c)
				}
				last = c[0].Position
			}
		}},
		{"a reader who follows writers gets each change once, in order", func(e *env) {
			const writers, perWriter = 4, 25
			after := e.beginning()
			var writing sync.WaitGroup
			var done atomic.Bool
			for w := range writers {
				writing.Go(func() {
					p := []process{e.a, e.b}[w%2]
					own, shared := fmt.Sprintf("refs/heads/w%d", w), "refs/heads/shared"
					var old refdb.Value
					for i := range perWriter {
						to := []refdb.Value{v1, v2}[i%2]
						if err := e.update(p, move(own, old, to)); err != nil {
							e.Errorf("%v", err)
						}
						old = to
						// All but one are refused.
						rows, err := p.Get(e.Context(), e.project, []string{shared})
						if err != nil {
							e.Errorf("%v", err)
						}
						var have refdb.Value
						if len(rows) > 0 {
							have = rows[0].Value
						}
						_ = e.update(p, move(shared, have, to))
					}
				})
			}
			go func() {
				writing.Wait()
				done.Store(true)
			}()
			var got []refdb.Change
			r := refdb.ChangesRequest{Project: e.project, After: after, Limit: 7}
			last := refdb.Position(0)
			for finished := false; !finished; {
				ended := done.Load()
				page, err := e.b.Changes(e.Context(), r)
				e.must(err)
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
					finished = last >= e.complete()
				}
			}
			want := e.logOf(e.project, "", 1000)
			if !slices.Equal(got, want) {
				e.Errorf("the reader got %d changes, the log has %d:\n%s\n%s", len(got), len(want), saidAll(got), saidAll(want))
			}
			values := map[string]refdb.Value{}
			for _, c := range want {
				if values[c.Ref] != c.Old {
					e.Errorf("%s breaks the chain, the ref held %q", said(c), short(values[c.Ref]))
				}
				values[c.Ref] = c.New
			}
			e.wantRefs(values)
		}},
	}
}
