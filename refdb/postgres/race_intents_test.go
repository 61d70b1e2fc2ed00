package postgres_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// alone runs a race with requests that are sent alone.
func alone(t *testing.T, race func(a *arena)) {
	t.Run("alone", func(t *testing.T) {
		a := newArena(t)
		race(a)
		a.wantIntentsAndLocksTogether()
	})
}

// aloneAndShared also runs the race with requests about single refs that share batches.
func aloneAndShared(t *testing.T, race func(a *arena)) {
	alone(t, race)
	t.Run("shared", func(t *testing.T) {
		a := newArena(t)
		a.left.ShareAll()
		a.right.ShareAll()
		race(a)
		a.wantIntentsAndLocksTogether()
	})
}

// wantIntentsAndLocksTogether checks that each lock that stands for an intent has an intent, and
// that each pending intent has such a lock.
func (a *arena) wantIntentsAndLocksTogether() {
	a.Helper()
	c := session(a, a.db.URL())
	alone := query[string](a, c, `
		SELECT concat(l.ref, i.ref) FROM (SELECT * FROM locks WHERE stale_after = $1) l
		FULL JOIN (SELECT * FROM intents WHERE decision IS NULL) i USING (project, ref, token)
		WHERE l.owner IS NULL OR i.owner IS NULL`, driver.NeverStale.Microseconds())
	if len(alone) > 0 {
		a.Errorf("%d locks without an intent, or intents without a lock: %s", len(alone), alone[0])
	}
}

// refsOf returns the refs of a round.
func refsOf(round int, kinds ...string) []string {
	var refs []string
	for _, k := range kinds {
		refs = append(refs, ref(k, round))
	}
	return refs
}

// prepare records intents for the refs of all rounds under one token.
func (a *arena) prepare(old, new driver.Value, refs []string) driver.Token {
	a.Helper()
	got, err := a.left.Prepare(a.Context(), intention(old, new, refs...))
	a.must(err)
	return got.Token
}

func TestOfAPreparationAndAnUpdateOneIsRefused(t *testing.T) {
	for name, row := range map[string]struct {
		refs  []string
		locks driver.LockMode
		run   func(*testing.T, func(*arena))
	}{
		"of one ref":           {[]string{"x"}, driver.MandatoryLocks, aloneAndShared},
		"of several refs":      {[]string{"w", "x"}, driver.MandatoryLocks, alone},
		"advisory":             {[]string{"x"}, driver.AdvisoryLocks, aloneAndShared},
		"advisory, of several": {[]string{"x", "y"}, driver.AdvisoryLocks, alone},
	} {
		t.Run(name, func(t *testing.T) {
			row.run(t, func(a *arena) {
				prepared, updated := make([]error, raceRounds()+1), make([]error, raceRounds()+1)
				a.race(
					func(n int) { _, prepared[n] = a.left.Prepare(a.Context(), intention("", v2, ref("x", n), ref("z", n))) },
					func(n int) {
						r := update(refsOf(n, row.refs...)...)
						r.Locks = row.locks
						updated[n] = try(a.Context(), a.right, r)
					},
					func(n int) {
						if a.is(prepared[n], driver.ErrMismatch) == a.is(updated[n], driver.ErrLocked) {
							a.Errorf("the preparation ended with %v, the update with %v", prepared[n], updated[n])
						}
					})
			})
		})
	}
}

func TestOfAPreparationAndAnAcquisitionOneIsRefused(t *testing.T) {
	for name, row := range map[string]struct {
		refs  []string
		stale bool
		run   func(*testing.T, func(*arena))
	}{
		"of one ref":                     {[]string{"x"}, false, aloneAndShared},
		"of one ref whose lock is stale": {[]string{"x"}, true, alone},
		"of several refs":                {[]string{"w", "x"}, false, alone},
	} {
		t.Run(name, func(t *testing.T) {
			row.run(t, func(a *arena) {
				if row.stale {
					a.hold(all("x"), true)
				}
				prepared, acquired := make([]error, raceRounds()+1), make([]error, raceRounds()+1)
				a.race(
					func(n int) { _, prepared[n] = a.left.Prepare(a.Context(), intention("", v2, ref("x", n), ref("z", n))) },
					func(n int) { _, acquired[n] = a.right.Acquire(a.Context(), request(refsOf(n, row.refs...)...)) },
					func(n int) {
						if a.is(prepared[n], driver.ErrLocked) == a.is(acquired[n], driver.ErrLocked) {
							a.Errorf("the preparation ended with %v, the acquisition with %v", prepared[n], acquired[n])
						}
					})
			})
		})
	}
}

