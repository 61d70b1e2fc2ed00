package refdbtest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func dbIntentRows() []row {
	return []row{
		{"what is prepared is finished: done, dropped, or later", func(e *env) {
			db := e.open(refdb.Options{})
			e.must(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1), move(refB, "", v1)}))
			p := e.prepareWith(db, move(refC, "", v2), move(refA, v1, v2), move(refB, v1, refdb.Deleted))
			want := []refdb.Update{move(refA, v1, v2), move(refB, v1, refdb.Deleted), move(refC, "", v2)}
			if p.Project != e.project || p.Owner != db.Owner() || p.Token <= 0 || !slices.Equal(p.Updates, want) {
				e.Errorf("got %+v", p)
			}
			e.wantIntended(preparationOf(p))
			e.must(db.Finish(e.Context(), p, []string{refB}, nil))
			e.must(db.Finish(e.Context(), p, nil, []string{refA}))
			e.wantIntended(preparationOf(p), refC)
			e.must(db.Finish(e.Context(), p, []string{refC}, nil))
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: refdb.Deleted, refC: v2})
			e.wantNone()
		}},
		{"a preparation that is refused says why, and leaves nothing", func(e *env) {
			db, other := e.open(refdb.Options{}), e.open(refdb.Options{})
			e.must(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)}))
			_, err := db.Prepare(e.Context(), e.project, []refdb.Update{move(refA, v2, v3), move(refB, "", v1)}, agent)
			e.wantMismatches(err, refdb.Mismatch{Ref: refA, Want: v2, Have: v1})
			e.wantClass(err, refdb.ErrMismatch, refdb.Permanent)
			e.wantNone()
			p := e.prepareWith(other, move(refA, v1, v2))
			_, err = db.Prepare(e.Context(), e.project, []refdb.Update{move(refA, v2, v3), move(refB, "", v1)}, agent)
			e.wantHolders(err, refA)
			e.wantClass(err, refdb.ErrLocked, refdb.Retryable)
			e.wantFree(refB)
			e.must(other.Finish(e.Context(), p, nil, []string{refA}))
			e.wantNone()
		}},
		{"an intent keeps out whatever else would move the ref or take its lock", func(e *env) {
			db := e.open(refdb.Options{})
			other, driver := e.openFaulty(refdb.Options{})
			e.must(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)}))
			p := e.prepareWith(db, move(refA, v1, v2))
			e.age(preparationOf(p), 50*years)
			for _, x := range []*refdb.DB{db, other} {
				for name, err := range map[string]error{
					"TryLock":       errorOf(x.TryLock(e.Context(), e.project, refA)),
					"Update":        x.Update(e.Context(), e.project, []refdb.Update{move(refA, v1, v3)}),
					"Advisory":      x.Update(e.Context(), e.project, []refdb.Update{move(refA, v1, v3)}, refdb.Advisory()),
					"Put":           errorOf(x.Put(e.Context(), e.project, refA, v3)),
					"Prepare":       errorOf(x.Prepare(e.Context(), e.project, []refdb.Update{move(refA, v1, v3)}, agent)),
					"RemoveProject": errorOf(x.RemoveProject(e.Context(), e.project)),
					"Force":         errorOf(x.RemoveProject(e.Context(), e.project, refdb.Force())),
					"Purge":         errorOf(x.Purge(e.Context(), e.listLocks(x, refdb.LockFilter{Project: e.project}))),
					"PurgeFresh":    errorOf(x.Purge(e.Context(), e.listLocks(x, refdb.LockFilter{Project: e.project}), refdb.PurgeFresh())),
				} {
					if err == nil {
						e.Errorf("%s was not refused", name)
						continue
					}
					e.wantClass(err, refdb.ErrLocked, refdb.Retryable)
				}
			}
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			waiting := e.waitFirst(ctx, other, driver, refA)
			cancel()
			e.wantIs(waiting.gaveUp(), refdb.ErrLocked)
			e.wantIntended(preparationOf(p))
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.must(db.Finish(e.Context(), p, []string{refA}, nil))
			e.wantRefs(map[string]refdb.Value{refA: v2})
		}},
		{"one lock among those to purge that stands for an intent refuses all", func(e *env) {
			db := e.open(refdb.Options{})
			old := e.acquire(e.a, refA)
			e.age(old, stale)
			e.prepareWith(db, move(refB, "", v1))
			removed, err := db.Purge(e.Context(), e.listLocks(db, refdb.LockFilter{Project: e.project}), refdb.PurgeFresh())
			e.wantHolders(err, refB)
			if len(removed) != 0 {
				e.Errorf("removed %+v", removed)
			}
			if !strings.Contains(err.Error(), "locks resolve") {
				e.Errorf("it doesn't say what to do: %v", err)
			}
			e.wantLock(old)
		}},
		{"who waits for a lock gets it when the intent ends, and finds what was done", func(e *env) {
			db, other := e.open(refdb.Options{}), e.open(refdb.Options{})
			p := e.prepareWith(db, move(refA, "", v1))
			got := make(chan *refdb.Lock, 1)
			go func() {
				l, err := other.Lock(e.Context(), e.project, refA)
				if err != nil {
					e.Errorf("Lock: %v", err)
				}
				got <- l
			}()
			e.must(db.Finish(e.Context(), p, []string{refA}, nil))
			if l := receive(e, got, "the lock"); l != nil {
				e.wantLocked(l, refA, v1)
			}
		}},
		{"P7 what was finished can't be finished again", func(e *env) {
			db := e.open(refdb.Options{})
			p := e.prepareWith(db, move(refA, "", v1), move(refB, "", v1))
			e.must(db.Finish(e.Context(), p, []string{refA, refB}, nil))
			e.must(db.Update(e.Context(), e.project, []refdb.Update{move(refA, v1, refdb.Deleted), move(refB, v1, refdb.Deleted)}))
			for _, err := range []error{
				db.Finish(e.Context(), p, []string{refA, refB}, nil),
				db.Finish(e.Context(), p, nil, []string{refA, refB}),
				db.Finish(e.Context(), p, []string{refA}, []string{refB}),
			} {
				e.wantLost(err, refA, refB)
				e.wantClass(err, refdb.ErrLockLost, refdb.StaleOwner)
			}
			e.wantRefs(map[string]refdb.Value{refA: refdb.Deleted, refB: refdb.Deleted})
		}},
		{"P8 intents are not beaten", func(e *env) {
			db := e.open(fastHeartbeat())
			p := e.prepareWith(db, move(refA, "", v1))
			l := e.hold(db, refB)
			was := e.row(refA)
			e.wantBeats(refB)
			e.wantBeats(refB)
			if now := e.row(refA); !now.Heartbeat.Equal(was.Heartbeat) {
				e.Errorf("the heartbeat went from %v to %v", was.Heartbeat, now.Heartbeat)
			}
			e.wantHeld(l)
			e.wantIntended(preparationOf(p))
		}},
		{"closing a DB leaves its intents, for whoever comes after it to finish", func(e *env) {
			db := e.open(refdb.Options{})
			p := e.prepareWith(db, move(refA, "", v1))
			e.must(db.Close())
			if err := db.Finish(e.Context(), p, []string{refA}, nil); !errors.Is(err, refdb.ErrClosed) {
				e.Errorf("Finish: %v", err)
			}
			if _, err := db.Prepare(e.Context(), e.project, []refdb.Update{move(refB, "", v1)}, agent); !errors.Is(err, refdb.ErrClosed) {
				e.Errorf("Prepare: %v", err)
			}
			next := e.open(refdb.Options{})
			found := e.listIntents(next, refdb.IntentFilter{Project: e.project, Owner: "site-x"})
			e.must(next.Finish(e.Context(), preparationFrom(found), []string{refA}, nil))
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantNone()
		}},
		{"an intent says who asked, and so does the history of what is done, whoever finishes it", func(e *env) {
			db := e.open(refdb.Options{By: "the process"})
			mine := e.prepareWith(db, move(refC, "", v1))
			p, err := db.Prepare(e.Context(), e.project, []refdb.Update{move(refA, "", v1), move(refB, "", v2)}, agent, refdb.AskedBy(asker))
			e.must(err)
			if mine.By != "the process" || p.By != asker || p.Op == "" || p.Op == mine.Op {
				e.Errorf("prepared %+v and %+v", mine, p)
			}
			e.wantIntended(preparationOf(mine))
			e.wantIntended(preparationOf(p))
			e.must(db.Finish(e.Context(), mine, []string{refC}, nil))
			e.must(db.Close())

			// Two parts, by another process, which asks for nobody.
			next := e.open(refdb.Options{})
			found := preparationFrom(e.listIntents(next, refdb.IntentFilter{Project: e.project, Owner: db.Owner()}))
			for _, ref := range []string{refA, refB} {
				e.must(next.Finish(e.Context(), found, []string{ref}, nil))
			}
			got := e.wantLog("c ->1", "a ->1", "b ->2")
			if len(got) != 3 {
				return
			}
			for i, of := range []refdb.Preparation{mine, p, p} {
				if c := got[i]; c.By != of.By || c.Owner != db.Owner() || !strings.HasPrefix(c.Op, of.Op+"-") {
					e.Errorf("change %d is %+v, want that of %+v", i, c, of)
				}
			}
			if got[1].Op == got[2].Op {
				e.Errorf("both parts are %s: the one would prove the other", got[1].Op)
			}
		}},
		{"all intents that a filter selects are listed, page after page, as far as the caller reads", alone(func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			names := manyNames(e.manyRows())
			for chunk := range slices.Chunk(names, 1000) {
				e.prepareWith(db, creations(chunk)...)
			}
			var got []string
			for _, i := range e.listIntents(db, refdb.IntentFilter{Project: e.project}) {
				if i.Project != e.project || i.Owner != db.Owner() || i.Agent != agent || i.New != v1 {
					e.Fatalf("got %+v", i)
				}
				got = append(got, i.Ref)
			}
			if !slices.Equal(got, names) {
				e.Errorf("%d intents were listed of %d", len(got), len(names))
			}
			pages := driver.count("Intents")
			if pages < 2 {
				e.Errorf("%d intents came in %d pages", len(names), pages)
			}
			for range db.Intents(e.Context(), refdb.IntentFilter{Project: e.project}) {
				break
			}
			if n := driver.count("Intents") - pages; n != 1 {
				e.Errorf("the first intent took %d pages", n)
			}
			broken := errors.New("a test's error")
			driver.inject(func(call) error { return broken })
			if err := firstError(db.Intents(e.Context(), refdb.IntentFilter{})); !errors.Is(err, broken) {
				e.Errorf("got %v", err)
			}
		})},
		{"an operator resolves what is pending, and the site forgets what it has heeded", func(e *env) {
			db, operator := e.open(refdb.Options{}), e.open(refdb.Options{})
			p := e.prepareWith(db, move(refA, "", v1), move(refB, "", v1), move(refC, "", v1))
			listed := e.listIntents(operator, refdb.IntentFilter{Project: e.project})
			e.must(db.Finish(e.Context(), p, []string{refB}, nil))
			resolved, err := operator.Resolve(e.Context(), listed, refdb.TakeNew, "an operator", "the site burnt down")
			e.must(err)
			if len(listed) != 3 || len(resolved) != 2 || resolved[0].Ref != refA || resolved[1].Ref != refC {
				e.Errorf("listed %+v, resolved %+v", listed, resolved)
			}
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v1, refC: v1})
			e.wantLost(db.Finish(e.Context(), p, []string{refA, refC}, nil), refA, refC)
			if resolved, err := operator.Resolve(e.Context(), listed, refdb.KeepOld, "an operator", "again"); len(resolved) != 0 || err != nil {
				e.Errorf("again: %+v, %v", resolved, err)
			}
			decided := e.listIntents(db, refdb.IntentFilter{Project: e.project, Owner: db.Owner(), Decided: true})
			if len(decided) != 2 || decided[0].Decision != refdb.TakeNew || decided[0].DecidedBy != "an operator" || decided[0].Reason != "the site burnt down" {
				e.Errorf("decided are %+v", decided)
			}
			e.must(db.Forget(e.Context(), decided))
			e.must(db.Forget(e.Context(), decided))
			e.must(db.Forget(e.Context(), nil))
			e.wantNone()
		}},
		{"thousands are resolved and forgotten in chunks", alone(func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			names := manyNames(e.manyRows())
			for chunk := range slices.Chunk(names, 1000) {
				e.prepareWith(db, creations(chunk)...)
			}
			resolved, err := db.Resolve(e.Context(), e.listIntents(db, refdb.IntentFilter{Project: e.project}), refdb.KeepOld, "an operator", "the site is gone")
			e.must(err)
			if len(resolved) != len(names) || driver.count("Resolve") < 2 {
				e.Errorf("%d of %d were resolved, in %d requests", len(resolved), len(names), driver.count("Resolve"))
			}
			e.must(db.Forget(e.Context(), resolved))
			// On a busy machine a preparation may have lost its reply and been revoked.
			left := e.listIntents(db, refdb.IntentFilter{Project: e.project, Decided: true})
			if i := slices.IndexFunc(left, func(i refdb.Intent) bool { return i.Decision != refdb.Revoked }); i >= 0 {
				e.Errorf("not forgotten: %+v", left[i])
			}
			e.must(db.Forget(e.Context(), left))
			e.wantNone()
		})},
		{"states come in the order of their refs, those of unknown ones too, thousands in pages", alone(func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			names := e.storeMany()
			p := e.prepareWith(db, move(refC, "", v2))
			asked := slices.Concat([]string{refC, refA}, names)
			slices.Reverse(asked)
			states, err := db.States(e.Context(), e.project, asked)
			e.must(err)
			if len(states) != len(asked) || driver.count("States") < 2 {
				e.Fatalf("got %d states of %d, in %d requests", len(states), len(asked), driver.count("States"))
			}
			for i, s := range states {
				want := refdb.State{Ref: asked[i], Value: v1}
				if asked[i] == refA || asked[i] == refC {
					want.Value = refdb.Unknown
				}
				if s.Ref != want.Ref || s.Value != want.Value || (s.Lock != nil) != (s.Ref == refC) {
					e.Fatalf("got %+v, want %+v", s, want)
				}
				if s.Lock != nil && (s.Lock.Token != p.Token || s.Lock.Owner != db.Owner() || !s.Lock.Intended()) {
					e.Errorf("the lock is %+v", s.Lock)
				}
			}
			if states, err := db.States(e.Context(), e.project, nil); len(states) != 0 || err != nil {
				e.Errorf("of nothing: %v, %v", states, err)
			}
		})},
	}
}

