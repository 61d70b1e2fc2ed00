package db

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
	"github.com/globalrefdb/globalrefdb/refdb/projects"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

func intentRows() []row {
	return []row{
		{"a preparation is finished: its intents are done, dropped, or finished later", func(e *env) {
			db := e.Open(refdb.Options{})
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1), suite.Move(refB, "", v1)}))
			p := prepareWith(e, db, suite.Move(refC, "", v2), suite.Move(refA, v1, v2), suite.Move(refB, v1, driver.Deleted))
			want := []driver.Update{suite.Move(refA, v1, v2), suite.Move(refB, v1, driver.Deleted), suite.Move(refC, "", v2)}
			if p.Project != e.Project || p.Owner != db.Owner() || p.Token <= 0 || !slices.Equal(p.Updates, want) {
				e.Errorf("got %+v", p)
			}
			e.WantIntended(preparationOf(p))
			e.Must(db.Intents().Finish(e.Context(), p, []string{refB}, nil))
			e.Must(db.Intents().Finish(e.Context(), p, nil, []string{refA}))
			e.WantIntended(preparationOf(p), refC)
			e.Must(db.Intents().Finish(e.Context(), p, []string{refC}, nil))
			e.WantRefs(map[string]driver.Value{refA: v1, refB: driver.Deleted, refC: v2})
			e.WantNone()
		}},
		{"a refused preparation gives the reason, and leaves nothing", func(e *env) {
			db, other := e.Open(refdb.Options{}), e.Open(refdb.Options{})
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}))
			_, err := db.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(refA, v2, v3), suite.Move(refB, "", v1)}, agent)
			e.WantMismatches(err, driver.Mismatch{Ref: refA, Want: v2, Have: v1})
			e.WantClass(err, driver.ErrMismatch, driver.Permanent)
			e.WantNone()
			p := prepareWith(e, other, suite.Move(refA, v1, v2))
			_, err = db.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(refA, v2, v3), suite.Move(refB, "", v1)}, agent)
			e.WantHolders(err, refA)
			e.WantClass(err, driver.ErrLocked, driver.Retryable)
			e.WantFree(refB)
			e.Must(other.Intents().Finish(e.Context(), p, nil, []string{refA}))
			e.WantNone()
		}},
		{"an intent refuses all other moves of the ref and acquisitions of its lock", func(e *env) {
			db := e.Open(refdb.Options{})
			other, faulty := e.OpenFaulty(refdb.Options{})
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1)}))
			p := prepareWith(e, db, suite.Move(refA, v1, v2))
			e.Age(preparationOf(p), 50*years)
			for _, x := range []*refdb.DB{db, other} {
				for name, err := range map[string]error{
					"TryLock":       suite.ErrorOf(x.TryLock(e.Context(), e.Project, refA)),
					"Update":        x.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, v1, v3)}),
					"Advisory":      x.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, v1, v3)}, refdb.Advisory()),
					"Put":           suite.ErrorOf(x.Put(e.Context(), e.Project, refA, v3)),
					"Prepare":       suite.ErrorOf(x.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(refA, v1, v3)}, agent)),
					"RemoveProject": suite.ErrorOf(x.Projects().Remove(e.Context(), e.Project)),
					"Force":         suite.ErrorOf(x.Projects().Remove(e.Context(), e.Project, projects.Force())),
					"Purge":         suite.ErrorOf(x.Operator().Purge(e.Context(), listLocks(e, x, driver.LockFilter{Project: e.Project}))),
					"PurgeFresh":    suite.ErrorOf(x.Operator().Purge(e.Context(), listLocks(e, x, driver.LockFilter{Project: e.Project}), operator.PurgeFresh())),
				} {
					if err == nil {
						e.Errorf("%s was not refused", name)
						continue
					}
					e.WantClass(err, driver.ErrLocked, driver.Retryable)
				}
			}
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			waiting := waitFirst(e, ctx, other, faulty, refA)
			cancel()
			e.WantIs(waiting.gaveUp(), driver.ErrLocked)
			e.WantIntended(preparationOf(p))
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.Must(db.Intents().Finish(e.Context(), p, []string{refA}, nil))
			e.WantRefs(map[string]driver.Value{refA: v2})
		}},
		{"one lock of an intent among those to purge refuses all", func(e *env) {
			db := e.Open(refdb.Options{})
			old := e.Acquire(e.A, refA)
			e.Age(old, stale)
			prepareWith(e, db, suite.Move(refB, "", v1))
			removed, err := db.Operator().Purge(e.Context(), listLocks(e, db, driver.LockFilter{Project: e.Project}), operator.PurgeFresh())
			e.WantHolders(err, refB)
			if len(removed) != 0 {
				e.Errorf("removed %+v", removed)
			}
			if !strings.Contains(err.Error(), "locks resolve") {
				e.Errorf("it doesn't say what to do: %v", err)
			}
			e.WantLock(old)
		}},
		{"a waiter gets the lock when the intent ends, and reads the new value", func(e *env) {
			db, other := e.Open(refdb.Options{}), e.Open(refdb.Options{})
			p := prepareWith(e, db, suite.Move(refA, "", v1))
			got := make(chan *refdb.Lock, 1)
			go func() {
				l, err := other.Lock(e.Context(), e.Project, refA)
				if err != nil {
					e.Errorf("Lock: %v", err)
				}
				got <- l
			}()
			e.Must(db.Intents().Finish(e.Context(), p, []string{refA}, nil))
			if l := suite.Receive(e, got, "the lock"); l != nil {
				e.WantLocked(l, refA, v1)
			}
		}},
		{"P7 a finished intent can't be finished again", func(e *env) {
			db := e.Open(refdb.Options{})
			p := prepareWith(e, db, suite.Move(refA, "", v1), suite.Move(refB, "", v1))
			e.Must(db.Intents().Finish(e.Context(), p, []string{refA, refB}, nil))
			e.Must(db.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, v1, driver.Deleted), suite.Move(refB, v1, driver.Deleted)}))
			for _, err := range []error{
				db.Intents().Finish(e.Context(), p, []string{refA, refB}, nil),
				db.Intents().Finish(e.Context(), p, nil, []string{refA, refB}),
				db.Intents().Finish(e.Context(), p, []string{refA}, []string{refB}),
			} {
				e.WantLost(err, refA, refB)
				e.WantClass(err, driver.ErrLockLost, driver.StaleOwner)
			}
			e.WantRefs(map[string]driver.Value{refA: driver.Deleted, refB: driver.Deleted})
		}},
		{"P8 intents are not beaten", func(e *env) {
			db := e.Open(suite.FastHeartbeat())
			p := prepareWith(e, db, suite.Move(refA, "", v1))
			l := e.Hold(db, refB)
			was := e.Row(refA)
			wantBeats(e, refB)
			wantBeats(e, refB)
			if now := e.Row(refA); !now.Heartbeat.Equal(was.Heartbeat) {
				e.Errorf("the heartbeat went from %v to %v", was.Heartbeat, now.Heartbeat)
			}
			e.WantHeld(l)
			e.WantIntended(preparationOf(p))
		}},
		{"closing a DB leaves its intents, which a successor can finish", func(e *env) {
			db := e.Open(refdb.Options{})
			p := prepareWith(e, db, suite.Move(refA, "", v1))
			e.Must(db.Close())
			if err := db.Intents().Finish(e.Context(), p, []string{refA}, nil); !errors.Is(err, driver.ErrClosed) {
				e.Errorf("Finish: %v", err)
			}
			if _, err := db.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(refB, "", v1)}, agent); !errors.Is(err, driver.ErrClosed) {
				e.Errorf("Prepare: %v", err)
			}
			next := e.Open(refdb.Options{})
			found := listIntents(e, next, driver.IntentFilter{Project: e.Project, Owner: "site-x"})
			e.Must(next.Intents().Finish(e.Context(), preparationFrom(found), []string{refA}, nil))
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantNone()
		}},
		{"an intent and the history of its change name the requester, whichever process finishes it", func(e *env) {
			db := e.Open(refdb.Options{By: "the process"})
			mine := prepareWith(e, db, suite.Move(refC, "", v1))
			p, err := db.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1), suite.Move(refB, "", v2)}, agent, intents.AskedBy(asker))
			e.Must(err)
			if mine.By != "the process" || p.By != asker || p.Op == "" || p.Op == mine.Op {
				e.Errorf("prepared %+v and %+v", mine, p)
			}
			e.WantIntended(preparationOf(mine))
			e.WantIntended(preparationOf(p))
			e.Must(db.Intents().Finish(e.Context(), mine, []string{refC}, nil))
			e.Must(db.Close())

			// Two parts, by another process, which asks for nobody.
			next := e.Open(refdb.Options{})
			found := preparationFrom(listIntents(e, next, driver.IntentFilter{Project: e.Project, Owner: db.Owner()}))
			for _, ref := range []string{refA, refB} {
				e.Must(next.Intents().Finish(e.Context(), found, []string{ref}, nil))
			}
			got := e.WantLog("c ->1", "a ->1", "b ->2")
			if len(got) != 3 {
				return
			}
			for i, of := range []intents.Preparation{mine, p, p} {
				if c := got[i]; c.By != of.By || c.Owner != db.Owner() || !strings.HasPrefix(c.Op, of.Op+"-") {
					e.Errorf("change %d is %+v, want that of %+v", i, c, of)
				}
			}
			if got[1].Op == got[2].Op {
				e.Errorf("both parts are %s: the one would prove the other", got[1].Op)
			}
		}},
		{"all intents that a filter selects are listed, page after page, as far as the caller reads", suite.Long(suite.Alone(func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			names := suite.ManyNames(manyRows(e))
			for chunk := range slices.Chunk(names, 1000) {
				prepareWith(e, db, suite.Creations(chunk)...)
			}
			var got []string
			for _, i := range listIntents(e, db, driver.IntentFilter{Project: e.Project}) {
				if i.Project != e.Project || i.Owner != db.Owner() || i.Agent != agent || i.New != v1 {
					e.Fatalf("got %+v", i)
				}
				got = append(got, i.Ref)
			}
			if !slices.Equal(got, names) {
				e.Errorf("%d intents were listed of %d", len(got), len(names))
			}
			pages := faulty.Count("Intents")
			if pages < 2 {
				e.Errorf("%d intents came in %d pages", len(names), pages)
			}
			for range db.Intents().All(e.Context(), driver.IntentFilter{Project: e.Project}) {
				break
			}
			if n := faulty.Count("Intents") - pages; n != 1 {
				e.Errorf("the first intent took %d pages", n)
			}
			broken := errors.New("a test's error")
			faulty.Inject(func(suite.Call) error { return broken })
			if err := suite.FirstError(db.Intents().All(e.Context(), driver.IntentFilter{})); !errors.Is(err, broken) {
				e.Errorf("got %v", err)
			}
		}))},
		{"an operator resolves pending intents, and the site forgets the decisions that it has applied", func(e *env) {
			db, operator := e.Open(refdb.Options{}), e.Open(refdb.Options{})
			p := prepareWith(e, db, suite.Move(refA, "", v1), suite.Move(refB, "", v1), suite.Move(refC, "", v1))
			listed := listIntents(e, operator, driver.IntentFilter{Project: e.Project})
			e.Must(db.Intents().Finish(e.Context(), p, []string{refB}, nil))
			resolved, err := operator.Intents().Resolve(e.Context(), listed, driver.TakeNew, "an operator", "the site burnt down")
			e.Must(err)
			if len(listed) != 3 || len(resolved) != 2 || resolved[0].Ref != refA || resolved[1].Ref != refC {
				e.Errorf("listed %+v, resolved %+v", listed, resolved)
			}
			e.WantRefs(map[string]driver.Value{refA: v1, refB: v1, refC: v1})
			e.WantLost(db.Intents().Finish(e.Context(), p, []string{refA, refC}, nil), refA, refC)
			if resolved, err := operator.Intents().Resolve(e.Context(), listed, driver.KeepOld, "an operator", "again"); len(resolved) != 0 || err != nil {
				e.Errorf("again: %+v, %v", resolved, err)
			}
			decided := listIntents(e, db, driver.IntentFilter{Project: e.Project, Owner: db.Owner(), Decided: true})
			if len(decided) != 2 || decided[0].Decision != driver.TakeNew || decided[0].DecidedBy != "an operator" || decided[0].Reason != "the site burnt down" {
				e.Errorf("decided are %+v", decided)
			}
			e.Must(db.Intents().Forget(e.Context(), decided))
			e.Must(db.Intents().Forget(e.Context(), decided))
			e.Must(db.Intents().Forget(e.Context(), nil))
			e.WantNone()
		}},
		{"thousands of intents are resolved and forgotten in chunks", suite.Long(suite.Alone(func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			names := suite.ManyNames(manyRows(e))
			for chunk := range slices.Chunk(names, 1000) {
				prepareWith(e, db, suite.Creations(chunk)...)
			}
			resolved, err := db.Intents().Resolve(e.Context(), listIntents(e, db, driver.IntentFilter{Project: e.Project}), driver.KeepOld, "an operator", "the site is gone")
			e.Must(err)
			if len(resolved) != len(names) || faulty.Count("Resolve") < 2 {
				e.Errorf("%d of %d were resolved, in %d requests", len(resolved), len(names), faulty.Count("Resolve"))
			}
			e.Must(db.Intents().Forget(e.Context(), resolved))
			// On a busy machine a preparation may have lost its reply and been revoked.
			left := listIntents(e, db, driver.IntentFilter{Project: e.Project, Decided: true})
			if i := slices.IndexFunc(left, func(i driver.Intent) bool { return i.Decision != driver.Revoked }); i >= 0 {
				e.Errorf("not forgotten: %+v", left[i])
			}
			e.Must(db.Intents().Forget(e.Context(), left))
			e.WantNone()
		}))},
		{"states are in the order of their refs, including unknown refs, and thousands come in pages", suite.Long(suite.Alone(func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			names := storeMany(e)
			p := prepareWith(e, db, suite.Move(refC, "", v2))
			asked := slices.Concat([]string{refC, refA}, names)
			slices.Reverse(asked)
			states, err := db.Intents().States(e.Context(), e.Project, asked)
			e.Must(err)
			if len(states) != len(asked) || faulty.Count("States") < 2 {
				e.Fatalf("got %d states of %d, in %d requests", len(states), len(asked), faulty.Count("States"))
			}
			for i, s := range states {
				want := driver.State{Ref: asked[i], Value: v1}
				if asked[i] == refA || asked[i] == refC {
					want.Value = driver.Unknown
				}
				if s.Ref != want.Ref || s.Value != want.Value || (s.Lock != nil) != (s.Ref == refC) {
					e.Fatalf("got %+v, want %+v", s, want)
				}
				if s.Lock != nil && (s.Lock.Token != p.Token || s.Lock.Owner != db.Owner() || !s.Lock.Intended()) {
					e.Errorf("the lock is %+v", s.Lock)
				}
			}
			if states, err := db.Intents().States(e.Context(), e.Project, nil); len(states) != 0 || err != nil {
				e.Errorf("of nothing: %v, %v", states, err)
			}
		}))},
	}
}

