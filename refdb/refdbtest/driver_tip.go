package refdbtest

import (
	"errors"
	"math"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A tip is read alone, and says whether a project's refs may have changed.
func tipRows() []row {
	return []row{
		{"a project without changes has an empty tip", func(e *env) {
			t := e.tip()
			if t.Newest != 0 || t.Pending || t.Revision != 0 || t.Server == "" || len(t.State.Epochs) == 0 || !t.State.Admitted {
				e.Errorf("%+v", t)
			}
		}},
		{"a tip has the last of the project's changes, and those of no other project", func(e *env) {
			for i, u := range []refdb.Update{move(refB, "", v1), move(refA, "", v1), move(refB, v1, v2), move(refA, v1, refdb.Deleted)} {
				e.must(e.update([]process{e.a, e.b}[i%2], u))
				e.wantTip()
			}
			for _, other := range []string{e.project + "/a", "x" + e.project} {
				e.must(e.sendUpdate(e.a, refdb.UpdateRequest{Project: other, Updates: []refdb.Update{move(refA, "", v1)}}))
			}
			e.wantTip()
			e.remove(refdb.RemoveRequest{Limit: 10})
			e.wantTip()
		}},
		{"a tip says whether an intent of the project is pending", func(e *env) {
			want := func(what string, want bool) {
				e.Helper()
				if t := e.tip(); t.Pending != want {
					e.Errorf("%s: %+v", what, t)
				}
			}
			l := e.prepare(e.a, move(refA, "", v1), move(refB, "", v1))
			want("two", true)
			e.must(retry(func() error { return e.tryFinish(e.a, l, []string{refA}, nil) }))
			want("one", true)
			e.must(retry(func() error { return e.tryFinish(e.a, l, nil, []string{refB}) }))
			want("none", false)
			l = e.prepare(e.b, move(refA, v1, v2))
			e.must(retry(func() error {
				_, err := e.b.Resolve(e.Context(), refdb.ResolveRequest{Origin: refdb.Origin{ID: "decide", Owner: e.b.owner}, Intents: l.ids(), Decision: refdb.KeepOld})
				return err
			}))
			want("one that was decided", false)
			for _, other := range []string{e.project + "/a", "x" + e.project} {
				r := e.prepareRequest(e.a, move(refA, "", v1))
				r.Project = other
				_, err := e.sendPrepare(e.a, r)
				e.must(err)
			}
			want("those of other projects", false)
			e.acquire(e.a, refC)
			want("a lock", false)
		}},
		{"a tip has the revision of the project's row", func(e *env) {
			p := e.putProject(e.a, e.projectRequest("1", 0))
			if t := e.tip(); t.Revision != p.Revision {
				e.Errorf("%+v, want %d", t, p.Revision)
			}
			p = e.putProject(e.b, e.projectRequest("2", p.Revision))
			if t := e.tip(); t.Revision != p.Revision {
				e.Errorf("%+v, want %d", t, p.Revision)
			}
		}},
		{"a tip is that of the changes that are left", alone(func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			e.must(e.update(e.a, move(refA, v1, v2)))
			before := e.tip()
			upto := e.complete()
			prune := func(keep int) refdb.Tip {
				e.Helper()
				_, err := e.a.Prune(e.Context(), refdb.PruneRequest{Upto: upto, EvenUnread: math.MinInt64, Keep: keep, Limit: 10})
				e.must(err)
				return e.tip()
			}
			if t := prune(1); t.Newest != before.Newest || t.State.Pruned <= before.State.Pruned {
				e.Errorf("before: %+v\nafter all but the newest were pruned: %+v", before, t)
			}
			if t := prune(0); t.Newest != 0 || t.State.Pruned != upto+1 {
				e.Errorf("after all were pruned: %+v", t)
			}
		})},
		{"a tip names the server that answered, and says whether it is admitted", alone(func(e *env) {
			before := e.tip()
			if a := e.admission(); before.Server != a.Server {
				e.Errorf("%+v, want server %q", before, a.Server)
			}
			e.restart()
			after := e.tip()
			if a := e.admission(); after.Server != a.Server || after.State.Admitted {
				e.Errorf("%+v, want server %q, which is not admitted", after, a.Server)
			}
		})},
		{"a tip and what it depends on are of one moment", alone(func(e *env) {
			old := refdb.Unknown
			for i := range e.rounds() {
				to := []refdb.Value{v1, v2}[i%2]
				l := e.prepare(e.a, move(refA, old, to))
				var ending sync.WaitGroup
				var failed error
				ending.Go(func() { failed = retry(func() error { return e.tryFinish(e.a, l, []string{refA}, nil) }) })
				t, err := e.b.Tip(e.Context(), e.project)
				ending.Wait()
				e.must(errors.Join(err, failed))
				log := e.log("")
				if last := log[len(log)-1].Position; !t.Pending && t.Newest != last {
					e.Fatalf("no intent was pending, and the change at %d that had ended it was not there: %+v", last, t)
				}
				old = to
			}
		})},
	}
}

// tip returns the tip of the row's project.
func (e *env) tip() (t refdb.Tip) {
	e.Helper()
	e.must(retry(func() (err error) {
		t, err = e.b.Tip(e.Context(), e.project)
		return err
	}))
	return t
}

// wantTip compares the tip with the log.
func (e *env) wantTip() {
	e.Helper()
	log := e.log("")
	if t := e.tip(); t.Newest != log[len(log)-1].Position {
		e.Errorf("the tip is %+v, the last change %+v", t, log[len(log)-1])
	}
}
