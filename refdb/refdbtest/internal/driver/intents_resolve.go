package driver

import (
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// Operators end the intents of others by Resolve; owners end those of unknown outcome by Revoke.
func resolveRows() []row {
	return []row{
		{"keep-old does not change the ref, ends the lock, and records the decider, reason and time", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			was := e.GetOne(refA)
			l := e.Prepare(e.A, suite.Move(refA, v1, v2))
			before := e.Now(e.B)
			if got := e.Resolve(e.B, driver.KeepOld, l.IDs()...); !got[0] {
				e.Fatal("it was not pending")
			}
			e.WantFree(refA)
			if now := e.GetOne(refA); now.Value != v1 || !now.Time.Equal(was.Time) || now.Op != was.Op {
				e.Errorf("the ref was %+v and is %+v", was, now)
			}
			if got := e.Pending(); len(got) != 0 {
				e.Errorf("pending are %+v", got)
			}
			got := e.Decided()
			if len(got) != 1 {
				e.Fatalf("decided are %+v", got)
			}
			i := got[0]
			if i.Project != e.Project || i.Ref != refA || i.Token != l.Token || i.Owner != l.Owner || i.Agent != agent || i.By != asker || i.Op != l.Nonce || i.Old != v1 || i.New != v2 ||
				i.Decision != driver.KeepOld || i.DecidedBy != "an operator" || i.Reason != "the site is gone" || i.Time.IsZero() || i.Age < 0 {
				e.Errorf("got %+v", i)
			}
			if i.DecidedAt.Before(before.Truncate(time.Microsecond)) || i.DecidedAt.After(e.Now(e.B)) {
				e.Errorf("decided at %v, not after %v", i.DecidedAt, before)
			}
		}},
		{"take-new writes the intended values, including creations and deletions, without an operation", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1)))
			was := e.GetOne(refA)
			l := e.Prepare(e.A, suite.Move(refA, v1, v2), suite.Move(refB, v1, driver.Deleted), suite.Move(refC, "", v3))
			before := e.Now(e.B)
			if got := e.Resolve(e.B, driver.TakeNew, l.IDs()...); !slices.Equal(got, []bool{true, true, true}) {
				e.Fatalf("got %v", got)
			}
			e.WantRefs(map[string]driver.Value{refA: v2, refB: driver.Deleted, refC: v3})
			for _, r := range e.Get(refA, refB, refC) {
				if r.Op == was.Op || r.Time.Before(before.Truncate(time.Microsecond)) || r.Time.After(e.Now(e.B)) {
					e.Errorf("got %+v", r)
				}
			}
			e.WantFree(refA, refB, refC)
			if got := e.Decided(); len(got) != 3 || got[0].Decision != driver.TakeNew {
				e.Errorf("decided are %+v", got)
			}
		}},
		{"a resolved intent can't be resolved again, finished or dropped", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			l := e.Prepare(e.A, suite.Move(refA, v1, v2), suite.Move(refB, "", v2))
			e.Resolve(e.B, driver.KeepOld, l.IDs()[0])
			if got := e.Resolve(e.A, driver.TakeNew, l.IDs()...); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("got %v", got)
			}
			e.WantLost(e.Finish(e.A, l), refA, refB)
			e.WantLost(e.TryDrop(e.A, l), refA, refB)
			e.WantRefs(map[string]driver.Value{refA: v1, refB: v2})
			if got := e.Decided(); len(got) != 2 || got[0].Decision != driver.KeepOld || got[1].Decision != driver.TakeNew {
				e.Errorf("decided are %+v", got)
			}
		}},
		{"the rest of a preparation can still be finished", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1))
			e.Resolve(e.B, driver.KeepOld, l.IDs()[0])
			e.WantLost(e.Finish(e.A, l), refA)
			e.Must(e.TryFinish(e.A, l, []string{refB}, nil))
			e.WantRefs(map[string]driver.Value{refB: v1})
			e.WantFree(refA, refB)
		}},
		{"an intent that its owner ended is not resolved", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1), suite.Move(refC, "", v1))
			e.Must(e.TryFinish(e.A, l, []string{refA}, []string{refB}))
			if got := e.Resolve(e.B, driver.TakeNew, l.IDs()...); !slices.Equal(got, []bool{false, false, true}) {
				e.Errorf("got %v", got)
			}
			e.WantRefs(map[string]driver.Value{refA: v1, refC: v1})
		}},
		{"P2 another token resolves nothing: neither an earlier intent's nor a lock's", func(e *env) {
			first := e.Prepare(e.A, suite.Move(refA, "", v1))
			e.Resolve(e.B, driver.KeepOld, first.IDs()...)
			next, plain := e.Prepare(e.A, suite.Move(refA, "", v2)), e.Acquire(e.A, refB)
			wrong := next.IDs()[0]
			wrong.Token++
			for _, d := range []driver.Decision{driver.TakeNew, driver.KeepOld} {
				if got := e.Resolve(e.B, d, first.IDs()[0], wrong, plain.IDs()[0]); slices.Contains(got, true) {
					e.Errorf("got %v", got)
				}
			}
			e.WantIntended(next)
			e.WantLock(plain)
			e.WantRefs(nil)
			e.Must(e.Finish(e.A, next))
			e.WantRefs(map[string]driver.Value{refA: v2})
		}},
		{"P2 the right token resolves and forgets nothing of another owner", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1))
			wrong := l.IDs()[0]
			wrong.Owner = e.B.Owner
			for _, d := range []driver.Decision{driver.TakeNew, driver.KeepOld} {
				if got := e.Resolve(e.B, d, wrong); got[0] {
					e.Errorf("%s: it was resolved", d)
				}
			}
			e.WantIntended(l)
			e.WantRefs(nil)
			if got := e.Resolve(e.B, driver.TakeNew, wrong, l.IDs()[1]); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("got %v", got)
			}
			e.Resolve(e.B, driver.KeepOld, l.IDs()[0])
			e.Forget(e.B, wrong, l.IDs()[1])
			if got := e.Decided(); len(got) != 1 || got[0].Ref != refA {
				e.Errorf("decided are %+v", got)
			}
		}},
		{"P2 an intent whose lock has another owner can only keep the old value, and leaves the lock alone", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1))
			e.ChangeOwner(refA)
			if ended := e.Resolve(e.B, driver.TakeNew, l.IDs()...); ended[0] {
				e.Error("the new value was taken")
			}
			if ended := e.Resolve(e.B, driver.KeepOld, l.IDs()...); !ended[0] {
				e.Error("the old value was not kept")
			}
			e.WantChangedOwner(l, refA)
			e.WantRefs(nil)
		}},
		{"an intent whose lock was deleted writes nothing", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1))
			e.DB.Exec(e, "DELETE FROM locks WHERE project = '"+e.Project+"'")
			e.Must(e.Update(e.B, suite.Move(refA, "", v3)))
			if got := e.Resolve(e.B, driver.TakeNew, l.IDs()...); got[0] {
				e.Error("it says that it ended it")
			}
			e.WantLost(e.Finish(e.A, l), refA)
			e.WantRefs(map[string]driver.Value{refA: v3})
			if got := e.Resolve(e.B, driver.KeepOld, l.IDs()...); !got[0] {
				e.Error("nobody can end it")
			}
			e.WantRefs(map[string]driver.Value{refA: v3})
			e.Forget(e.A, l.IDs()...)
			e.WantNone()
		}},
		{"after a decision the ref is free for any process, and later decisions are recorded as well", func(e *env) {
			first := e.Prepare(e.A, suite.Move(refA, "", v1))
			e.Resolve(e.B, driver.TakeNew, first.IDs()...)
			e.Must(e.Update(e.B, suite.Move(refA, v1, v2)))
			second := e.Prepare(e.A, suite.Move(refA, v2, v3))
			e.Resolve(e.B, driver.KeepOld, second.IDs()...)
			got := e.Decided()
			if len(got) != 2 || got[0].Token != first.Token || got[1].Token != second.Token {
				e.Fatalf("decided are %+v", got)
			}
			e.Must(e.Finish(e.B, e.Prepare(e.B, suite.Move(refA, v2, v3))))
			if got := e.Decided(); len(got) != 2 {
				e.Errorf("decided are %+v", got)
			}
		}},
		{"the results are in the order of the request, across projects", func(e *env) {
			var asked []driver.LockID
			var want []bool
			for i, p := range []string{"A", "", "_", "/b"} {
				r := e.PrepareRequest(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1))
				r.Project += p
				l, err := e.SendPrepare(e.A, r)
				e.Must(err)
				rows := l.IDs()
				slices.Reverse(rows)
				if i%2 == 0 {
					rows[0].Token++
				}
				asked = append(asked, rows...)
				want = append(want, i%2 != 0, true)
			}
			if got := e.Resolve(e.B, driver.TakeNew, asked...); !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			for i, a := range asked {
				got, err := e.B.Get(e.Context(), a.Project, []string{a.Ref})
				e.Must(err)
				if _, locked := e.DB.RowLock(e, a.Project, a.Ref); locked == want[i] || (len(got) == 1) != want[i] {
					e.Errorf("%+v: locked %v, holds %+v", a, locked, got)
				}
			}
		}},
		{"resolving or forgetting no intents does nothing", func(e *env) {
			if got := e.Resolve(e.B, driver.KeepOld); len(got) != 0 {
				e.Errorf("got %v", got)
			}
			e.Forget(e.B)
		}},
		{"many intents are resolved and forgotten at once", func(e *env) {
			names := suite.ManyNames(e.Scale(1000))
			var updates []driver.Update
			for _, name := range names {
				updates = append(updates, suite.Move(name, "", driver.Value(name)))
			}
			l := e.Prepare(e.A, updates...)
			if got := e.Resolve(e.B, driver.TakeNew, l.IDs()...); slices.Contains(got, false) {
				e.Fatalf("got %v", got)
			}
			for i, r := range e.List(e.Project) {
				if r.Name != names[i] || string(r.Value) != names[i] {
					e.Fatalf("got %+v", r)
				}
			}
			if got := e.Decided(); len(got) != len(names) {
				e.Errorf("decided are %d of %d", len(got), len(names))
			}
			e.Forget(e.A, l.IDs()...)
			e.WantNone()
		}},
		{"only the named resolved intent is forgotten", func(e *env) {
			decided := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1))
			e.Resolve(e.B, driver.KeepOld, decided.IDs()...)
			pending := e.Prepare(e.A, suite.Move(refA, "", v2), suite.Move(refC, "", v2))
			unknown := driver.LockID{Project: e.Project, Ref: refA, Owner: e.A.Owner, Token: 1}
			e.Forget(e.A, append(pending.IDs(), unknown)...)
			e.WantIntended(pending)
			if got := e.Decided(); len(got) != 2 {
				e.Fatalf("decided are %+v", got)
			}
			e.Forget(e.A, decided.IDs()[0])
			if got := e.Decided(); len(got) != 1 || got[0].Ref != refB {
				e.Errorf("decided are %+v", got)
			}
			e.Forget(e.A, decided.IDs()...)
			e.Must(e.Finish(e.A, pending))
			e.WantNone()
		}},
		{"a decision outlives the removal of its project", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			l := e.Prepare(e.A, suite.Move(refA, v1, v2))
			e.Resolve(e.B, driver.TakeNew, l.IDs()...)
			if n := e.Remove(driver.RemoveRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
			if got := e.Decided(); len(got) != 1 {
				e.Errorf("decided are %+v", got)
			}
		}},
		{"P7 a request that was revoked before it arrives does nothing, however often it arrives", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			r := e.PrepareRequest(e.A, suite.Move(refA, v1, v2), suite.Move(refB, "", v2))
			e.Revoke(e.B, r)
			e.Revoke(e.B, r)
			for range 2 {
				_, err := e.SendPrepare(e.A, r)
				e.WantIs(err, driver.ErrReleased)
			}
			e.WantFree(refA, refB)
			if got := e.Pending(); len(got) != 0 {
				e.Errorf("pending are %+v", got)
			}
			e.Prepare(e.A, suite.Move(refA, v1, v2), suite.Move(refB, "", v2)) // another request for the same refs
		}},
		{"P7 a request that was revoked after it arrived leaves nothing, and does nothing if it is repeated", func(e *env) {
			r := e.PrepareRequest(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1))
			_, err := e.SendPrepare(e.A, r)
			e.Must(err)
			e.Revoke(e.A, r)
			e.WantFree(refA, refB)
			_, err = e.SendPrepare(e.A, r)
			e.WantIs(err, driver.ErrReleased)
			if got := e.Pending(); len(got) != 0 {
				e.Errorf("pending are %+v", got)
			}
			e.WantRefs(nil)
		}},
		{"P2 an intent whose lock Gerrit's plugin took over can only keep the old value, and leaves the lock alone", func(e *env) {
			l := e.Prepare(e.A, suite.Move(refA, "", v1))
			e.DB.TakeOver(e, e.Project, refA, gerrit)
			if ended := e.Resolve(e.B, driver.TakeNew, l.IDs()...); ended[0] {
				e.Error("the new value was taken")
			}
			if ended := e.Resolve(e.B, driver.KeepOld, l.IDs()...); !ended[0] {
				e.Error("the old value was not kept")
			}
			e.WantGerrits(refA)
			e.WantRefs(nil)
		}},
		{"P2 a revocation leaves a lock alone that Gerrit's plugin took over", func(e *env) {
			r := e.PrepareRequest(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1))
			_, err := e.SendPrepare(e.A, r)
			e.Must(err)
			e.DB.TakeOver(e, e.Project, refA, gerrit)
			e.Revoke(e.A, r)
			e.WantGerrits(refA)
			e.WantFree(refB)
		}},
		{"a revocation leaves the locks and intents of others alone", func(e *env) {
			r := e.PrepareRequest(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1), suite.Move(refC, "", v1))
			l := e.Prepare(e.A, suite.Move(refA, "", v1))
			other := e.Acquire(e.B, refB)
			e.Revoke(e.A, r)
			e.WantIntended(l)
			e.WantLock(other)
			e.WantFree(refC)
		}},
		{"a revocation is listed as a decision of its owner until it is forgotten", func(e *env) {
			r := e.PrepareRequest(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1))
			e.Revoke(e.A, r)
			got := e.Decided()
			if len(got) != 1 || got[0].Ref != refA || got[0].Decision != driver.Revoked || got[0].Owner != r.Owner || got[0].DecidedBy != r.Owner ||
				got[0].Agent != agent || got[0].New != v1 || got[0].DecidedAt.IsZero() {
				e.Fatalf("decided are %+v", got)
			}
			if ended := e.Resolve(e.B, driver.KeepOld, suite.IntentIDs(got)...); ended[0] {
				e.Error("it was pending")
			}
			e.Forget(e.A, suite.IntentIDs(got)...)
			e.WantNone()
		}},
		{"P10 deciders and reasons are data", suite.Long(func(e *env) {
			for i, text := range nastyProjects() {
				l := e.Prepare(e.A, suite.Move(fmt.Sprintf("refs/heads/%d", i), "", v1))
				_, err := e.B.Resolve(e.Context(), driver.ResolveRequest{Intents: l.IDs(), Decision: driver.KeepOld, Origin: driver.Origin{By: text}, Reason: text + "."})
				e.Must(err)
				got := e.Intents(driver.IntentQuery{IntentFilter: driver.IntentFilter{Project: e.Project, Ref: l.Refs()[0], Decided: true}})
				if len(got) != 1 || got[0].DecidedBy != text || got[0].Reason != text+"." {
					e.Errorf("%q: got %+v", text, got)
				}
			}
		})},
	}
}
