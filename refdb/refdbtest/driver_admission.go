package refdbtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	refD = "refs/heads/d"
	refE = "refs/heads/e"
)

// A server that is not admitted is only read.
func admissionRows() []row {
	return []row{
		{"a new database is admitted, and nobody is waited for", alone(func(e *env) {
			a := e.admission()
			if e.wantAdmission(a, true); a.Server == "" || a.Halted || a.Lost != 0 || len(a.Witnesses) != 0 || a.Err() != nil {
				e.Errorf("%+v, %v", a, a.Err())
			}
			if b, err := e.b.Admission(e.Context()); err != nil || b.Server != a.Server {
				e.Errorf("the server of another process is %q, want %q; %v", b.Server, a.Server, err)
			}
			if s := e.history(); !s.Admitted {
				e.Errorf("%+v", s)
			}
		})},
		{"a write at a server that is not admitted does nothing", alone(func(e *env) {
			writes := e.writes()
			before := e.everything()
			e.restart()
			for _, w := range writes {
				if err := w.do(); !errors.Is(err, refdb.ErrNotAdmitted) || refdb.ClassOf(err) != refdb.Retryable {
					e.Errorf("%s: %v, want %v", w.method, err, refdb.ErrNotAdmitted)
				}
			}
			if after := e.everything(); after != before {
				e.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			e.wantAdmission(e.report(refdb.Report{Owner: "site-a/1"}), true)
			for _, w := range writes {
				if err := w.do(); errors.Is(err, refdb.ErrNotAdmitted) {
					e.Errorf("%s, once it is admitted: %v", w.method, err)
				}
			}
		})},
		{"a server that is not admitted can be read, and says so", alone(func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			e.restart()
			e.wantRefs(map[string]refdb.Value{refA: v1})
			if got, err := e.a.Get(e.Context(), e.project, []string{refA}); err != nil || len(got) != 1 {
				e.Errorf("%+v, %v", got, err)
			}
			e.wantLog("a ->1")
			e.wantNone()
			if s := e.history(); s.Admitted {
				e.Errorf("%+v", s)
			}
			for what, p := range map[string]func() (refdb.HistoryState, error){
				"changes": func() (refdb.HistoryState, error) {
					p, err := e.a.Changes(e.Context(), refdb.ChangesRequest{Limit: 1})
					return p.State, err
				},
				"newest": func() (refdb.HistoryState, error) {
					_, s, err := e.a.Newest(e.Context())
					return s, err
				},
			} {
				if s, err := p(); err != nil || s.Admitted {
					e.Errorf("%s: %+v, %v", what, s, err)
				}
			}
			a := e.admission()
			if e.wantAdmission(a, false); a.Halted {
				e.Errorf("%+v", a)
			}
			e.wantIs(a.Err(), refdb.ErrNotAdmitted)
		})},
		{"what is done is recorded, and followers go on, at a server that is not admitted", alone(func(e *env) {
			e.restart()
			entry := e.recordEntry(e.a, "recover")
			if there, err := e.a.Conclude(e.Context(), entry.Cursor(), "done"); !there || err != nil {
				e.Errorf("%t, %v", there, err)
			}
			e.must(e.a.PutFollower(e.Context(), refdb.Follower{Name: "f", Cursor: "c"}))
			if found, err := e.a.RemoveFollower(e.Context(), "f"); !found || err != nil {
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
func (e *env) writes() []write {
	e.Helper()
	e.must(e.update(e.a, move(refA, "", v1), move(refE, "", v1)))
	e.must(e.update(e.a, move(refE, v1, refdb.Deleted)))
	l, ended := e.acquire(e.a, refB), e.acquire(e.a, refC)
	p, r, decided := e.prepare(e.a, move(refD, "", v1)), e.prepare(e.a, move("refs/heads/f", "", v1)), e.prepare(e.a, move("refs/heads/g", "", v1))
	e.resolve(e.a, refdb.KeepOld, decided.ids()...)
	ctx, pruned := e.Context(), e.complete()
	acquire := e.acquireRequest(e.a, "refs/heads/h")
	update := refdb.UpdateRequest{Project: e.project, Updates: []refdb.Update{move(refA, v1, v2)}, Origin: by(e.a, "an-update")}
	create := update
	create.Updates = []refdb.Update{move("refs/heads/i", "", v1)}
	writes := []write{
		{"Update", func() error { return e.a.Update(ctx, update) }},
		{"Update of a ref that is new", func() error { return e.a.Update(ctx, create) }},
		{"Update under a fence", func() error {
			u := refdb.UpdateRequest{Project: e.project, Updates: []refdb.Update{move(refB, "", v1)}, Origin: by(e.a, "a-fenced-update"), Fence: l.releasing()}
			return e.a.Update(ctx, u)
		}},
		{"PurgeTombstones", func() error {
			return errorOf(e.a.PurgeTombstones(ctx, refdb.TombstoneRequest{Project: e.project, Limit: 10}))
		}},
		{"Acquire", func() error { return errorOf(e.a.Acquire(ctx, acquire)) }},
		{"Abandon", func() error {
			return e.a.Abandon(ctx, refdb.AbandonRequest{Project: e.project, Refs: l.refs(), Owner: l.Owner, Nonce: l.Nonce})
		}},
		{"Beat", func() error { return errorOf(e.a.Beat(ctx, l.ids())) }},
		{"Release", func() error {
			return errorOf(e.a.Release(ctx, refdb.ReleaseRequest{Project: e.project, Refs: l.refs(), Owner: l.Owner, Token: l.Token}))
		}},
		{"Purge", func() error { return errorOf(e.a.Purge(ctx, standing(ended.ids()...))) }},
		{"Prepare", func() error { return errorOf(e.a.Prepare(ctx, e.prepareRequest(e.a, move("refs/heads/j", "", v1)))) }},
		{"Finish", func() error {
			return e.a.Finish(ctx, refdb.FinishRequest{Project: e.project, Origin: by(e.a, "a-finish"), Token: p.Token, Done: p.Updates})
		}},
		{"Revoke", func() error { return e.a.Revoke(ctx, r.PrepareRequest) }},
		{"Resolve", func() error {
			return errorOf(e.a.Resolve(ctx, refdb.ResolveRequest{Intents: r.ids(), Decision: refdb.TakeNew, Origin: by(e.a, "a-decision")}))
		}},
		{"Forget", func() error { return e.a.Forget(ctx, decided.ids()) }},
		{"PutProject", func() error { return errorOf(e.a.PutProject(ctx, e.projectRequest("one", 0))) }},
		{"Prune", func() error {
			return errorOf(e.a.Prune(ctx, refdb.PruneRequest{Upto: pruned, EvenUnread: pruned, Limit: 10}))
		}},
		{"States", func() error { return errorOf(e.a.States(ctx, e.project, []string{refA})) }},
		{"Remove", func() error {
			return errorOf(e.a.Remove(ctx, refdb.RemoveRequest{Project: e.project, Limit: 10, Locks: refdb.AdvisoryLocks, Origin: by(e.a, "a-removal")}))
		}},
	}
	return append(writes, e.packWrites()...)
}

// everything is all that the row's project has, as text, without ages.
func (e *env) everything() string {
	e.Helper()
	var all []string
	for _, r := range e.list(e.project) {
		all = append(all, fmt.Sprintf("%+v", r))
	}
	for _, l := range e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}}) {
		l.Age = 0
		all = append(all, fmt.Sprintf("%+v", l))
	}
	for _, i := range append(e.pending(), e.decided()...) {
		i.Age = 0
		all = append(all, fmt.Sprintf("%+v", i))
	}
	for _, p := range e.projects(refdb.ProjectQuery{Project: e.project}) {
		p.Age = 0
		all = append(all, fmt.Sprintf("%+v", p))
	}
	return strings.Join(append(all, saidAll(e.log("")), e.packsText()), "\n")
}

// Witnesses look, and report.
func reportRows() []row {
	return []row{
		{"a change is found by its operation, project and ref", alone(func(e *env) {
			e.change(e.a, "op1", move(refA, "", v1))
			e.change(e.a, "op2", move(refA, v1, v2), move(refB, "", v1))
			other := e.known("op1", refA, "", v1)
			other.Project += "-other"
			e.wantMissing("", "", e.known("op1", refA, "", v1), e.known("op2", refA, v1, v2), e.known("op2", refB, "", v1))
			e.wantMissing("op1 op1 op op1-1 op11", "", e.known("op1", refB, "", v1), other, e.known("op", refA, "", v1),
				e.known("op1-1", refA, "", v1), e.known("op11", refA, "", v1), e.known("op2", refA, "", v1))
			e.wantMissing("", "a witness")
		})},
		{"an intent is found pending, ended as made, or decided", alone(func(e *env) {
			p, other, made, own := e.prepare(e.a, move(refA, "", v1)), e.prepare(e.a, move(refB, "", v1)), e.prepare(e.a, move(refC, "", v1)), e.prepare(e.a, move(refD, "", v1))
			e.resolve(e.a, refdb.KeepOld, other.ids()...)
			e.must(e.a.Finish(e.Context(), refdb.FinishRequest{Project: e.project, Origin: by(e.a, made.Nonce+"-1"), Token: made.Token, Done: made.Updates}))
			e.must(e.a.Finish(e.Context(), refdb.FinishRequest{Project: e.project, Origin: by(e.a, own.Nonce), Token: own.Token, Done: own.Updates}))
			of := func(p preparation, ref string) refdb.Known {
				return e.knownIntent(p.Nonce, ref, "", v1, refdb.MoveUnknown)
			}
			e.wantMissing("", "", of(p, refA), of(other, refB), of(made, refC), of(own, refD))
			e.wantMissing(p.Nonce+" none", "", of(p, refB), e.knownIntent("none", refA, "", v1, refdb.MoveUnknown))
			// A change is not found by an intent for it, nor by the change that ended one.
			e.wantMissing(p.Nonce+" "+made.Nonce, "", e.known(p.Nonce, refA, "", v1), e.known(made.Nonce, refC, "", v1))
		})},
		{"what may have been pruned since the witness was complete counts as lost, what was pruned before does not", alone(func(e *env) {
			old := e.known("pruned", refA, "", v1)
			old.At = old.At.Add(-time.Hour)
			e.wantMissing("pruned", "", old)
			e.change(e.a, "op1", move(refA, "", v1))
			e.change(e.a, "op2", move(refA, v1, v2))
			e.change(e.a, "op3", move(refA, v2, v3))
			upto := e.complete()
			if p, err := e.a.Prune(e.Context(), refdb.PruneRequest{Upto: upto, EvenUnread: upto, Keep: 1, Limit: 10}); err != nil || p.Deleted != 2 {
				e.Fatalf("pruned %+v, %v", p, err)
			}
			late := e.known("late", refA, "", v1)
			late.At = late.At.Add(time.Hour)
			e.wantMissing("late", "", old, late)
			e.wantMissing("pruned late", "site-w", old, late)
			e.report(refdb.Report{Witness: "site-w", Missing: nil})
			e.wantMissing("late", "site-w", old, late)
			e.wantMissing("pruned late", "site-x", old, late)
			// A report is no look that came before it.
			if a := e.report(refdb.Report{Witness: "site-x", Missing: []refdb.Known{old}}); a.Lost != 1 || a.Admitted {
				e.Errorf("what site-x misses is taken for pruned: %+v", a)
			}
		})},
		{"a lost change is there once somebody decided about it", alone(func(e *env) {
			k := e.known("op1", refA, v2, v3)
			e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{k}})
			e.wantMissing("op1", "site-w", k)
			e.recover(recoverRequest())
			e.wantMissing("", "site-w", k)
		})},
		{"the report of another server counts for nothing", alone(func(e *env) {
			e.restart()
			before := e.admission()
			for _, server := range []string{"another server", ""} {
				_, err := e.a.Report(e.Context(), refdb.Report{Witness: "site-w", Server: server, Missing: []refdb.Known{e.known("op1", refA, "", v1)}})
				e.wantIs(err, refdb.ErrUnavailable)
			}
			if a := e.admission(); a.Admitted || a.Lost != 0 || len(a.Witnesses) != 0 || a.Server != before.Server {
				e.Errorf("%+v", a)
			}
		})},
		{"a server is admitted once every witness has reported about it", alone(func(e *env) {
			e.witnesses("site-v", "site-w", "site-x")
			e.restart()
			e.wantAdmission(e.admission(), false, "site-v", "site-w", "site-x")
			e.wantAdmission(e.report(refdb.Report{Witness: "site-w"}), false, "site-v", "site-x")
			e.wantAdmission(e.report(refdb.Report{Witness: "site-w"}), false, "site-v", "site-x")
			e.wantAdmission(e.report(refdb.Report{Owner: "a tool"}), false, "site-v", "site-x")
			e.wantAdmission(e.report(refdb.Report{Witness: "site-v"}), false, "site-x")
			e.wantWritable(false)
			e.wantAdmission(e.report(refdb.Report{Witness: "site-x"}), true)
			e.wantWritable(true)
			if s := e.history(); !s.Admitted {
				e.Errorf("%+v", s)
			}
		})},
		{"a process that is no witness is not registered, and admits a server that nobody else is waited for", alone(func(e *env) {
			e.restart()
			e.wantWritable(false)
			a := e.report(refdb.Report{Owner: "a tool"})
			if e.wantAdmission(a, true); len(a.Witnesses) != 0 {
				e.Errorf("%+v", a.Witnesses)
			}
			e.wantWritable(true)
		})},
		{"a witness that is away is not waited for, until it is back", alone(func(e *env) {
			e.witnesses("site-v", "site-w")
			e.report(refdb.Report{Witness: "site-w", Away: true})
			e.restart()
			e.wantAdmission(e.report(refdb.Report{Witness: "site-v"}), true)
			e.report(refdb.Report{Witness: "site-w"})
			e.restart()
			e.wantAdmission(e.report(refdb.Report{Witness: "site-v"}), false, "site-w")
		})},
		{"a witness that leaves is the last report that was waited for", alone(func(e *env) {
			e.witnesses("site-v", "site-w")
			e.restart()
			e.wantAdmission(e.report(refdb.Report{Witness: "site-v"}), false, "site-w")
			e.wantAdmission(e.report(refdb.Report{Witness: "site-w", Away: true}), true)
		})},
		{"who was known to be live is waited for, though it was away, left out or unknown when the database went back", alone(func(e *env) {
			e.witnesses("site-v", "site-w", "site-x")
			e.report(refdb.Report{Witness: "site-w", Away: true})
			later := e.now(e.a).Add(time.Hour)
			marks := []refdb.WitnessMark{{Name: "site-w", Since: later}, {Name: "site-x"}, {Name: "site-y", Since: later}}
			e.restart()
			e.report(refdb.Report{Witness: "site-x"})
			e.wantAdmission(e.report(refdb.Report{Witness: "site-v", Marks: marks}), false, "site-w", "site-y")
			e.wantAdmission(e.report(refdb.Report{Witness: "site-w"}), false, "site-y")
			e.wantAdmission(e.report(refdb.Report{Witness: "site-y", Marks: marks}), true)
			for _, w := range e.admission().Witnesses {
				if w.Away || w.Without || (w.Name == "site-w" || w.Name == "site-y") != w.Since.After(later) {
					e.Errorf("%+v", w)
				}
			}
		})},
		{"a witness that is live after all takes the admission back", alone(func(e *env) {
			e.witnesses("site-v", "site-w")
			e.report(refdb.Report{Witness: "site-w", Away: true})
			e.wantWritable(true)
			marks := []refdb.WitnessMark{{Name: "site-w", Since: e.now(e.a).Add(time.Hour)}}
			e.wantAdmission(e.report(refdb.Report{Witness: "site-v", Marks: marks}), false, "site-w")
			e.wantWritable(false)
			e.wantAdmission(e.report(refdb.Report{Witness: "site-w"}), true)
		})},
		{"what has come since it was missed is not lost", alone(func(e *env) {
			e.witnesses("site-v")
			k := e.known("op1", refA, "", v1)
			e.must(e.a.Update(e.Context(), refdb.UpdateRequest{Project: e.project, Updates: []refdb.Update{move(refA, "", v1)}, Origin: refdb.Origin{ID: "op1", Owner: e.a.owner}}))
			e.wantAdmission(e.report(refdb.Report{Witness: "site-v", Missing: []refdb.Known{k}}), true)
			e.wantLostChanges(true, "")
		})},
		{"a lost change halts an admitted server, whoever reports afterwards", alone(func(e *env) {
			e.witnesses("site-v", "site-w")
			k := e.known("op1", refA, "", v1)
			a := e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{k}})
			if e.wantAdmission(a, false); !a.Halted || a.Lost != 1 {
				e.Errorf("%+v", a)
			}
			e.wantIs(a.Err(), refdb.ErrLostChanges)
			e.wantWritable(false)
			if s := e.history(); s.Admitted {
				e.Errorf("%+v", s)
			}
			for _, name := range []string{"site-v", "site-w", ""} {
				if a := e.report(refdb.Report{Witness: name, Owner: "site-o/1"}); a.Admitted || !a.Halted || a.Lost != 1 {
					e.Errorf("after a report of %q: %+v", name, a)
				}
			}
			e.wantWritable(false)
		})},
		{"a lost change is recorded as it was reported", alone(func(e *env) {
			before, err := e.a.Now(e.Context())
			e.must(err)
			k := e.knownIntent("op1", refA, v1, v2, refdb.MoveMade)
			e.report(refdb.Report{Owner: "site-o/1", Missing: []refdb.Known{k}})
			p, err := e.a.LostChanges(e.Context(), refdb.LostQuery{Limit: 10})
			e.must(err)
			if len(p.Lost) != 1 || p.Next != (refdb.LostCursor{}) {
				e.Fatalf("%+v", p)
			}
			l := p.Lost[0]
			if l.Reported.Before(before) || time.Since(l.Reported) > time.Hour || l.Witness != "site-o/1" || l.Fate != refdb.Undecided {
				e.Errorf("%+v", l)
			}
			if l.Known != k {
				e.Errorf("got  %+v\nwant %+v", l.Known, k)
			}
		})},
		{"a witness says later what became of a move, and nobody else does", alone(func(e *env) {
			e.witnesses("site-v")
			e.restart()
			k := e.knownIntent("op1", refA, "", v1, refdb.MoveUnknown)
			e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{k}, Open: true})
			moves := func() (all string) {
				p, err := e.b.LostChanges(e.Context(), refdb.LostQuery{Limit: 10})
				e.must(err)
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
			k.Move = refdb.MoveUnmade
			e.report(refdb.Report{Witness: "site-v", Missing: []refdb.Known{k}})
			want("op1  site-w,")
			k.Move = refdb.MoveMade
			a := e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{k}})
			want("op1 made site-w,")
			if a.Lost != 1 {
				e.Errorf("%+v", a)
			}
		})},
		{"a witness that knows more later is waited for", alone(func(e *env) {
			e.witnesses("site-v", "site-w")
			e.restart()
			e.wantAdmission(e.report(refdb.Report{Witness: "site-v"}), false, "site-w")
			k := e.knownIntent("op1", refA, "", v1, refdb.MoveUnknown)
			if a := e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{k}, Open: true}); !slices.Equal(a.Waiting(), []string{"site-w"}) || a.Lost != 1 {
				e.Errorf("%+v", a)
			}
			k.Move = refdb.MoveUnmade
			if a := e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{k}}); len(a.Waiting()) != 0 || a.Lost != 1 {
				e.Errorf("%+v", a)
			}
		})},
		{"a witness says when it reported last", alone(func(e *env) {
			seen := func() time.Time {
				e.Helper()
				a := e.admission()
				if len(a.Witnesses) != 1 || a.Witnesses[0].Name != "site-w" || a.Witnesses[0].Server != a.Server {
					e.Fatalf("%+v", a.Witnesses)
				}
				return a.Witnesses[0].Seen
			}
			e.report(refdb.Report{Witness: "site-w"})
			first := seen()
			e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{e.known("op1", refA, v1, v2)}})
			if at := seen(); first.IsZero() || !at.After(first) {
				e.Errorf("it reported at %s, and then at %s", first, at)
			}
		})},
		{"what a witness knows that a recovery went without is late, and halts nothing", alone(func(e *env) {
			e.witnesses("site-v", "site-w")
			e.restart()
			e.report(refdb.Report{Witness: "site-v"})
			e.recover(recoverRequest("site-w"))
			e.wantWritable(true)
			a := e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{e.known("op1", refA, "", v1)}})
			if e.wantAdmission(a, true); a.Halted || a.Lost != 0 {
				e.Errorf("%+v", a)
			}
			e.wantLostChanges(false, "")
			e.wantLostChanges(true, "op1 late")
			e.wantMissing("", "site-w", e.known("op1", refA, "", v1))
			// From now on it is as any other.
			e.restart()
			e.wantAdmission(e.report(refdb.Report{Witness: "site-v"}), false, "site-w")
			if a := e.report(refdb.Report{Witness: "site-w", Missing: []refdb.Known{e.known("op2", refA, "", v1)}}); !a.Halted {
				e.Errorf("%+v", a)
			}
		})},
		{"lost changes come in order, by pages of any size", alone(func(e *env) {
			var known []refdb.Known
			for _, ref := range []string{refB, refA} {
				for _, op := range []string{"op2", "op1", "op10"} {
					known = append(known, e.known(op, ref, "", v1))
				}
			}
			e.report(refdb.Report{Witness: "site-w", Missing: known})
			for limit := 1; limit <= 7; limit++ {
				var got []string
				for q := (refdb.LostQuery{Limit: limit}); ; {
					p, err := e.a.LostChanges(e.Context(), q)
					e.must(err)
					for _, l := range p.Lost {
						got = append(got, strings.TrimPrefix(l.Ref, "refs/heads/")+" "+l.Op)
					}
					if q.After = p.Next; p.Next == (refdb.LostCursor{}) {
						break
					}
				}
				if said := strings.Join(got, ", "); said != "a op1, a op10, a op2, b op1, b op10, b op2" {
					e.Errorf("by pages of %d: %s", limit, said)
				}
			}
		})},
	}
}