// prepareWith prepares updates of the row's project through db.
func prepareWith(e *env, db *refdb.DB, updates ...driver.Update) intents.Preparation {
	e.Helper()
	p, err := db.Intents().Prepare(e.Context(), e.Project, updates, agent)
	e.Must(err)
	return p
}

// preparationOf returns p as a driver knows it.
func preparationOf(p intents.Preparation) preparation {
	return preparation{
		PrepareRequest: driver.PrepareRequest{Project: p.Project, Owner: p.Owner, Updates: p.Updates, Agent: agent, By: p.By, Nonce: p.Op},
		Prepared:       driver.Prepared{Token: p.Token},
	}
}

// preparationFrom returns the preparation that recorded the listed intents.
func preparationFrom(intents []driver.Intent) (p intents.Preparation) {
	for _, i := range intents {
		p.Project, p.Owner, p.Token, p.By, p.Op = i.Project, i.Owner, i.Token, i.By, i.Op
		p.Updates = append(p.Updates, suite.Move(i.Ref, i.Old, i.New))
	}
	return p
}

// listIntents returns the intents that db lists.
func listIntents(e *env, db *refdb.DB, f driver.IntentFilter) []driver.Intent {
	e.Helper()
	var all []driver.Intent
	for i, err := range db.Intents().All(e.Context(), f) {
		e.Must(err)
		all = append(all, i)
	}
	return all
}