// prepareWith prepares updates of the row's project through db.
func (e *env) prepareWith(db *refdb.DB, updates ...refdb.Update) refdb.Preparation {
	e.Helper()
	p, err := db.Prepare(e.Context(), e.project, updates, agent)
	e.must(err)
	return p
}

// preparationOf returns p as a driver knows it.
func preparationOf(p refdb.Preparation) preparation {
	return preparation{
		refdb.PrepareRequest{Project: p.Project, Owner: p.Owner, Updates: p.Updates, Agent: agent, By: p.By, Nonce: p.Op},
		refdb.Prepared{Token: p.Token},
	}
}

// preparationFrom returns the preparation that recorded the listed intents.
func preparationFrom(intents []refdb.Intent) (p refdb.Preparation) {
	for _, i := range intents {
		p.Project, p.Owner, p.Token, p.By, p.Op = i.Project, i.Owner, i.Token, i.By, i.Op
		p.Updates = append(p.Updates, move(i.Ref, i.Old, i.New))
	}
	return p
}

// listIntents returns the intents that db lists.
func (e *env) listIntents(db *refdb.DB, f refdb.IntentFilter) []refdb.Intent {
	e.Helper()
	var all []refdb.Intent
	for i, err := range db.Intents(e.Context(), f) {
		e.must(err)
		all = append(all, i)
	}
	return all
}

