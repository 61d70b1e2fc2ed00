package race

import (
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// Of two requests at once one moves the ref, and the other leaves nothing.
func intentRows() []row {
	return []row{
		{"P5 of 16 that prepare the same refs exactly one wins, and the others leave nothing", func(e *env) {
			repeatTimes(e, e.Rounds()/4, func(a, b, _ string) { prepareByMany(e, 16, a, b) })
		}},
		{"P5 of 16 that prepare refs whose locks are stale exactly one wins", func(e *env) {
			repeatTimes(e, e.Rounds()/4, func(a, b, _ string) {
				e.Age(e.Acquire(e.A, a, b), stale)
				prepareByMany(e, 16, a, b)
			})
		}},
		{"of two overlapping preparations one wins, the other is refused by it and leaves nothing", func(e *env) {
			repeat(e, func(a, b, c string) {
				var ab, bc preparation
				var abErr, bcErr error
				suite.Race(
					func() { ab, abErr = e.TryPrepare(e.A, suite.Move(a, "", v1), suite.Move(b, "", v1)) },
					func() { bc, bcErr = e.TryPrepare(e.B, suite.Move(b, "", v2), suite.Move(c, "", v2)) },
				)
				if e.Refusal(abErr) == e.Refusal(bcErr) {
					e.Fatalf("{a, b} got %v, {b, c} got %v", abErr, bcErr)
				}
				winner, loserErr, loserRef := ab, bcErr, c
				if abErr != nil {
					winner, loserErr, loserRef = bc, abErr, a
				}
				e.WantFree(loserRef)
				if h := e.WantHolders(loserErr, b); h[0].Token != winner.Token {
					e.Errorf("the loser saw %+v, the winner is %+v", h, winner)
				}
				e.WantOnly(winner)
				e.Must(e.Finish(e.A, winner))
			})
		}},
		{"of a preparation and an update one wins", func(e *env) {
			repeat(e, func(ref, other, _ string) {
				var l preparation
				var err, updateErr error
				suite.Race(
					func() { l, err = e.TryPrepare(e.A, suite.Move(ref, "", v1), suite.Move(other, "", v1)) },
					func() { updateErr = e.Update(e.B, suite.Move(ref, "", v2)) },
				)
				if e.Mismatch(err) == e.Refusal(updateErr) {
					e.Fatalf("the preparation ended with %v, the update with %v", err, updateErr)
				}
				if err == nil {
					e.WantOnly(l)
					e.Must(e.Finish(e.A, l))
				} else {
					e.WantFree(ref, other)
				}
			})
		}},
		{"P7 a concurrently revoked preparation leaves nothing, whichever comes first", func(e *env) {
			repeat(e, func(ref, other, _ string) {
				r := e.PrepareRequest(e.A, suite.Move(ref, "", v1), suite.Move(other, "", v1))
				var err error
				suite.Race(
					func() { _, err = e.SendPrepare(e.A, r) },
					func() { e.Revoke(e.B, r) },
				)
				if err != nil {
					e.WantIs(err, driver.ErrReleased)
				}
				e.WantFree(ref, other)
				if got := e.Pending(); len(got) != 0 {
					e.Fatalf("pending are %+v", got)
				}
			})
		}},
		{"of a preparation and an advisory update one wins", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				var l preparation
				var err, updateErr error
				suite.Race(
					func() { l, err = e.TryPrepare(e.A, suite.Move(ref, "", v1)) },
					func() {
						updateErr = e.SendUpdate(e.B, driver.UpdateRequest{Locks: driver.AdvisoryLocks, Updates: []driver.Update{suite.Move(ref, "", v2)}})
					},
				)
				if e.Mismatch(err) == e.Refusal(updateErr) {
					e.Fatalf("the preparation ended with %v, the update with %v", err, updateErr)
				}
				if err == nil {
					e.Must(e.Finish(e.A, l))
				}
			})
		}},
		{"of a preparation and an acquisition one wins", func(e *env) {
			repeat(e, func(a, b, _ string) {
				var l preparation
				var plain lock
				var err, plainErr error
				suite.Race(
					func() { l, err = e.TryPrepare(e.A, suite.Move(a, "", v1), suite.Move(b, "", v1)) },
					func() { plain, plainErr = e.TryAcquire(e.B, a) },
				)
				if e.Refusal(err) == e.Refusal(plainErr) {
					e.Fatalf("the preparation ended with %v, the acquisition with %v", err, plainErr)
				}
				if err == nil {
					e.WantOnly(l)
					e.Must(e.Finish(e.A, l))
				} else {
					e.WantLock(plain)
					e.WantFree(b)
				}
			})
		}},
		{"P2 of a preparation and a write of the stale lock's holder one wins", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				old := e.Acquire(e.B, ref)
				e.Age(old, stale)
				var l preparation
				var err, writeErr error
				suite.Race(
					func() { l, err = e.TryPrepare(e.A, suite.Move(ref, "", v1)) },
					func() {
						writeErr = e.SendUpdate(e.B, driver.UpdateRequest{Fence: old.Fence(), Updates: []driver.Update{suite.Move(ref, "", v2)}})
					},
				)
				if e.Mismatch(err) == e.Loss(writeErr) {
					e.Fatalf("the preparation ended with %v, the write with %v", err, writeErr)
				}
				if err == nil {
					e.WantOnly(l)
					e.Must(e.Finish(e.A, l))
				} else {
					e.WantLock(old)
				}
			})
		}},
		{"P4 of a preparation and a beat of the stale lock one is refused", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				old := e.Acquire(e.B, ref)
				e.Age(old, stale)
				var l preparation
				var err, beatErr error
				var beats []driver.BeatResult
				suite.Race(
					func() { l, err = e.TryPrepare(e.A, suite.Move(ref, "", v1)) },
					func() { beats, beatErr = e.TryBeat(e.B, old.IDs()...) },
				)
				e.Must(beatErr)
				refused := e.Refusal(err)
				if beats[0] == driver.BeatRenewed && !refused || beats[0] == driver.BeatLost && refused {
					e.Fatalf("the beat says %v, the preparation %v", beats, err)
				}
				if !refused {
					e.Must(e.Finish(e.A, l))
				}
			})
		}},
		{"of a preparation and a forced removal of its project one wins", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				r := &env{T: e.T, DB: e.DB, A: e.A, B: e.B, Project: e.Project + ref}
				r.Must(r.Update(r.A, suite.Move(ref, "", v1)))
				var l preparation
				var err, removeErr error
				suite.Race(
					func() { l, err = r.TryPrepare(r.A, suite.Move(ref, v1, v2)) },
					func() {
						removeErr = suite.Retry(func() error {
							_, err := r.B.Remove(r.Context(), driver.RemoveRequest{Project: r.Project, Limit: 10, Locks: driver.AdvisoryLocks})
							return err
						})
					},
				)
				if r.Mismatch(err) == r.Refusal(removeErr) {
					r.Fatalf("the preparation ended with %v, the removal with %v", err, removeErr)
				}
				if err == nil {
					r.Must(r.Finish(r.A, l))
					r.WantRefs(map[string]driver.Value{ref: v2})
				} else {
					r.WantRefs(nil)
				}
				r.WantNone()
			})
		}},
		{"P7 a request sent twice is one preparation, even while the first one is in progress", func(e *env) {
			repeat(e, func(a, b, _ string) {
				r := e.PrepareRequest(e.A, suite.Move(a, "", v1), suite.Move(b, "", v1))
				var first, again preparation
				var err, againErr error
				suite.Race(
					func() { first, err = e.SendPrepare(e.A, r) },
					func() { again, againErr = e.SendPrepare(e.B, r) },
				)
				e.Must(err)
				e.Must(againErr)
				if first.Token != again.Token {
					e.Errorf("tokens %d and %d", first.Token, again.Token)
				}
				e.WantOnly(first)
				e.Must(e.Finish(e.A, first))
			})
		}},
		{"P7 of two concurrent identical finishes one succeeds", func(e *env) {
			repeat(e, func(a, b, _ string) {
				l := e.Prepare(e.A, suite.Move(a, "", v1), suite.Move(b, "", v1))
				var err, againErr error
				suite.Race(
					func() { err = e.Finish(e.A, l) },
					func() { againErr = e.TryFinish(e.B, l, nil, []string{a, b}) },
				)
				if e.Loss(err) == e.Loss(againErr) {
					e.Fatalf("one ended with %v, the other with %v", err, againErr)
				}
				wantValues(e, err == nil, v1, a, b)
				e.WantFree(a, b)
			})
		}},
		{"of an owner's finish and an operator's decision one succeeds", func(e *env) {
			for _, d := range []driver.Decision{driver.KeepOld, driver.TakeNew} {
				repeatTimes(e, e.Rounds()/2, func(a, b, _ string) {
					a, b = a+string(d), b+string(d)
					l := e.Prepare(e.A, suite.Move(a, "", v1), suite.Move(b, "", v1))
					drop := d == driver.TakeNew
					done, dropped := []string{a, b}, []string(nil)
					if drop {
						done, dropped = dropped, done
					}
					var err, resolveErr error
					var ended []bool
					suite.Race(
						func() { err = e.TryFinish(e.A, l, done, dropped) },
						func() { ended, resolveErr = e.TryResolve(e.B, d, l.IDs()...) },
					)
					e.Must(resolveErr)
					if ended[0] != ended[1] || e.Loss(err) != ended[0] {
						e.Fatalf("its owner ended with %v, the operator with %v", err, ended)
					}
					wantValues(e, ended[0] == drop, v1, a, b)
					e.WantFree(a, b)
					if got := len(decidedOf(e, l)); (got == 2) != ended[0] || (got == 0) == ended[0] {
						e.Errorf("%d are decided, and the operator ended %v", got, ended)
					}
				})
			}
		}},
		{"of two different decisions one succeeds", func(e *env) {
			repeat(e, func(a, _, _ string) {
				l := e.Prepare(e.A, suite.Move(a, "", v1))
				var keep, take []bool
				var keepErr, takeErr error
				suite.Race(
					func() { keep, keepErr = e.TryResolve(e.A, driver.KeepOld, l.IDs()...) },
					func() { take, takeErr = e.TryResolve(e.B, driver.TakeNew, l.IDs()...) },
				)
				e.Must(keepErr)
				e.Must(takeErr)
				if keep[0] == take[0] {
					e.Fatalf("keep-old says %v, take-new %v", keep, take)
				}
				wantValues(e, take[0], v1, a)
				if got := decidedOf(e, l); len(got) != 1 || (got[0].Decision == driver.TakeNew) != take[0] {
					e.Errorf("decided are %+v", got)
				}
			})
		}},
		{"of a finish and the next preparation, the next is refused or expects what was done", func(e *env) {
			repeat(e, func(a, _, _ string) {
				l := e.Prepare(e.A, suite.Move(a, "", v1))
				var next preparation
				var err, nextErr error
				suite.Race(
					func() { err = e.Finish(e.A, l) },
					func() { next, nextErr = e.TryPrepare(e.B, suite.Move(a, v1, v2)) },
				)
				e.Must(err)
				if !e.Refusal(nextErr) {
					e.WantOnly(next)
					e.Must(e.Finish(e.B, next))
				}
			})
		}},
		{"of a finish and a read of states, a ref without a lock has its new value", func(e *env) {
			repeat(e, func(a, b, _ string) {
				l := e.Prepare(e.A, suite.Move(a, "", v1), suite.Move(b, "", v1))
				var err, lookErr error
				var states map[string]driver.State
				suite.Race(
					func() { err = e.Finish(e.A, l) },
					func() { states, lookErr = e.TryStates(a, b) },
				)
				e.Must(err)
				e.Must(lookErr)
				before := states[a].Lock != nil && states[b].Lock != nil && states[a].Value == driver.Unknown && states[b].Value == driver.Unknown
				after := states[a].Lock == nil && states[b].Lock == nil && states[a].Value == v1 && states[b].Value == v1
				if !before && !after {
					e.Errorf("the states were %+v", states)
				}
			})
		}},
	}
}

