package driver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

const (
	refD = "refs/heads/d"
	refE = "refs/heads/e"
)

// A server that is not admitted is only read.
func admissionRows() []row {
	return []row{
		{"a new database is admitted, and no witness is awaited", suite.Alone(func(e *env) {
			a := e.Admission()
			if e.WantAdmission(a, true); a.Server == "" || a.Halted || a.Lost != 0 || len(a.Witnesses) != 0 || a.Err() != nil {
				e.Errorf("%+v, %v", a, a.Err())
			}
			if b, err := e.B.Admission(e.Context()); err != nil || b.Server != a.Server {
				e.Errorf("the server of another process is %q, want %q; %v", b.Server, a.Server, err)
			}
			if s := e.History(); !s.Admitted {
				e.Errorf("%+v", s)
			}
		})},
		{"a write at a server that is not admitted does nothing", suite.Alone(func(e *env) {
			writes := writes(e)
			before := everything(e)
			e.Restart()
			for _, w := range writes {
				if err := w.do(); !errors.Is(err, driver.ErrNotAdmitted) || driver.ClassOf(err) != driver.Retryable {
					e.Errorf("%s: %v, want %v", w.method, err, driver.ErrNotAdmitted)
				}
			}
			if after := everything(e); after != before {
				e.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			e.WantAdmission(e.Report(driver.Report{Owner: "site-a/1"}), true)
			for _, w := range writes {
				if err := w.do(); errors.Is(err, driver.ErrNotAdmitted) {
					e.Errorf("%s, once it is admitted: %v", w.method, err)
				}
			}
		})},
		{"a server that is not admitted can be read, and reports that it is not admitted", suite.Alone(func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", v1)))
			e.Restart()
			e.WantRefs(map[string]driver.Value{refA: v1})
			if got, err := e.A.Get(e.Context(), e.Project, []string{refA}); err != nil || len(got) != 1 {
				e.Errorf("%+v, %v", got, err)
			}
			e.WantLog("a ->1")
			e.WantNone()
			if s := e.History(); s.Admitted {
				e.Errorf("%+v", s)
			}
			for what, p := range map[string]func() (driver.HistoryState, error){
				"changes": func() (driver.HistoryState, error) {
					p, err := e.A.Changes(e.Context(), driver.ChangesRequest{Limit: 1})
					return p.State, err
				},
				"newest": func() (driver.HistoryState, error) {
					_, s, err := e.A.Newest(e.Context())
					return s, err
				},
			} {
				if s, err := p(); err != nil || s.Admitted {
					e.Errorf("%s: %+v, %v", what, s, err)
				}
			}
			a := e.Admission()
			if e.WantAdmission(a, false); a.Halted {
				e.Errorf("%+v", a)
			}
			e.WantIs(a.Err(), driver.ErrNotAdmitted)
		})},
		{"audit entries and followers can be written at a server that is not admitted", suite.Alone(func(e *env) {
			e.Restart()
			entry := e.RecordEntry(e.A, "recover")
			if there, err := e.A.Conclude(e.Context(), entry.Cursor(), "done"); !there || err != nil {
				e.Errorf("%t, %v", there, err)
			}
			e.Must(e.A.PutFollower(e.Context(), driver.Follower{Name: "f", Cursor: "c"}))
			if found, err := e.A.RemoveFollower(e.Context(), "f"); !found || err != nil {
				e.Errorf("%t, %v", found, err)
			}
		})},
	}
}

// A write is a request of a method that needs an admitted server.
type write struct {
	method string
	do     func() error
}

