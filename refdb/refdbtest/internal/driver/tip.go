package driver

import (
	"errors"
	"math"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// A tip is read alone, and says whether a project's refs may have changed.
func tipRows() []row {
	return []row{
		{"a project without changes has an empty tip", func(e *env) {
			t := e.Tip()
			if t.Newest != 0 || t.Pending || t.Revision != 0 || t.Server == "" || len(t.State.Epochs) == 0 || !t.State.Admitted {
				e.Errorf("%+v", t)
			}
		}},
		{"a tip has the last of the project's changes, and those of no other project", func(e *env) {
			for i, u := range []driver.Update{suite.Move(refB, "", v1), suite.Move(refA, "", v1), suite.Move(refB, v1, v2), suite.Move(refA, v1, driver.Deleted)} {
				e.Must(e.Update([]process{e.A, e.B}[i%2], u))
				e.WantTip()
			}
			for _, other := range []string{e.Project + "/a", "x" + e.Project} {
				e.Must(e.SendUpdate(e.A, driver.UpdateRequest{Project: other, Updates: []driver.Update{suite.Move(refA, "", v1)}}))
			}
			e.WantTip()
			e.Remove(driver.RemoveRequest{Limit: 10})
			e.WantTip()
		}},
		{"a tip says whether an intent of the project is pending", func(e *env) {
			want := func(what string, want bool) {
				e.Helper()
				if t := e.Tip(); t.Pending != want {
					e.Errorf("%s: %+v", what, t)
				}
			}
			l := e.Prepare(e.A, suite.Move(refA, "", v1), suite.Move(refB, "", v1))
			want("two", true)
			e.Must(suite.Retry(func() error { return e.TryFinish(e.A, l, []string{refA}, nil) }))
			want("one", true)
			e.Must(suite.Retry(func() error { return e.TryFinish(e.A, l, nil, []string{refB}) }))
			want("none", false)
			l = e.Prepare(e.B, suite.Move(refA, v1, v2))
			e.Must(suite.Retry(func() error {
				_, err := e.B.Resolve(e.Context(), driver.ResolveRequest{Origin: driver.Origin{ID: "decide", Owner: e.B.Owner}, Intents: l.IDs(), Decision: driver.KeepOld})
				return err
			}))
			want("one that was decided", false)
			for _, other := range []string{e.Project + "/a", "x" + e.Project} {
				r := e.PrepareRequest(e.A, suite.Move(refA, "", v1))
				r.Project = other
				_, err := e.SendPrepare(e.A, r)
				e.Must(err)
			}
			want("those of other projects", false)
			e.Acquire(e.A, refC)
			want("a lock", false)
		}},
		{"a tip has the revision of the project's row", func(e *env) {
			p := e.PutProject(e.A, e.ProjectRequest("1", 0))
			if t := e.Tip(); t.Revision != p.Revision {
				e.Errorf("%+v, want %d", t, p.Revision)
			}
			p = e.PutProject(e.B, e.ProjectRequest("2", p.Revision))
			if t := e.Tip(); t.Revision != p.Revision {
				e.Errorf("%+v, want %d", t, p.Revision)
			}
		}},
		{"a tip is taken from the changes that were not pruned", suite.Alone(func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			e.Must(e.Update(e.A, suite.Move(refA, v1, v2)))
			before := e.Tip()
			upto := e.Complete()
			prune := func(keep int) driver.Tip {
				e.Helper()
				_, err := e.A.Prune(e.Context(), driver.PruneRequest{Upto: upto, EvenUnread: math.MinInt64, Keep: keep, Limit: 10})
				e.Must(err)
				return e.Tip()
			}
			if t := prune(1); t.Newest != before.Newest || t.State.Pruned <= before.State.Pruned {
				e.Errorf("before: %+v\nafter all but the newest were pruned: %+v", before, t)
			}
			if t := prune(0); t.Newest != 0 || t.State.Pruned != upto+1 {
				e.Errorf("after all were pruned: %+v", t)
			}
		})},
		{"a tip names the server that answered, and says whether it is admitted", suite.Alone(func(e *env) {
			before := e.Tip()
			if a := e.Admission(); before.Server != a.Server {
				e.Errorf("%+v, want server %q", before, a.Server)
			}
			e.Restart()
			after := e.Tip()
			if a := e.Admission(); after.Server != a.Server || after.State.Admitted {
				e.Errorf("%+v, want server %q, which is not admitted", after, a.Server)
			}
		})},
		{"a tip and the state that it depends on are from one snapshot", suite.Alone(func(e *env) {
			old := driver.Unknown
			for i := range e.Rounds() {
				to := []driver.Value{v1, v2}[i%2]
				l := e.Prepare(e.A, suite.Move(refA, old, to))
				var ending sync.WaitGroup
				var failed error
				ending.Go(func() { failed = suite.Retry(func() error { return e.TryFinish(e.A, l, []string{refA}, nil) }) })
				t, err := e.B.Tip(e.Context(), e.Project)
				ending.Wait()
				e.Must(errors.Join(err, failed))
				log := e.ReadLog("")
				if last := log[len(log)-1].Position; !t.Pending && t.Newest != last {
					e.Fatalf("no intent was pending, and the change at %d that had ended it was not there: %+v", last, t)
				}
				old = to
			}
		})},
	}
}