// prepareByMany has n owners prepare the same refs at once; exactly one must win. It then finishes.
func prepareByMany(e *env, n int, refs ...string) {
	e.Helper()
	processes := []process{e.A, e.B}
	made, errs := make([]preparation, n), make([]error, n)
	var all []func()
	for i := range n {
		p := process{Driver: processes[i%len(processes)].Driver, Owner: fmt.Sprintf("contender/%d", i)}
		var updates []driver.Update
		for _, ref := range refs {
			updates = append(updates, suite.Move(ref, "", driver.Value(p.Owner)))
		}
		all = append(all, func() { made[i], errs[i] = e.TryPrepare(p, updates...) })
	}
	suite.Race(all...)
	var winners []preparation
	for i, err := range errs {
		if !e.Refusal(err) {
			winners = append(winners, made[i])
		}
	}
	if len(winners) != 1 {
		e.Fatalf("%d won", len(winners))
	}
	winner := winners[0]
	for _, err := range errs {
		if err == nil {
			continue
		}
		for _, h := range e.WantHolders(err, refs...) {
			if h.Token != winner.Token || h.Owner != winner.Owner {
				e.Errorf("a loser saw %+v, the winner is %+v", h, winner)
			}
		}
	}
	e.WantOnly(winner)
	e.Must(e.Finish(e.A, winner))
	wantValues(e, true, driver.Value(winner.Owner), refs...)
}

// wantValues checks that all refs hold v or, if they were not written, that none has a row.
func wantValues(e *env, written bool, v driver.Value, refs ...string) {
	e.Helper()
	got := e.Get(refs...)
	for _, r := range got {
		if r.Value != v {
			e.Errorf("%s holds %q, want %q", r.Name, r.Value, v)
		}
	}
	if written != (len(got) == len(refs)) || !written && len(got) != 0 {
		e.Errorf("%d of %d refs were written, and it says %v", len(got), len(refs), written)
	}
}

// decidedOf returns l's decided intents.
func decidedOf(e *env, l preparation) []driver.Intent {
	e.Helper()
	var all []driver.Intent
	for _, ref := range l.Refs() {
		all = append(all, e.Intents(driver.IntentQuery{IntentFilter: driver.IntentFilter{Project: l.Project, Ref: ref, Decided: true}})...)
	}
	return slices.DeleteFunc(all, func(i driver.Intent) bool { return i.Token != l.Token })
}