// writes are requests of every such method, each of which would change something.
func writes(e *env) []write {
	e.Helper()
	e.Must(e.Update(e.A, suite.Move(refA, "", v1), suite.Move(refE, "", v1)))
	e.Must(e.Update(e.A, suite.Move(refE, v1, driver.Deleted)))
	l, ended := e.Acquire(e.A, refB), e.Acquire(e.A, refC)
	p, r, decided := e.Prepare(e.A, suite.Move(refD, "", v1)), e.Prepare(e.A, suite.Move("refs/heads/f", "", v1)), e.Prepare(e.A, suite.Move("refs/heads/g", "", v1))
	e.Resolve(e.A, driver.KeepOld, decided.IDs()...)
	ctx, pruned := e.Context(), e.Complete()
	acquire := e.AcquireRequest(e.A, "refs/heads/h")
	update := driver.UpdateRequest{Project: e.Project, Updates: []driver.Update{suite.Move(refA, v1, v2)}, Origin: suite.By(e.A, "an-update")}
	create := update
	create.Updates = []driver.Update{suite.Move("refs/heads/i", "", v1)}
	writes := []write{
		{"Update", func() error { return e.A.Update(ctx, update) }},
		{"Update of a ref that is new", func() error { return e.A.Update(ctx, create) }},
		{"Update under a fence", func() error {
			u := driver.UpdateRequest{Project: e.Project, Updates: []driver.Update{suite.Move(refB, "", v1)}, Origin: suite.By(e.A, "a-fenced-update"), Fence: l.Releasing()}
			return e.A.Update(ctx, u)
		}},
		{"PurgeTombstones", func() error {
			return suite.ErrorOf(e.A.PurgeTombstones(ctx, driver.TombstoneRequest{Project: e.Project, Limit: 10}))
		}},
		{"Acquire", func() error { return suite.ErrorOf(e.A.Acquire(ctx, acquire)) }},
		{"Abandon", func() error {
			return e.A.Abandon(ctx, driver.AbandonRequest{Project: e.Project, Refs: l.Refs(), Owner: l.Owner, Nonce: l.Nonce})
		}},
		{"Beat", func() error { return suite.ErrorOf(e.A.Beat(ctx, l.IDs())) }},
		{"Release", func() error {
			return suite.ErrorOf(e.A.Release(ctx, driver.ReleaseRequest{Project: e.Project, Refs: l.Refs(), Owner: l.Owner, Token: l.Token}))
		}},
		{"Purge", func() error { return suite.ErrorOf(e.A.Purge(ctx, suite.Standing(ended.IDs()...))) }},
		{"Prepare", func() error {
			return suite.ErrorOf(e.A.Prepare(ctx, e.PrepareRequest(e.A, suite.Move("refs/heads/j", "", v1))))
		}},
		{"Finish", func() error {
			return e.A.Finish(ctx, driver.FinishRequest{Project: e.Project, Origin: suite.By(e.A, "a-finish"), Token: p.Token, Done: p.Updates})
		}},
		{"Revoke", func() error { return e.A.Revoke(ctx, r.PrepareRequest) }},
		{"Resolve", func() error {
			return suite.ErrorOf(e.A.Resolve(ctx, driver.ResolveRequest{Intents: r.IDs(), Decision: driver.TakeNew, Origin: suite.By(e.A, "a-decision")}))
		}},
		{"Forget", func() error { return e.A.Forget(ctx, decided.IDs()) }},
		{"PutProject", func() error { return suite.ErrorOf(e.A.PutProject(ctx, e.ProjectRequest("one", 0))) }},
		{"Prune", func() error {
			return suite.ErrorOf(e.A.Prune(ctx, driver.PruneRequest{Upto: pruned, EvenUnread: pruned, Limit: 10}))
		}},
		{"States", func() error { return suite.ErrorOf(e.A.States(ctx, e.Project, []string{refA})) }},
		{"Remove", func() error {
			return suite.ErrorOf(e.A.Remove(ctx, driver.RemoveRequest{Project: e.Project, Limit: 10, Locks: driver.AdvisoryLocks, Origin: suite.By(e.A, "a-removal")}))
		}},
	}
	return append(writes, packWrites(e)...)
}