func TestAPreparationSeesTheUpdateThatReleasedTheLock(t *testing.T) {
	aloneAndShared(t, func(a *arena) {
		token := a.hold(all("x"), false)
		prepared, updated := make([]error, raceRounds()+1), make([]error, raceRounds()+1)
		a.race(
			func(n int) { _, prepared[n] = a.left.Prepare(a.Context(), intention("", v2, ref("x", n))) },
			func(n int) {
				r := update(ref("x", n))
				r.Fence = releasing(token, ref("x", n))
				updated[n] = try(a.Context(), a.right, r)
			},
			func(n int) {
				if updated[n] != nil || prepared[n] == nil {
					a.Errorf("the preparation ended with %v, the update with %v", prepared[n], updated[n])
				}
			})
	})
}

// A release takes no keys: only the row of the lock excludes the preparation.
func TestOfAReleaseAndAPreparationThatTakesTheStaleLockOverOneDoesIt(t *testing.T) {
	aloneAndShared(t, func(a *arena) {
		token := a.hold(all("x"), true)
		took := make([]driver.Prepared, raceRounds()+1)
		prepared, errs := make([]error, raceRounds()+1), make([]error, raceRounds()+1)
		gone := make([]bool, raceRounds()+1)
		a.race(
			func(n int) { took[n], prepared[n] = a.left.Prepare(a.Context(), intention("", v2, ref("x", n))) },
			func(n int) {
				gone[n], errs[n] = released(a.right, ending(token, ref("x", n)))
			},
			func(n int) {
				if prepared[n] != nil || errs[n] != nil || gone[n] == (len(took[n].Reclaimed) == 1) {
					a.Errorf("the preparation ended with %+v, %v, the release with %v, %v", took[n], prepared[n], gone[n], errs[n])
				}
			})
	})
}

func TestARequestThatPassesAFinishedIntentReadsItsValue(t *testing.T) {
	for name, locks := range map[string]driver.LockMode{"an update": driver.MandatoryLocks, "an advisory update": driver.AdvisoryLocks} {
		t.Run(name, func(t *testing.T) {
			aloneAndShared(t, func(a *arena) {
				token := a.prepare("", v1, all("x"))
				finished, updated := make([]error, raceRounds()+1), make([]error, raceRounds()+1)
				a.race(
					func(n int) { finished[n] = a.left.Finish(a.Context(), done(token, "", v1, ref("x", n))) },
					func(n int) {
						updated[n] = try(a.Context(), a.right, driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: "id"}, Locks: locks, Updates: moves(v1, v2, ref("x", n))})
					},
					func(n int) {
						if finished[n] != nil {
							a.Error(finished[n])
						}
						a.is(updated[n], driver.ErrLocked)
					})
			})
		})
	}
}

func TestOfADroppedIntentAndADecisionOneCounts(t *testing.T) {
	a := newArena(t)
	token := a.prepare("", v1, all("x"))
	finished, ended := make([]error, raceRounds()+1), make([][]bool, raceRounds()+1)
	resolved := make([]error, raceRounds()+1)
	a.race(
		func(n int) { finished[n] = a.left.Finish(a.Context(), dropped(token, ref("x", n))) },
		func(n int) {
			ended[n], resolved[n] = a.right.Resolve(a.Context(), driver.ResolveRequest{
				Intents: ids(token, ref("x", n)), Decision: driver.TakeNew, Origin: driver.Origin{By: "by"}, Reason: "reason"})
		},
		func(n int) {
			if lost := a.is(finished[n], driver.ErrLockLost); resolved[n] != nil || lost != ended[n][0] {
				a.Errorf("the drop ended with %v, the resolution with %v, %v", finished[n], ended[n], resolved[n])
				return
			}
			rows, err := a.left.Get(a.Context(), project, []string{ref("x", n)})
			if err != nil || (len(rows) == 1) != ended[n][0] {
				a.Errorf("the resolution took effect: %v, but the ref holds %v, %v", ended[n], rows, err)
			}
		})
	a.wantIntentsAndLocksTogether()
	left, err := a.left.Locks(t.Context(), driver.LockQuery{Limit: 10})
	if err != nil || len(left.Locks) > 0 {
		t.Errorf("locks remain: %v, %v", left, err)
	}
}

