package refdbtest

import (
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Of two requests at once one moves the ref, and the other leaves nothing.
func intentRaceRows() []row {
	return []row{
		{"P5 of 16 that prepare the same refs exactly one wins, and the others leave nothing", func(e *env) {
			e.repeatTimes(e.rounds()/4, func(a, b, _ string) { e.prepareByMany(16, a, b) })
		}},
		{"P5 of 16 that prepare refs whose locks are stale exactly one wins", func(e *env) {
			e.repeatTimes(e.rounds()/4, func(a, b, _ string) {
				e.age(e.acquire(e.a, a, b), stale)
				e.prepareByMany(16, a, b)
			})
		}},
		{"of two preparations that overlap one wins, the other sees it and leaves nothing", func(e *env) {
			e.repeat(func(a, b, c string) {
				var ab, bc preparation
				var abErr, bcErr error
				race(
					func() { ab, abErr = e.tryPrepare(e.a, move(a, "", v1), move(b, "", v1)) },
					func() { bc, bcErr = e.tryPrepare(e.b, move(b, "", v2), move(c, "", v2)) },
				)
				if e.refusal(abErr) == e.refusal(bcErr) {
					e.Fatalf("{a, b} got %v, {b, c} got %v", abErr, bcErr)
				}
				winner, loserErr, loserRef := ab, bcErr, c
				if abErr != nil {
					winner, loserErr, loserRef = bc, abErr, a
				}
				e.wantFree(loserRef)
				if h := e.wantHolders(loserErr, b); h[0].Token != winner.Token {
					e.Errorf("the loser saw %+v, the winner is %+v", h, winner)
				}
				e.wantOnly(winner)
				e.must(e.finish(e.a, winner))
			})
		}},
		{"of a preparation and an update one wins", func(e *env) {
			e.repeat(func(ref, other, _ string) {
				var l preparation
				var err, updateErr error
				race(
					func() { l, err = e.tryPrepare(e.a, move(ref, "", v1), move(other, "", v1)) },
					func() { updateErr = e.update(e.b, move(ref, "", v2)) },
				)
				if e.mismatch(err) == e.refusal(updateErr) {
					e.Fatalf("the preparation ended with %v, the update with %v", err, updateErr)
				}
				if err == nil {
					e.wantOnly(l)
					e.must(e.finish(e.a, l))
				} else {
					e.wantFree(ref, other)
				}
			})
		}},
		{"P7 of a preparation that is revoked nothing is left, whichever comes first", func(e *env) {
			e.repeat(func(ref, other, _ string) {
				r := e.prepareRequest(e.a, move(ref, "", v1), move(other, "", v1))
				var err error
				race(
					func() { _, err = e.sendPrepare(e.a, r) },
					func() { e.revoke(e.b, r) },
				)
				if err != nil {
					e.wantIs(err, refdb.ErrReleased)
				}
				e.wantFree(ref, other)
				if got := e.pending(); len(got) != 0 {
					e.Fatalf("pending are %+v", got)
				}
			})
		}},
		{"of a preparation and an advisory update one wins", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				var l preparation
				var err, updateErr error
				race(
					func() { l, err = e.tryPrepare(e.a, move(ref, "", v1)) },
					func() {
						updateErr = e.sendUpdate(e.b, refdb.UpdateRequest{Locks: refdb.AdvisoryLocks, Updates: []refdb.Update{move(ref, "", v2)}})
					},
				)
				if e.mismatch(err) == e.refusal(updateErr) {
					e.Fatalf("the preparation ended with %v, the update with %v", err, updateErr)
				}
				if err == nil {
					e.must(e.finish(e.a, l))
				}
			})
		}},
		{"of a preparation and an acquisition one wins", func(e *env) {
			e.repeat(func(a, b, _ string) {
				var l preparation
				var plain lock
				var err, plainErr error
				race(
					func() { l, err = e.tryPrepare(e.a, move(a, "", v1), move(b, "", v1)) },
					func() { plain, plainErr = e.tryAcquire(e.b, a) },
				)
				if e.refusal(err) == e.refusal(plainErr) {
					e.Fatalf("the preparation ended with %v, the acquisition with %v", err, plainErr)
				}
				if err == nil {
					e.wantOnly(l)
					e.must(e.finish(e.a, l))
				} else {
					e.wantLock(plain)
					e.wantFree(b)
				}
			})
		}},
		{"P2 of a preparation and a write of the stale lock's holder one wins", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				old := e.acquire(e.b, ref)
				e.age(old, stale)
				var l preparation
				var err, writeErr error
				race(
					func() { l, err = e.tryPrepare(e.a, move(ref, "", v1)) },
					func() {
						writeErr = e.sendUpdate(e.b, refdb.UpdateRequest{Fence: old.fence(), Updates: []refdb.Update{move(ref, "", v2)}})
					},
				)
				if e.mismatch(err) == e.loss(writeErr) {
					e.Fatalf("the preparation ended with %v, the write with %v", err, writeErr)
				}
				if err == nil {
					e.wantOnly(l)
					e.must(e.finish(e.a, l))
				} else {
					e.wantLock(old)
				}
			})
		}},
		{"P4 of a preparation and a beat of the stale lock one is refused", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				old := e.acquire(e.b, ref)
				e.age(old, stale)
				var l preparation
				var err, beatErr error
				var beats []refdb.BeatResult
				race(
					func() { l, err = e.tryPrepare(e.a, move(ref, "", v1)) },
					func() { beats, beatErr = e.tryBeat(e.b, old.ids()...) },
				)
				e.must(beatErr)
				refused := e.refusal(err)
				if beats[0] == refdb.Beaten && !refused || beats[0] == refdb.BeatLost && refused {
					e.Fatalf("the beat says %v, the preparation %v", beats, err)
				}
				if !refused {
					e.must(e.finish(e.a, l))
				}
			})
		}},
		{"of a preparation and a forced removal of its project one wins", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				r := &env{T: e.T, db: e.db, a: e.a, b: e.b, project: e.project + ref}
				r.must(r.update(r.a, move(ref, "", v1)))
				var l preparation
				var err, removeErr error
				race(
					func() { l, err = r.tryPrepare(r.a, move(ref, v1, v2)) },
					func() {
						removeErr = retry(func() error {
							_, err := r.b.Remove(r.Context(), refdb.RemoveRequest{Project: r.project, Limit: 10, Locks: refdb.AdvisoryLocks})
							return err
						})
					},
				)
				if r.mismatch(err) == r.refusal(removeErr) {
					r.Fatalf("the preparation ended with %v, the removal with %v", err, removeErr)
				}
				if err == nil {
					r.must(r.finish(r.a, l))
					r.wantRefs(map[string]refdb.Value{ref: v2})
				} else {
					r.wantRefs(nil)
				}
				r.wantNone()
			})
		}},
		{"P7 a request sent twice is one preparation, even while the first is under way", func(e *env) {
			e.repeat(func(a, b, _ string) {
				r := e.prepareRequest(e.a, move(a, "", v1), move(b, "", v1))
				var first, again preparation
				var err, againErr error
				race(
					func() { first, err = e.sendPrepare(e.a, r) },
					func() { again, againErr = e.sendPrepare(e.b, r) },
				)
				e.must(err)
				e.must(againErr)
				if first.Token != again.Token {
					e.Errorf("tokens %d and %d", first.Token, again.Token)
				}
				e.wantOnly(first)
				e.must(e.finish(e.a, first))
			})
		}},
		{"P7 of two that finish the same one does", func(e *env) {
			e.repeat(func(a, b, _ string) {
				l := e.prepare(e.a, move(a, "", v1), move(b, "", v1))
				var err, againErr error
				race(
					func() { err = e.finish(e.a, l) },
					func() { againErr = e.tryFinish(e.b, l, nil, []string{a, b}) },
				)
				if e.loss(err) == e.loss(againErr) {
					e.Fatalf("one ended with %v, the other with %v", err, againErr)
				}
				e.wantValues(err == nil, v1, a, b)
				e.wantFree(a, b)
			})
		}},
		{"of its owner who finishes and an operator who decides one does", func(e *env) {
			for _, d := range []refdb.Decision{refdb.KeepOld, refdb.TakeNew} {
				e.repeatTimes(e.rounds()/2, func(a, b, _ string) {
					a, b = a+string(d), b+string(d)
					l := e.prepare(e.a, move(a, "", v1), move(b, "", v1))
					drop := d == refdb.TakeNew
					done, dropped := []string{a, b}, []string(nil)
					if drop {
						done, dropped = dropped, done
					}
					var err, resolveErr error
					var ended []bool
					race(
						func() { err = e.tryFinish(e.a, l, done, dropped) },
						func() { ended, resolveErr = e.tryResolve(e.b, d, l.ids()...) },
					)
					e.must(resolveErr)
					if ended[0] != ended[1] || e.loss(err) != ended[0] {
						e.Fatalf("its owner ended with %v, the operator with %v", err, ended)
					}
					e.wantValues(ended[0] == drop, v1, a, b)
					e.wantFree(a, b)
					if got := len(e.decidedOf(l)); (got == 2) != ended[0] || (got == 0) == ended[0] {
						e.Errorf("%d are decided, and the operator ended %v", got, ended)
					}
				})
			}
		}},
		{"of two operators who decide differently one does", func(e *env) {
			e.repeat(func(a, _, _ string) {
				l := e.prepare(e.a, move(a, "", v1))
				var keep, take []bool
				var keepErr, takeErr error
				race(
					func() { keep, keepErr = e.tryResolve(e.a, refdb.KeepOld, l.ids()...) },
					func() { take, takeErr = e.tryResolve(e.b, refdb.TakeNew, l.ids()...) },
				)
				e.must(keepErr)
				e.must(takeErr)
				if keep[0] == take[0] {
					e.Fatalf("keep-old says %v, take-new %v", keep, take)
				}
				e.wantValues(take[0], v1, a)
				if got := e.decidedOf(l); len(got) != 1 || (got[0].Decision == refdb.TakeNew) != take[0] {
					e.Errorf("decided are %+v", got)
				}
			})
		}},
		{"of a finish and the next preparation, the next is refused or expects what was done", func(e *env) {
			e.repeat(func(a, _, _ string) {
				l := e.prepare(e.a, move(a, "", v1))
				var next preparation
				var err, nextErr error
				race(
					func() { err = e.finish(e.a, l) },
					func() { next, nextErr = e.tryPrepare(e.b, move(a, v1, v2)) },
				)
				e.must(err)
				if !e.refusal(nextErr) {
					e.wantOnly(next)
					e.must(e.finish(e.b, next))
				}
			})
		}},
		{"of a finish and a look at states, a ref without a lock has its new value", func(e *env) {
			e.repeat(func(a, b, _ string) {
				l := e.prepare(e.a, move(a, "", v1), move(b, "", v1))
				var err, lookErr error
				var states map[string]refdb.State
				race(
					func() { err = e.finish(e.a, l) },
					func() { states, lookErr = e.tryStates(a, b) },
				)
				e.must(err)
				e.must(lookErr)
				before := states[a].Lock != nil && states[b].Lock != nil && states[a].Value == refdb.Unknown && states[b].Value == refdb.Unknown
				after := states[a].Lock == nil && states[b].Lock == nil && states[a].Value == v1 && states[b].Value == v1
				if !before && !after {
					e.Errorf("the states were %+v", states)
				}
			})
		}},
	}
}