// everything is all that the row's project has, as text, without ages.
func everything(e *env) string {
	e.Helper()
	var all []string
	for _, r := range e.List(e.Project) {
		all = append(all, fmt.Sprintf("%+v", r))
	}
	for _, l := range e.Locks(driver.LockQuery{LockFilter: driver.LockFilter{Project: e.Project}}) {
		l.Age = 0
		all = append(all, fmt.Sprintf("%+v", l))
	}
	for _, i := range append(e.Pending(), e.Decided()...) {
		i.Age = 0
		all = append(all, fmt.Sprintf("%+v", i))
	}
	for _, p := range e.Projects(driver.ProjectQuery{Project: e.Project}) {
		p.Age = 0
		all = append(all, fmt.Sprintf("%+v", p))
	}
	return strings.Join(append(all, suite.SaidAll(e.ReadLog("")), packsText(e)), "\n")
}

// Witnesses look, and report.
func reportRows() []row {
	return []row{
		{"a change is found by its operation, project and ref", suite.Alone(func(e *env) {
			e.Change(e.A, "op1", suite.Move(refA, "", v1))
			e.Change(e.A, "op2", suite.Move(refA, v1, v2), suite.Move(refB, "", v1))
			other := e.Known("op1", refA, "", v1)
			other.Project += "-other"
			e.WantMissing("", "", e.Known("op1", refA, "", v1), e.Known("op2", refA, v1, v2), e.Known("op2", refB, "", v1))
			e.WantMissing("op1 op1 op op1-1 op11", "", e.Known("op1", refB, "", v1), other, e.Known("op", refA, "", v1),
				e.Known("op1-1", refA, "", v1), e.Known("op11", refA, "", v1), e.Known("op2", refA, "", v1))
			e.WantMissing("", "a witness")
		})},
		{"an intent is found pending, ended as made, or decided", suite.Alone(func(e *env) {
			p, other, made, own := e.Prepare(e.A, suite.Move(refA, "", v1)), e.Prepare(e.A, suite.Move(refB, "", v1)), e.Prepare(e.A, suite.Move(refC, "", v1)), e.Prepare(e.A, suite.Move(refD, "", v1))
			e.Resolve(e.A, driver.KeepOld, other.IDs()...)
			e.Must(e.A.Finish(e.Context(), driver.FinishRequest{Project: e.Project, Origin: suite.By(e.A, made.Nonce+"-1"), Token: made.Token, Done: made.Updates}))
			e.Must(e.A.Finish(e.Context(), driver.FinishRequest{Project: e.Project, Origin: suite.By(e.A, own.Nonce), Token: own.Token, Done: own.Updates}))
			of := func(p preparation, ref string) driver.Known {
				return e.KnownIntent(p.Nonce, ref, "", v1, driver.MoveUnknown)
			}
			e.WantMissing("", "", of(p, refA), of(other, refB), of(made, refC), of(own, refD))
			e.WantMissing(p.Nonce+" none", "", of(p, refB), e.KnownIntent("none", refA, "", v1, driver.MoveUnknown))
			// A change is not found by an intent for it, nor by the change that ended one.
			e.WantMissing(p.Nonce+" "+made.Nonce, "", e.Known(p.Nonce, refA, "", v1), e.Known(made.Nonce, refC, "", v1))
		})},
		{"a change that may have been pruned since the witness was complete counts as lost, one that was pruned before does not", suite.Long(suite.Alone(func(e *env) {
			old := e.Known("pruned", refA, "", v1)
			old.At = old.At.Add(-time.Hour)
			e.WantMissing("pruned", "", old)
			e.Change(e.A, "op1", suite.Move(refA, "", v1))
			e.Change(e.A, "op2", suite.Move(refA, v1, v2))
			e.Change(e.A, "op3", suite.Move(refA, v2, v3))
			upto := e.Complete()
			if p, err := e.A.Prune(e.Context(), driver.PruneRequest{Upto: upto, EvenUnread: upto, Keep: 1, Limit: 10}); err != nil || p.Deleted != 2 {
				e.Fatalf("pruned %+v, %v", p, err)
			}
			late := e.Known("late", refA, "", v1)
			late.At = late.At.Add(time.Hour)
			e.WantMissing("late", "", old, late)
			e.WantMissing("pruned late", "site-w", old, late)
			e.Report(driver.Report{Witness: "site-w", Missing: nil})
			e.WantMissing("late", "site-w", old, late)
			e.WantMissing("pruned late", "site-x", old, late)
			// A report is no look that came before it.
			if a := e.Report(driver.Report{Witness: "site-x", Missing: []driver.Known{old}}); a.Lost != 1 || a.Admitted {
				e.Errorf("what site-x misses is taken for pruned: %+v", a)
			}
		}))},
		{"a lost change is found once it has been decided", suite.Alone(func(e *env) {
			k := e.Known("op1", refA, v2, v3)
			e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{k}})
			e.WantMissing("op1", "site-w", k)
			e.Recover(suite.RecoverRequest())
			e.WantMissing("", "site-w", k)
		})},
		{"a report of another server is ignored", suite.Alone(func(e *env) {
			e.Restart()
			before := e.Admission()
			for _, server := range []string{"another server", ""} {
				_, err := e.A.Report(e.Context(), driver.Report{Witness: "site-w", Server: server, Missing: []driver.Known{e.Known("op1", refA, "", v1)}})
				e.WantIs(err, driver.ErrUnavailable)
			}
			if a := e.Admission(); a.Admitted || a.Lost != 0 || len(a.Witnesses) != 0 || a.Server != before.Server {
				e.Errorf("%+v", a)
			}
		})},
		{"a server is admitted once every witness has reported about it", suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w", "site-x")
			e.Restart()
			e.WantAdmission(e.Admission(), false, "site-v", "site-w", "site-x")
			e.WantAdmission(e.Report(driver.Report{Witness: "site-w"}), false, "site-v", "site-x")
			e.WantAdmission(e.Report(driver.Report{Witness: "site-w"}), false, "site-v", "site-x")
			e.WantAdmission(e.Report(driver.Report{Owner: "a tool"}), false, "site-v", "site-x")
			e.WantAdmission(e.Report(driver.Report{Witness: "site-v"}), false, "site-x")
			e.WantWritable(false)
			e.WantAdmission(e.Report(driver.Report{Witness: "site-x"}), true)
			e.WantWritable(true)
			if s := e.History(); !s.Admitted {
				e.Errorf("%+v", s)
			}
		})},
		{"a process that is not a witness is not registered, and admits a server if no witness is awaited", suite.Alone(func(e *env) {
			e.Restart()
			e.WantWritable(false)
			a := e.Report(driver.Report{Owner: "a tool"})
			if e.WantAdmission(a, true); len(a.Witnesses) != 0 {
				e.Errorf("%+v", a.Witnesses)
			}
			e.WantWritable(true)
		})},
		{"a witness that is away is not awaited until it is back", suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w")
			e.Report(driver.Report{Witness: "site-w", Away: true})
			e.Restart()
			e.WantAdmission(e.Report(driver.Report{Witness: "site-v"}), true)
			e.Report(driver.Report{Witness: "site-w"})
			e.Restart()
			e.WantAdmission(e.Report(driver.Report{Witness: "site-v"}), false, "site-w")
		})},
		{"the report of a leaving witness may be the last awaited one", suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w")
			e.Restart()
			e.WantAdmission(e.Report(driver.Report{Witness: "site-v"}), false, "site-w")
			e.WantAdmission(e.Report(driver.Report{Witness: "site-w", Away: true}), true)
		})},
		{"a witness known to be live is awaited, even if it was away, left out or unknown in the earlier database", suite.Long(suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w", "site-x")
			e.Report(driver.Report{Witness: "site-w", Away: true})
			later := e.Now(e.A).Add(time.Hour)
			marks := []driver.WitnessMark{{Name: "site-w", Since: later}, {Name: "site-x"}, {Name: "site-y", Since: later}}
			e.Restart()
			e.Report(driver.Report{Witness: "site-x"})
			e.WantAdmission(e.Report(driver.Report{Witness: "site-v", Marks: marks}), false, "site-w", "site-y")
			e.WantAdmission(e.Report(driver.Report{Witness: "site-w"}), false, "site-y")
			e.WantAdmission(e.Report(driver.Report{Witness: "site-y", Marks: marks}), true)
			for _, w := range e.Admission().Witnesses {
				// What was made awaited again has the time of its mark, until it says that it did not know of it.
				want := w.Name == "site-w" && w.Since.After(later) || w.Name == "site-y" && w.Since.Equal(later) || w.Since.Before(later)
				if w.Away || w.Without || !want {
					e.Errorf("%+v", w)
				}
			}
		}))},
		{"a witness that turns out to be live revokes the admission", suite.Long(suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w")
			e.Report(driver.Report{Witness: "site-w", Away: true})
			e.WantWritable(true)
			marks := []driver.WitnessMark{{Name: "site-w", Since: e.Now(e.A).Add(time.Hour)}}
			e.WantAdmission(e.Report(driver.Report{Witness: "site-v", Marks: marks}), false, "site-w")
			e.WantWritable(false)
			e.WantAdmission(e.Report(driver.Report{Witness: "site-w"}), true)
		}))},
		{"a change that arrives after it was reported missing is not lost", suite.Alone(func(e *env) {
			e.Witnesses("site-v")
			k := e.Known("op1", refA, "", v1)
			e.Must(e.A.Update(e.Context(), driver.UpdateRequest{Project: e.Project, Updates: []driver.Update{suite.Move(refA, "", v1)}, Origin: driver.Origin{ID: "op1", Owner: e.A.Owner}}))
			e.WantAdmission(e.Report(driver.Report{Witness: "site-v", Missing: []driver.Known{k}}), true)
			e.WantLostChanges(true, "")
		})},
		{"a lost change halts an admitted server, and later reports don't admit it", suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w")
			k := e.Known("op1", refA, "", v1)
			a := e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{k}})
			if e.WantAdmission(a, false); !a.Halted || a.Lost != 1 {
				e.Errorf("%+v", a)
			}
			e.WantIs(a.Err(), driver.ErrLostChanges)
			e.WantWritable(false)
			if s := e.History(); s.Admitted {
				e.Errorf("%+v", s)
			}
			for _, name := range []string{"site-v", "site-w", ""} {
				if a := e.Report(driver.Report{Witness: name, Owner: "site-o/1"}); a.Admitted || !a.Halted || a.Lost != 1 {
					e.Errorf("after a report of %q: %+v", name, a)
				}
			}
			e.WantWritable(false)
		})},
		{"a lost change is recorded as it was reported", suite.Alone(func(e *env) {
			before, err := e.A.Now(e.Context())
			e.Must(err)
			k := e.KnownIntent("op1", refA, v1, v2, driver.MoveMade)
			e.Report(driver.Report{Owner: "site-o/1", Missing: []driver.Known{k}})
			p, err := e.A.LostChanges(e.Context(), driver.LostQuery{Limit: 10})
			e.Must(err)
			if len(p.Lost) != 1 || p.Next != (driver.LostCursor{}) {
				e.Fatalf("%+v", p)
			}
			l := p.Lost[0]
			if l.Reported.Before(before) || time.Since(l.Reported) > time.Hour || l.Witness != "site-o/1" || l.Fate != driver.Undecided {
				e.Errorf("%+v", l)
			}
			if l.Known != k {
				e.Errorf("got  %+v\nwant %+v", l.Known, k)
			}
		})},
		{"a witness alone reports the outcome of a move later", suite.Long(suite.Alone(func(e *env) {
			e.Witnesses("site-v")
			e.Restart()
			k := e.KnownIntent("op1", refA, "", v1, driver.MoveUnknown)
			e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{k}, Open: true})
			moves := func() (all string) {
				p, err := e.B.LostChanges(e.Context(), driver.LostQuery{Limit: 10})
				e.Must(err)
				for _, l := range p.Lost {
					all += fmt.Sprintf("%s %s %s,", l.Op, l.Move, l.Witness)
				}
				return all
			}
			want := func(said string) {
				e.Helper()
				if got := moves(); got != said {
					e.Errorf("lost are %q, want %q", got, said)
				}
			}
			want("op1  site-w,")
			k.Move = driver.MoveUnmade
			e.Report(driver.Report{Witness: "site-v", Missing: []driver.Known{k}})
			want("op1  site-w,")
			k.Move = driver.MoveMade
			a := e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{k}})
			want("op1 made site-w,")
			if a.Lost != 1 {
				e.Errorf("%+v", a)
			}
		}))},
		{"a witness that will know more later is awaited", suite.Long(suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w")
			e.Restart()
			e.WantAdmission(e.Report(driver.Report{Witness: "site-v"}), false, "site-w")
			k := e.KnownIntent("op1", refA, "", v1, driver.MoveUnknown)
			if a := e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{k}, Open: true}); !slices.Equal(a.Waiting(), []string{"site-w"}) || a.Lost != 1 {
				e.Errorf("%+v", a)
			}
			k.Move = driver.MoveUnmade
			if a := e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{k}}); len(a.Waiting()) != 0 || a.Lost != 1 {
				e.Errorf("%+v", a)
			}
		}))},
		{"a witness has the time of its last report", suite.Alone(func(e *env) {
			seen := func() time.Time {
				e.Helper()
				a := e.Admission()
				if len(a.Witnesses) != 1 || a.Witnesses[0].Name != "site-w" || a.Witnesses[0].Server != a.Server {
					e.Fatalf("%+v", a.Witnesses)
				}
				return a.Witnesses[0].Seen
			}
			e.Report(driver.Report{Witness: "site-w"})
			first := seen()
			e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{e.Known("op1", refA, v1, v2)}})
			if at := seen(); first.IsZero() || !at.After(first) {
				e.Errorf("it reported at %s, and then at %s", first, at)
			}
		})},
		{"changes known to a witness that a recovery left out are late, and halt nothing", suite.Long(suite.Alone(func(e *env) {
			e.Witnesses("site-v", "site-w")
			e.Restart()
			e.Report(driver.Report{Witness: "site-v"})
			e.Recover(suite.RecoverRequest("site-w"))
			e.WantWritable(true)
			a := e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{e.Known("op1", refA, "", v1)}})
			if e.WantAdmission(a, true); a.Halted || a.Lost != 0 {
				e.Errorf("%+v", a)
			}
			e.WantLostChanges(false, "")
			e.WantLostChanges(true, "op1 late")
			e.WantMissing("", "site-w", e.Known("op1", refA, "", v1))
			// From now on it is as any other.
			e.Restart()
			e.WantAdmission(e.Report(driver.Report{Witness: "site-v"}), false, "site-w")
			if a := e.Report(driver.Report{Witness: "site-w", Missing: []driver.Known{e.Known("op2", refA, "", v1)}}); !a.Halted {
				e.Errorf("%+v", a)
			}
		}))},
		{"lost changes come in order, by pages of any size", suite.Long(suite.Alone(func(e *env) {
			var known []driver.Known
			for _, ref := range []string{refB, refA} {
				for _, op := range []string{"op2", "op1", "op10"} {
					known = append(known, e.Known(op, ref, "", v1))
				}
			}
			e.Report(driver.Report{Witness: "site-w", Missing: known})
			for limit := 1; limit <= 7; limit++ {
				var got []string
				for q := (driver.LostQuery{Limit: limit}); ; {
					p, err := e.A.LostChanges(e.Context(), q)
					e.Must(err)
					for _, l := range p.Lost {
						got = append(got, strings.TrimPrefix(l.Ref, "refs/heads/")+" "+l.Op)
					}
					if q.After = p.Next; p.Next == (driver.LostCursor{}) {
						break
					}
				}
				if said := strings.Join(got, ", "); said != "a op1, a op10, a op2, b op1, b op10, b op2" {
					e.Errorf("by pages of %d: %s", limit, said)
				}
			}
		}))},
	}
}