// P7: the caller can't tell LoseReply from LoseRequest.
func intentReplyRows() []row {
	return []row{
		{"P7 a preparation whose reply was lost is made once", func(e *env) {
			for i, fault := range []func(string) func(suite.Call) error{suite.LoseReply, suite.LoseRequest} {
				db, faulty := e.OpenFaulty(refdb.Options{})
				ref := []string{refA, refB}[i]
				faulty.Inject(fault("Prepare"))
				p := prepareWith(e, db, suite.Move(ref, "", v1), suite.Move(refC, "", v1))
				if n := faulty.Count("Prepare"); n != 2 {
					e.Errorf("it took %d requests", n)
				}
				e.WantOnly(preparationOf(p))
				e.Must(db.Intents().Finish(e.Context(), p, []string{ref}, []string{refC}))
				e.Must(db.Intents().Forget(e.Context(), e.Decided()))
				e.WantNone()
			}
			e.WantRefs(map[string]driver.Value{refA: v1, refB: v1})
		}},
		{"P7 a preparation that was retried, finished and forgotten is not made a second time", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			var late driver.PrepareRequest
			faulty.Inject(suite.OnFirst("Prepare", func(c suite.Call) error {
				late = c.Arg.(driver.PrepareRequest)
				return suite.ErrLost
			}))
			p := prepareWith(e, db, suite.Move(refA, "", v1))
			e.Must(db.Intents().Finish(e.Context(), p, []string{refA}, nil))
			e.Must(e.Update(e.B, suite.Move(refA, v1, driver.Deleted))) // the ref was moved and moved back
			_, err := e.SendPrepare(e.A, late)
			e.WantIs(err, driver.ErrReleased)
			e.WantFree(refA)
		}},
		{"P7 a preparation of unknown outcome is left to its caller to revoke", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			faulty.Inject(func(c suite.Call) error {
				if c.Method == "Prepare" {
					return errors.Join(suite.ErrLost, c.Do())
				}
				return c.Do()
			})
			p, err := db.Intents().Prepare(e.Context(), e.Project, []driver.Update{suite.Move(refA, "", v1), suite.Move(refB, "", v1)}, agent)
			e.WantClass(err, driver.ErrOutcomeUnknown, driver.OutcomeUnknown)
			e.Must(db.Intents().Revoke(e.Context(), p))
			e.WantFree(refA, refB)
			e.Must(db.Intents().Forget(e.Context(), e.Decided()))
			e.WantNone()
		}},
		{"P7 a preparation that arrives after its caller has revoked it does nothing", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			var late driver.PrepareRequest
			faulty.Inject(suite.OnFirst("Prepare", func(c suite.Call) error {
				late = c.Arg.(driver.PrepareRequest)
				cancel()
				return errors.Join(suite.ErrLost, c.Ctx.Err())
			}))
			p, err := db.Intents().Prepare(ctx, e.Project, []driver.Update{suite.Move(refA, "", v1)}, agent)
			e.WantIs(err, context.Canceled)
			e.WantIs(err, driver.ErrOutcomeUnknown)
			e.Must(db.Intents().Revoke(e.Context(), p))
			// The ref was moved and moved back.
			e.Must(e.Update(e.B, suite.Move(refA, "", v1)))
			e.Must(e.Update(e.B, suite.Move(refA, v1, driver.Deleted)))
			_, err = e.SendPrepare(e.A, late)
			e.WantIs(err, driver.ErrReleased)
			e.WantFree(refA)
		}},
		{"P7 a finish whose reply was lost happens once", func(e *env) {
			for i, fault := range []func(string) func(suite.Call) error{suite.LoseReply, suite.LoseRequest} {
				db, faulty := e.OpenFaulty(refdb.Options{})
				ref := []string{refA, refB}[i]
				p := prepareWith(e, db, suite.Move(ref, "", v1), suite.Move(refC, "", v1))
				faulty.Inject(fault("Finish"))
				e.Must(db.Intents().Finish(e.Context(), p, []string{ref}, []string{refC}))
				if n := faulty.Count("Finish"); n != 1+i {
					e.Errorf("it was sent %d times", n)
				}
				e.WantNone()
				e.WantLost(db.Intents().Finish(e.Context(), p, []string{ref}, []string{refC}), ref, refC)
			}
			e.WantRefs(map[string]driver.Value{refA: v1, refB: v1})
		}},
		{"P7 a finish that arrives late, after its retry, happens once", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			p := prepareWith(e, db, suite.Move(refA, "", v1))
			faulty.Inject(e.DelayRequest("Finish"))
			e.Must(db.Intents().Finish(e.Context(), p, []string{refA}, nil))
			e.WantRefs(map[string]driver.Value{refA: v1})
			e.WantNone()
		}},
		{"P7 a finish that was overwritten before it could be looked for has an unknown outcome, and is not repeated", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			p := prepareWith(e, db, suite.Move(refA, "", v1))
			faulty.Inject(suite.OnFirst("Finish", func(c suite.Call) error {
				e.Must(c.Do())
				e.Must(e.Update(e.B, suite.Move(refA, v1, driver.Deleted)))
				return suite.ErrLost
			}))
			e.WantClass(db.Intents().Finish(e.Context(), p, []string{refA}, nil), driver.ErrOutcomeUnknown, driver.OutcomeUnknown)
			e.WantLost(db.Intents().Finish(e.Context(), p, []string{refA}, nil), refA)
			if got := e.GetOne(refA).Value; !got.IsAbsent() {
				e.Errorf("it holds %q", got)
			}
		}},
		{"P7 a finish that drops all, and whose reply was lost, can be repeated", func(e *env) {
			for _, carriedOut := range []bool{true, false} {
				db, faulty := e.OpenFaulty(refdb.Options{})
				p := prepareWith(e, db, suite.Move(refA, "", v1))
				fault := suite.LoseRequest
				if carriedOut {
					fault = suite.LoseReply
				}
				faulty.Inject(fault("Finish"))
				e.WantClass(db.Intents().Finish(e.Context(), p, nil, []string{refA}), driver.ErrOutcomeUnknown, driver.OutcomeUnknown)
				if err := db.Intents().Finish(e.Context(), p, nil, []string{refA}); e.Loss(err) != carriedOut {
					e.Errorf("again: %v", err)
				}
				e.WantNone()
			}
		}},
		{"P7 a finish that the database certainly did not carry out is retried", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			p := prepareWith(e, db, suite.Move(refA, "", v1), suite.Move(refB, "", v1))
			faulty.Inject(suite.OnFirst("Finish", func(suite.Call) error { return suite.ErrDown }))
			e.Must(db.Intents().Finish(e.Context(), p, []string{refA}, nil))
			faulty.Inject(func(suite.Call) error { return suite.ErrDown })
			e.WantClass(db.Intents().Finish(e.Context(), p, []string{refB}, nil), driver.ErrUnavailable, driver.Retryable)
			faulty.Inject(nil)
			e.Must(db.Intents().Finish(e.Context(), p, []string{refB}, nil))
			e.WantNone()
		}},
	}
}