// P7: the caller can't tell loseReply from loseRequest.
func dbIntentReplyRows() []row {
	return []row{
		{"P7 a preparation whose reply was lost is made once", func(e *env) {
			for i, fault := range []func(string) func(call) error{loseReply, loseRequest} {
				db, driver := e.openFaulty(refdb.Options{})
				ref := []string{refA, refB}[i]
				driver.inject(fault("Prepare"))
				p := e.prepareWith(db, move(ref, "", v1), move(refC, "", v1))
				if n := driver.count("Prepare"); n != 2 {
					e.Errorf("it took %d requests", n)
				}
				e.wantOnly(preparationOf(p))
				e.must(db.Finish(e.Context(), p, []string{ref}, []string{refC}))
				e.must(db.Forget(e.Context(), e.decided()))
				e.wantNone()
			}
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v1})
		}},
		{"P7 a preparation that was asked for again, finished and forgotten, does not come a second time", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			var late refdb.PrepareRequest
			driver.inject(onFirst("Prepare", func(c call) error {
				late = c.arg.(refdb.PrepareRequest)
				return errLost
			}))
			p := e.prepareWith(db, move(refA, "", v1))
			e.must(db.Finish(e.Context(), p, []string{refA}, nil))
			e.must(e.update(e.b, move(refA, v1, refdb.Deleted))) // the ref was moved and moved back
			_, err := e.sendPrepare(e.a, late)
			e.wantIs(err, refdb.ErrReleased)
			e.wantFree(refA)
		}},
		{"P7 a preparation that nobody can tell the outcome of is its caller's to revoke", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			driver.inject(func(c call) error {
				if c.method == "Prepare" {
					return errors.Join(errLost, c.do())
				}
				return c.do()
			})
			p, err := db.Prepare(e.Context(), e.project, []refdb.Update{move(refA, "", v1), move(refB, "", v1)}, agent)
			e.wantClass(err, refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
			e.must(db.Revoke(e.Context(), p))
			e.wantFree(refA, refB)
			e.must(db.Forget(e.Context(), e.decided()))
			e.wantNone()
		}},
		{"P7 a preparation that comes after its caller gave up and revoked it does nothing", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			var late refdb.PrepareRequest
			driver.inject(onFirst("Prepare", func(c call) error {
				late = c.arg.(refdb.PrepareRequest)
				cancel()
				return errors.Join(errLost, c.ctx.Err())
			}))
			p, err := db.Prepare(ctx, e.project, []refdb.Update{move(refA, "", v1)}, agent)
			e.wantIs(err, context.Canceled)
			e.wantIs(err, refdb.ErrOutcomeUnknown)
			e.must(db.Revoke(e.Context(), p))
			// The ref was moved and moved back.
			e.must(e.update(e.b, move(refA, "", v1)))
			e.must(e.update(e.b, move(refA, v1, refdb.Deleted)))
			_, err = e.sendPrepare(e.a, late)
			e.wantIs(err, refdb.ErrReleased)
			e.wantFree(refA)
		}},
		{"P7 a finish whose reply was lost happens once", func(e *env) {
			for i, fault := range []func(string) func(call) error{loseReply, loseRequest} {
				db, driver := e.openFaulty(refdb.Options{})
				ref := []string{refA, refB}[i]
				p := e.prepareWith(db, move(ref, "", v1), move(refC, "", v1))
				driver.inject(fault("Finish"))
				e.must(db.Finish(e.Context(), p, []string{ref}, []string{refC}))
				if n := driver.count("Finish"); n != 1+i {
					e.Errorf("it was sent %d times", n)
				}
				e.wantNone()
				e.wantLost(db.Finish(e.Context(), p, []string{ref}, []string{refC}), ref, refC)
			}
			e.wantRefs(map[string]refdb.Value{refA: v1, refB: v1})
		}},
		{"P7 a finish that arrives late, after it was sent again, happens once", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			p := e.prepareWith(db, move(refA, "", v1))
			driver.inject(e.delayRequest("Finish"))
			e.must(db.Finish(e.Context(), p, []string{refA}, nil))
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantNone()
		}},
		{"P7 a finish that was overwritten before it could be looked for has an unknown outcome, and is not repeated", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			p := e.prepareWith(db, move(refA, "", v1))
			driver.inject(onFirst("Finish", func(c call) error {
				e.must(c.do())
				e.must(e.update(e.b, move(refA, v1, refdb.Deleted)))
				return errLost
			}))
			e.wantClass(db.Finish(e.Context(), p, []string{refA}, nil), refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
			e.wantLost(db.Finish(e.Context(), p, []string{refA}, nil), refA)
			if got := e.getOne(refA).Value; !got.IsAbsent() {
				e.Errorf("it holds %q", got)
			}
		}},
		{"P7 a finish that drops all, and whose reply was lost, can be repeated", func(e *env) {
			for _, carriedOut := range []bool{true, false} {
				db, driver := e.openFaulty(refdb.Options{})
				p := e.prepareWith(db, move(refA, "", v1))
				fault := loseRequest
				if carriedOut {
					fault = loseReply
				}
				driver.inject(fault("Finish"))
				e.wantClass(db.Finish(e.Context(), p, nil, []string{refA}), refdb.ErrOutcomeUnknown, refdb.OutcomeUnknown)
				if err := db.Finish(e.Context(), p, nil, []string{refA}); e.loss(err) != carriedOut {
					e.Errorf("again: %v", err)
				}
				e.wantNone()
			}
		}},
		{"P7 a finish that the database certainly didn't do is tried again", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			p := e.prepareWith(db, move(refA, "", v1), move(refB, "", v1))
			driver.inject(onFirst("Finish", func(call) error { return errDown }))
			e.must(db.Finish(e.Context(), p, []string{refA}, nil))
			driver.inject(func(call) error { return errDown })
			e.wantClass(db.Finish(e.Context(), p, []string{refB}, nil), refdb.ErrUnavailable, refdb.Retryable)
			driver.inject(nil)
			e.must(db.Finish(e.Context(), p, []string{refB}, nil))
			e.wantNone()
		}},
	}
}
