package refdbtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Operators end the intents of others by Resolve; owners end those of unknown outcome by Revoke.
func resolveRows() []row {
	return []row{
		{"keep-old leaves the ref as it is, ends the lock, and records who decided, why and when", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			was := e.getOne(refA)
			l := e.prepare(e.a, move(refA, v1, v2))
			before := e.now(e.b)
			if got := e.resolve(e.b, refdb.KeepOld, l.ids()...); !got[0] {
				e.Fatal("it was not pending")
			}
			e.wantFree(refA)
			if now := e.getOne(refA); now.Value != v1 || !now.Time.Equal(was.Time) || now.Op != was.Op {
				e.Errorf("the ref was %+v and is %+v", was, now)
			}
			if got := e.pending(); len(got) != 0 {
				e.Errorf("pending are %+v", got)
			}
			got := e.decided()
			if len(got) != 1 {
				e.Fatalf("decided are %+v", got)
			}
			i := got[0]
			if i.Project != e.project || i.Ref != refA || i.Token != l.Token || i.Owner != l.Owner || i.Agent != agent || i.By != asker || i.Op != l.Nonce || i.Old != v1 || i.New != v2 ||
				i.Decision != refdb.KeepOld || i.DecidedBy != "an operator" || i.Reason != "the site is gone" || i.Time.IsZero() || i.Age < 0 {
				e.Errorf("got %+v", i)
			}
			if i.DecidedAt.Before(before.Truncate(time.Microsecond)) || i.DecidedAt.After(e.now(e.b)) {
				e.Errorf("decided at %v, not after %v", i.DecidedAt, before)
			}
		}},
		{"take-new writes what was intended, creations and deletions too, by no operation", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", v1)))
			was := e.getOne(refA)
			l := e.prepare(e.a, move(refA, v1, v2), move(refB, v1, refdb.Deleted), move(refC, "", v3))
			before := e.now(e.b)
			if got := e.resolve(e.b, refdb.TakeNew, l.ids()...); !slices.Equal(got, []bool{true, true, true}) {
				e.Fatalf("got %v", got)
			}
			e.wantRefs(map[string]refdb.Value{refA: v2, refB: refdb.Deleted, refC: v3})
			for _, r := range e.get(refA, refB, refC) {
				if r.Op == was.Op || r.Time.Before(before.Truncate(time.Microsecond)) || r.Time.After(e.now(e.b)) {
					e.Errorf("got %+v", r)
				}
			}
			e.wantFree(refA, refB, refC)
			if got := e.decided(); len(got) != 3 || got[0].Decision != refdb.TakeNew {
				e.Errorf("decided are %+v", got)
			}
		}},
		{"what was decided is not decided again, nor finished, nor dropped", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			l := e.prepare(e.a, move(refA, v1, v2), move(refB, "", v2))
			e.resolve(e.b, refdb.KeepOld, l.ids()[0])
			if got := e.resolve(e.a, refdb.TakeNew, l.ids()...); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("got %v", got)
			}
			e.wantLost(e.finish(e.a, l), refA, refB)
			e.wantLost(e.tryDrop(e.a, l), refA, refB)
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v2})
			if got := e.decided(); len(got) != 2 || got[0].Decision != refdb.KeepOld || got[1].Decision != refdb.TakeNew {
				e.Errorf("decided are %+v", got)
			}
		}},
		{"the rest of a preparation can still be finished", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1), move(refB, "", v1))
			e.resolve(e.b, refdb.KeepOld, l.ids()[0])
			e.wantLost(e.finish(e.a, l), refA)
			e.must(e.tryFinish(e.a, l, []string{refB}, nil))
			e.wantRefs(map[string]refdb.Value{refB: v1})
			e.wantFree(refA, refB)
		}},
		{"what its owner ended is left alone", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1), move(refB, "", v1), move(refC, "", v1))
			e.must(e.tryFinish(e.a, l, []string{refA}, []string{refB}))
			if got := e.resolve(e.b, refdb.TakeNew, l.ids()...); !slices.Equal(got, []bool{false, false, true}) {
				e.Errorf("got %v", got)
			}
			e.wantRefs(map[string]refdb.Value{refA: v1, refC: v1})
		}},
		{"P2 another token resolves nothing: neither an earlier intent's nor a lock's", func(e *env) {
			first := e.prepare(e.a, move(refA, "", v1))
			e.resolve(e.b, refdb.KeepOld, first.ids()...)
			next, plain := e.prepare(e.a, move(refA, "", v2)), e.acquire(e.a, refB)
			wrong := next.ids()[0]
			wrong.Token++
			for _, d := range []refdb.Decision{refdb.TakeNew, refdb.KeepOld} {
				if got := e.resolve(e.b, d, first.ids()[0], wrong, plain.ids()[0]); slices.Contains(got, true) {
					e.Errorf("got %v", got)
				}
			}
			e.wantIntended(next)
			e.wantLock(plain)
			e.wantRefs(nil)
			e.must(e.finish(e.a, next))
			e.wantRefs(map[string]refdb.Value{refA: v2})
		}},
		{"P2 the right token resolves nothing of another owner, and forgets nothing of it", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1), move(refB, "", v1))
			wrong := l.ids()[0]
			wrong.Owner = e.b.owner
			for _, d := range []refdb.Decision{refdb.TakeNew, refdb.KeepOld} {
				if got := e.resolve(e.b, d, wrong); got[0] {
					e.Errorf("%s: it was resolved", d)
				}
			}
			e.wantIntended(l)
			e.wantRefs(nil)
			if got := e.resolve(e.b, refdb.TakeNew, wrong, l.ids()[1]); !slices.Equal(got, []bool{false, true}) {
				e.Errorf("got %v", got)
			}
			e.resolve(e.b, refdb.KeepOld, l.ids()[0])
			e.forget(e.b, wrong, l.ids()[1])
			if got := e.decided(); len(got) != 1 || got[0].Ref != refA {
				e.Errorf("decided are %+v", got)
			}
		}},
		{"P2 an intent whose lock has another owner can only keep the old value, and leaves the lock alone", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			e.changeOwner(refA)
			if ended := e.resolve(e.b, refdb.TakeNew, l.ids()...); ended[0] {
				e.Error("the new value was taken")
			}
			if ended := e.resolve(e.b, refdb.KeepOld, l.ids()...); !ended[0] {
				e.Error("the old value was not kept")
			}
			e.wantChangedOwner(l, refA)
			e.wantRefs(nil)
		}},
		{"an intent whose lock somebody deleted writes nothing", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			e.db.Exec(e, "DELETE FROM locks WHERE project = '"+e.project+"'")
			e.must(e.update(e.b, move(refA, "", v3)))
			if got := e.resolve(e.b, refdb.TakeNew, l.ids()...); got[0] {
				e.Error("it says that it ended it")
			}
			e.wantLost(e.finish(e.a, l), refA)
			e.wantRefs(map[string]refdb.Value{refA: v3})
			if got := e.resolve(e.b, refdb.KeepOld, l.ids()...); !got[0] {
				e.Error("nobody can end it")
			}
			e.wantRefs(map[string]refdb.Value{refA: v3})
			e.forget(e.a, l.ids()...)
			e.wantNone()
		}},
		{"after a decision the ref is free for anybody, and later decisions are recorded beside", func(e *env) {
			first := e.prepare(e.a, move(refA, "", v1))
			e.resolve(e.b, refdb.TakeNew, first.ids()...)
			e.must(e.update(e.b, move(refA, v1, v2)))
			second := e.prepare(e.a, move(refA, v2, v3))
			e.resolve(e.b, refdb.KeepOld, second.ids()...)
			got := e.decided()
			if len(got) != 2 || got[0].Token != first.Token || got[1].Token != second.Token {
				e.Fatalf("decided are %+v", got)
			}
			e.must(e.finish(e.b, e.prepare(e.b, move(refA, v2, v3))))
			if got := e.decided(); len(got) != 2 {
				e.Errorf("decided are %+v", got)
			}
		}},
		{"what became of each comes back in the order it was asked, over projects", func(e *env) {
			var asked []refdb.LockID
			var want []bool
			for i, p := range []string{"A", "", "_", "/b"} {
				r := e.prepareRequest(e.a, move(refA, "", v1), move(refB, "", v1))
				r.Project += p
				l, err := e.sendPrepare(e.a, r)
				e.must(err)
				rows := l.ids()
				slices.Reverse(rows)
				if i%2 == 0 {
					rows[0].Token++
				}
				asked = append(asked, rows...)
				want = append(want, i%2 != 0, true)
			}
			if got := e.resolve(e.b, refdb.TakeNew, asked...); !slices.Equal(got, want) {
				e.Errorf("got %v, want %v", got, want)
			}
			for i, a := range asked {
				got, err := e.b.Get(e.Context(), a.Project, []string{a.Ref})
				e.must(err)
				if _, locked := e.db.RowLock(e, a.Project, a.Ref); locked == want[i] || (len(got) == 1) != want[i] {
					e.Errorf("%+v: locked %v, holds %+v", a, locked, got)
				}
			}
		}},
		{"resolving nothing is nothing, and so is forgetting nothing", func(e *env) {
			if got := e.resolve(e.b, refdb.KeepOld); len(got) != 0 {
				e.Errorf("got %v", got)
			}
			e.forget(e.b)
		}},
		{"many intents are resolved and forgotten at once", func(e *env) {
			names := manyNames(e.scale(1000))
			var updates []refdb.Update
			for _, name := range names {
				updates = append(updates, move(name, "", refdb.Value(name)))
			}
			l := e.prepare(e.a, updates...)
			if got := e.resolve(e.b, refdb.TakeNew, l.ids()...); slices.Contains(got, false) {
				e.Fatalf("got %v", got)
			}
			for i, r := range e.list(e.project) {
				if r.Name != names[i] || string(r.Value) != names[i] {
					e.Fatalf("got %+v", r)
				}
			}
			if got := e.decided(); len(got) != len(names) {
				e.Errorf("decided are %d of %d", len(got), len(names))
			}
			e.forget(e.a, l.ids()...)
			e.wantNone()
		}},
		{"only what was decided is forgotten, and only the one that was named", func(e *env) {
			decided := e.prepare(e.a, move(refA, "", v1), move(refB, "", v1))
			e.resolve(e.b, refdb.KeepOld, decided.ids()...)
			pending := e.prepare(e.a, move(refA, "", v2), move(refC, "", v2))
			unknown := refdb.LockID{Project: e.project, Ref: refA, Owner: e.a.owner, Token: 1}
			e.forget(e.a, append(pending.ids(), unknown)...)
			e.wantIntended(pending)
			if got := e.decided(); len(got) != 2 {
				e.Fatalf("decided are %+v", got)
			}
			e.forget(e.a, decided.ids()[0])
			if got := e.decided(); len(got) != 1 || got[0].Ref != refB {
				e.Errorf("decided are %+v", got)
			}
			e.forget(e.a, decided.ids()...)
			e.must(e.finish(e.a, pending))
			e.wantNone()
		}},
		{"a decision outlives the removal of its project", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			l := e.prepare(e.a, move(refA, v1, v2))
			e.resolve(e.b, refdb.TakeNew, l.ids()...)
			if n := e.remove(refdb.RemoveRequest{Limit: 10}); n != 1 {
				e.Errorf("removed %d", n)
			}
			if got := e.decided(); len(got) != 1 {
				e.Errorf("decided are %+v", got)
			}
		}},
		{"P7 a request that was revoked before it came does nothing, however often it comes", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			r := e.prepareRequest(e.a, move(refA, v1, v2), move(refB, "", v2))
			e.revoke(e.b, r)
			e.revoke(e.b, r)
			for range 2 {
				_, err := e.sendPrepare(e.a, r)
				e.wantIs(err, refdb.ErrReleased)
			}
			e.wantFree(refA, refB)
			if got := e.pending(); len(got) != 0 {
				e.Errorf("pending are %+v", got)
			}
			e.prepare(e.a, move(refA, v1, v2), move(refB, "", v2)) // another request for the same refs
		}},
		{"P7 a request that was revoked after it came leaves nothing, and does nothing if it comes again", func(e *env) {
			r := e.prepareRequest(e.a, move(refA, "", v1), move(refB, "", v1))
			_, err := e.sendPrepare(e.a, r)
			e.must(err)
			e.revoke(e.a, r)
			e.wantFree(refA, refB)
			_, err = e.sendPrepare(e.a, r)
			e.wantIs(err, refdb.ErrReleased)
			if got := e.pending(); len(got) != 0 {
				e.Errorf("pending are %+v", got)
			}
			e.wantRefs(nil)
		}},
		{"P2 an intent whose lock Gerrit's plugin took over can only keep the old value, and leaves the lock alone", func(e *env) {
			l := e.prepare(e.a, move(refA, "", v1))
			e.db.TakeOver(e, e.project, refA, gerrit)
			if ended := e.resolve(e.b, refdb.TakeNew, l.ids()...); ended[0] {
				e.Error("the new value was taken")
			}
			if ended := e.resolve(e.b, refdb.KeepOld, l.ids()...); !ended[0] {
				e.Error("the old value was not kept")
			}
			e.wantGerrits(refA)
			e.wantRefs(nil)
		}},
		{"P2 a revocation leaves a lock alone that Gerrit's plugin took over", func(e *env) {
			r := e.prepareRequest(e.a, move(refA, "", v1), move(refB, "", v1))
			_, err := e.sendPrepare(e.a, r)
			e.must(err)
			e.db.TakeOver(e, e.project, refA, gerrit)
			e.revoke(e.a, r)
			e.wantGerrits(refA)
			e.wantFree(refB)
		}},
		{"a revocation leaves the locks and intents of others alone", func(e *env) {
			r := e.prepareRequest(e.a, move(refA, "", v1), move(refB, "", v1), move(refC, "", v1))
			l := e.prepare(e.a, move(refA, "", v1))
			other := e.acquire(e.b, refB)
			e.revoke(e.a, r)
			e.wantIntended(l)
			e.wantLock(other)
			e.wantFree(refC)
		}},
		{"a revocation is listed as a decision of its owner until it is forgotten", func(e *env) {
			r := e.prepareRequest(e.a, move(refA, "", v1), move(refB, "", v1))
			e.revoke(e.a, r)
			got := e.decided()
			if len(got) != 1 || got[0].Ref != refA || got[0].Decision != refdb.Revoked || got[0].Owner != r.Owner || got[0].DecidedBy != r.Owner ||
				got[0].Agent != agent || got[0].New != v1 || got[0].DecidedAt.IsZero() {
				e.Fatalf("decided are %+v", got)
			}
			if ended := e.resolve(e.b, refdb.KeepOld, intentIDs(got)...); ended[0] {
				e.Error("it was pending")
			}
			e.forget(e.a, intentIDs(got)...)
			e.wantNone()
		}},
		{"P10 who decided and why are data", func(e *env) {
			for i, text := range nastyProjects() {
				l := e.prepare(e.a, move(fmt.Sprintf("refs/heads/%d", i), "", v1))
				_, err := e.b.Resolve(e.Context(), refdb.ResolveRequest{Intents: l.ids(), Decision: refdb.KeepOld, Origin: refdb.Origin{By: text}, Reason: text + "."})
				e.must(err)
				got := e.intents(refdb.IntentQuery{IntentFilter: refdb.IntentFilter{Project: e.project, Ref: l.refs()[0], Decided: true}})
				if len(got) != 1 || got[0].DecidedBy != text || got[0].Reason != text+"." {
					e.Errorf("%q: got %+v", text, got)
				}
			}
		}},
	}
}