// The reply to the first request was lost, and the preparation is dropped while the request is sent
// again.
func TestAPreparationIsAdoptedOrRepeatedWhileItIsDropped(t *testing.T) {
	a := newArena(t)
	requests, first := make([]driver.PrepareRequest, raceRounds()+1), make([]driver.Prepared, raceRounds()+1)
	for n := 1; n <= raceRounds(); n++ {
		requests[n] = intention("", v1, ref("x", n), ref("y", n))
		var err error
		first[n], err = a.left.Prepare(t.Context(), requests[n])
		a.must(err)
	}
	again := make([]driver.Prepared, raceRounds()+1)
	errs, finished := make([]error, raceRounds()+1), make([]error, raceRounds()+1)
	a.race(
		func(n int) { again[n], errs[n] = a.left.Prepare(a.Context(), requests[n]) },
		func(n int) {
			finished[n] = a.right.Finish(a.Context(), dropped(first[n].Token, ref("x", n), ref("y", n)))
		},
		func(n int) {
			if errs[n] != nil || finished[n] != nil || again[n].Token < first[n].Token {
				a.Errorf("sent again: %+v, %v; dropped: %v", again[n], errs[n], finished[n])
			}
		})
	a.wantIntentsAndLocksTogether()
}

// A program that doesn't know intents has deleted the lock, so no row of a lock separates the two.
func TestOfTwoDecisionsAboutAnIntentWithoutALockOneCounts(t *testing.T) {
	a := newArena(t)
	token := a.prepare("", v1, all("x"))
	a.db.Exec(t, `DELETE FROM locks`)
	left, right := make([][]bool, raceRounds()+1), make([][]bool, raceRounds()+1)
	leftErr, rightErr := make([]error, raceRounds()+1), make([]error, raceRounds()+1)
	resolve := func(d driver.Driver, decision driver.Decision, n int) ([]bool, error) {
		return d.Resolve(a.Context(), driver.ResolveRequest{
			Intents: ids(token, ref("x", n)), Decision: decision, Origin: driver.Origin{By: "by"}, Reason: "reason"})
	}
	if ended, err := resolve(a.left, driver.TakeNew, 1); err != nil || ended[0] {
		t.Errorf("the new value was taken although the ref may have moved: %v, %v", ended, err)
	}
	a.race(
		func(n int) { left[n], leftErr[n] = resolve(a.left, driver.KeepOld, n) },
		func(n int) { right[n], rightErr[n] = resolve(a.right, driver.KeepOld, n) },
		func(n int) {
			if err := errors.Join(leftErr[n], rightErr[n]); err != nil || left[n][0] == right[n][0] {
				a.Errorf("one returned %v, the other %v, %v", left[n], right[n], err)
			}
		})
	decided, err := a.left.Intents(t.Context(), driver.IntentQuery{IntentFilter: driver.IntentFilter{Decided: true}, Limit: 2 * raceRounds()})
	if err != nil || len(decided.Intents) != raceRounds() {
		t.Errorf("%d of %d are decided, %v", len(decided.Intents), raceRounds(), err)
	}
}

func TestDecisionsOverSeveralProjectsNeverDeadlock(t *testing.T) {
	a := newDeadlockArena(t)
	projects, refs := []string{"p/a", "p/b", "p/c", "p/d"}, names(8)
	resolve := func(d driver.Driver, intents ...driver.LockID) {
		if _, err := d.Resolve(a.Context(), driver.ResolveRequest{Intents: intents, Decision: driver.KeepOld, Origin: driver.Origin{By: "by"}, Reason: "reason"}); err != nil {
			a.Error(err)
		}
	}
	for n := range raceRounds() {
		p := projects[n%len(projects)]
		var intents []driver.LockID
		for _, project := range projects {
			for _, ref := range refs {
				intents = append(intents, driver.LockID{Project: project, Ref: ref, Owner: owner, Token: driver.Token(n)})
			}
		}
		rand.Shuffle(len(intents), func(i, j int) { intents[i], intents[j] = intents[j], intents[i] })
		together(
			func() { resolve(a.left, intents...) },
			func() { resolve(a.right, intents[len(intents)/2:]...) },
			func() {
				r := intention("", v1, refs...)
				r.Project = p
				got, err := a.left.Prepare(t.Context(), r)
				if a.is(err, driver.ErrMismatch) { // the removal refused last time
					return
				}
				f := done(got.Token, "", v1, refs...)
				f.Project = p
				if err := a.right.Finish(t.Context(), f); err != nil {
					a.Error(err)
				}
			},
			func() {
				stagger()
				_, err := a.right.Remove(t.Context(), driver.RemoveRequest{Project: p, Limit: 10, Locks: driver.AdvisoryLocks})
				a.is(err, driver.ErrLocked)
			})
	}
	a.wantNoDeadlocks()
}