// prepareByMany has n owners prepare the same refs at once; exactly one must win. It then finishes.
func (e *env) prepareByMany(n int, refs ...string) {
	e.Helper()
	processes := []process{e.a, e.b}
	made, errs := make([]preparation, n), make([]error, n)
	var all []func()
	for i := range n {
		p := process{processes[i%len(processes)].Driver, fmt.Sprintf("contender/%d", i)}
		var updates []refdb.Update
		for _, ref := range refs {
			updates = append(updates, move(ref, "", refdb.Value(p.owner)))
		}
		all = append(all, func() { made[i], errs[i] = e.tryPrepare(p, updates...) })
	}
	race(all...)
	var winners []preparation
	for i, err := range errs {
		if !e.refusal(err) {
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
		for _, h := range e.wantHolders(err, refs...) {
			if h.Token != winner.Token || h.Owner != winner.Owner {
				e.Errorf("a loser saw %+v, the winner is %+v", h, winner)
			}
		}
	}
	e.wantOnly(winner)
	e.must(e.finish(e.a, winner))
	e.wantValues(true, refdb.Value(winner.Owner), refs...)
}

// wantOnly checks that l's intents are pending, and no others on its refs.
func (e *env) wantOnly(l preparation) {
	e.Helper()
	pending := e.pending()
	e.wantAmong(pending, l, l.refs()...)
	for _, i := range pending {
		if i.Token != l.Token && slices.Contains(l.refs(), i.Ref) {
			e.Errorf("%+v is left beside %+v", i, l)
		}
	}
}

// wantValues checks that all refs hold v or, if they were not written, that none has a row.
func (e *env) wantValues(written bool, v refdb.Value, refs ...string) {
	e.Helper()
	got := e.get(refs...)
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
func (e *env) decidedOf(l preparation) []refdb.Intent {
	e.Helper()
	var all []refdb.Intent
	for _, ref := range l.refs() {
		all = append(all, e.intents(refdb.IntentQuery{IntentFilter: refdb.IntentFilter{Project: l.Project, Ref: ref, Decided: true}})...)
	}
	return slices.DeleteFunc(all, func(i refdb.Intent) bool { return i.Token != l.Token })
}
