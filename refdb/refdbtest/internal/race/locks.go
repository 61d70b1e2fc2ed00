package race

import (
	"fmt"
	"maps"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// repeat runs the rounds of a race, each on refs of its own.
func repeat(e *env, round func(a, b, c string)) {
	e.Helper()
	repeatTimes(e, e.Rounds(), round)
}

// repeatTimes is repeat with a number of rounds of the row's own.
func repeatTimes(e *env, rounds int, round func(a, b, c string)) {
	e.Helper()
	for n := range max(1, rounds) {
		if e.Failed() {
			e.Fatalf("in round %d", n)
		}
		dir := fmt.Sprintf("refs/heads/%d/", n)
		round(dir+"a", dir+"b", dir+"c")
	}
}

func lockRows() []row {
	return []row{
		{"of an acquisition and an update of a ref that exists, the update is refused or its value acquired", func(e *env) {
			repeat(e, func(ref, _, _ string) { acquireAgainstUpdate(e, ref, v1) })
		}},
		{"of an acquisition and an update of a ref that doesn't, the update is refused or its value acquired", func(e *env) {
			repeat(e, func(ref, _, _ string) { acquireAgainstUpdate(e, ref, driver.Unknown) })
		}},
		{"of a reclaim and an update that passes the stale lock, the update is refused or its value acquired", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				e.Age(e.Acquire(e.A, ref), stale)
				acquireAgainstUpdate(e, ref, driver.Unknown)
			})
		}},
		{"P1 of two overlapping acquisitions one wins, the other is refused by it and leaves nothing", func(e *env) {
			repeat(e, func(a, b, c string) { acquireAgainstAcquire(e, a, b, c) })
		}},
		{"P5 of two overlapping reclaims one wins, the other is refused by it and leaves nothing", func(e *env) {
			repeat(e, func(a, b, c string) {
				e.Age(e.Acquire(e.A, b), stale)
				acquireAgainstAcquire(e, a, b, c)
			})
		}},
		{"P2 of a fenced update and a reclaim, the update is lost or its value acquired", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				l := e.Acquire(e.A, ref)
				e.Age(l, stale)
				var err, takeErr error
				var took lock
				suite.Race(
					func() {
						err = e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Fence(), Updates: []driver.Update{suite.Move(ref, "", v1)}})
					},
					func() { took, takeErr = e.TryAcquire(e.B, ref) },
				)
				e.Must(takeErr)
				if want := valueIf(!e.Loss(err), ref, v1); !maps.Equal(took.Values(), want) {
					e.Errorf("the update ended with %v, and the reclaim found %v", err, took.Values())
				}
				e.WantLock(took)
			})
		}},
		{"of a releasing update and an acquisition, the acquisition is refused or reads the update's value", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				l := e.Acquire(e.A, ref)
				var err, takeErr error
				var took lock
				suite.Race(
					func() {
						err = e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Releasing(), Updates: []driver.Update{suite.Move(ref, "", v1)}})
					},
					func() { took, takeErr = e.TryAcquire(e.B, ref) },
				)
				e.Must(err)
				if e.Refusal(takeErr) {
					e.WantFree(ref)
					return
				}
				if want := valueIf(true, ref, v1); !maps.Equal(took.Values(), want) {
					e.Errorf("acquired %v, want %v", took.Values(), want)
				}
				e.WantLock(took)
			})
		}},
		{"of a release and an acquisition, the acquisition is refused or comes later", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				l := e.Acquire(e.A, ref)
				var got driver.Released
				var err, takeErr error
				var took lock
				suite.Race(
					func() { got, err = e.TryRelease(e.A, l) },
					func() { took, takeErr = e.TryAcquire(e.B, ref) },
				)
				e.Must(err)
				if len(got.Missing) != 0 {
					e.Error("the release released nothing")
				}
				if e.Refusal(takeErr) {
					e.WantFree(ref)
					return
				}
				e.WantLock(took)
				if took.Token <= l.Token {
					e.Errorf("token %d follows %d", took.Token, l.Token)
				}
			})
		}},
		{"P2 of a release and a reclaim, the reclaimed lock remains", func(e *env) {
			repeat(e, func(a, b, _ string) {
				l := e.Acquire(e.A, a, b)
				e.Age(l, stale)
				var got driver.Released
				var err, takeErr error
				var took lock
				suite.Race(
					func() { got, err = e.TryRelease(e.A, l) },
					func() { took, takeErr = e.TryAcquire(e.B, a, b) },
				)
				e.Must(err)
				e.Must(takeErr)
				if n := len(got.Missing); n != len(took.Reclaimed) {
					e.Errorf("%d were missing, %d reclaimed", n, len(took.Reclaimed))
				}
				e.WantLock(took)
			})
		}},
		{"of a beat and an update that passes the stale lock, one is refused", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				l := e.Acquire(e.A, ref)
				e.Age(l, stale)
				var err, beatErr error
				var beats []driver.BeatResult
				suite.Race(
					func() { beats, beatErr = e.TryBeat(e.A, l.IDs()...) },
					func() { err = e.Update(e.B, suite.Move(ref, "", v1)) },
				)
				e.Must(beatErr)
				if refused := e.Refusal(err); beats[0] == driver.BeatRenewed && !refused || beats[0] == driver.BeatLost && refused {
					e.Errorf("the beat says %v, the update %v", beats, err)
				}
			})
		}},
		{"P4 of a beat and a reclaim, one is refused", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				l := e.Acquire(e.A, ref)
				e.Age(l, stale)
				var takeErr, beatErr error
				var beats []driver.BeatResult
				var took lock
				suite.Race(
					func() { beats, beatErr = e.TryBeat(e.A, l.IDs()...) },
					func() { took, takeErr = e.TryAcquire(e.B, ref) },
				)
				e.Must(beatErr)
				refused := e.Refusal(takeErr)
				if beats[0] == driver.BeatRenewed && !refused || beats[0] == driver.BeatLost && refused {
					e.Errorf("the beat says %v, the reclaim %v", beats, takeErr)
				}
				if refused {
					e.WantLock(l)
				} else {
					e.WantLock(took)
				}
			})
		}},
		{"of a beat and a purge of the stale lock, one is refused", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				l := e.Acquire(e.A, ref)
				e.Age(l, stale)
				seen := suite.AsListed(e.Row(ref))
				var err, beatErr error
				var beats []driver.BeatResult
				var gone []bool
				suite.Race(
					func() { beats, beatErr = e.TryBeat(e.A, l.IDs()...) },
					func() { gone, err = e.TryPurge(e.B, seen) },
				)
				e.Must(beatErr)
				e.Must(err)
				if beats[0] == driver.BeatRenewed && gone[0] || beats[0] == driver.BeatLost && !gone[0] {
					e.Errorf("the beat says %v, the purge %v", beats, gone)
				}
			})
		}},
		{"of a beat and a release, the release wins and nothing is left", func(e *env) {
			repeat(e, func(a, b, c string) {
				l := e.Acquire(e.A, a, b, c)
				var err, beatErr error
				var got driver.Released
				suite.Race(
					func() { _, beatErr = e.TryBeat(e.A, l.IDs()...) },
					func() { got, err = e.TryRelease(e.A, l) },
				)
				e.Must(beatErr)
				e.Must(err)
				if len(got.Missing) != 0 {
					e.Errorf("the release finds %q missing", got.Missing)
				}
				e.WantFree(a, b, c)
			})
		}},
		{"of a beat and fenced updates, all succeed", func(e *env) {
			repeat(e, func(a, b, c string) {
				l := e.Acquire(e.A, a, b, c)
				var beats []driver.BeatResult
				var err, beatErr error
				suite.Race(
					func() { beats, beatErr = e.TryBeat(e.A, l.IDs()...) },
					func() {
						err = e.SendUpdate(e.A, driver.UpdateRequest{Fence: l.Fence(), Updates: []driver.Update{suite.Move(c, "", v1)}})
					},
				)
				e.Must(beatErr)
				e.Must(err)
				for _, r := range beats {
					if r == driver.BeatLost {
						e.Errorf("the beat says %v", beats)
					}
				}
			})
		}},
		{"P7 of an acquisition and its abandonment, all of its locks are left or none", func(e *env) {
			repeat(e, func(a, b, c string) {
				r := e.AcquireRequest(e.A, a, b, c)
				var took lock
				var err, takeErr error
				suite.Race(
					func() { took, takeErr = e.SendAcquire(e.A, r) },
					func() { err = e.TryAbandon(e.B, r) },
				)
				e.Must(takeErr)
				e.Must(err)
				if !e.Free(a, b, c) {
					e.WantLock(took)
				}
				e.Abandon(e.B, r)
				e.WantFree(a, b, c)
			})
		}},
		{"P7 a request sent twice is one acquisition, even while the first one is in progress", func(e *env) {
			repeat(e, func(a, b, _ string) {
				r := e.AcquireRequest(e.A, a, b)
				var first, again lock
				var err, againErr error
				suite.Race(
					func() { first, err = e.SendAcquire(e.A, r) },
					func() { again, againErr = e.SendAcquire(e.B, r) },
				)
				e.Must(err)
				e.Must(againErr)
				if first.Token != again.Token {
					e.Errorf("tokens %d and %d", first.Token, again.Token)
				}
				e.WantLock(first)
			})
		}},
		{"of an acquisition and a removal of its project, the removal is refused or all it removed is gone", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				r := &env{T: e.T, DB: e.DB, A: e.A, B: e.B, Project: e.Project + ref}
				r.Must(r.Update(r.A, suite.Move(ref, "", v1)))
				var took lock
				var err, takeErr error
				suite.Race(
					func() { took, takeErr = r.TryAcquire(r.A, ref) },
					func() {
						err = suite.Retry(func() error {
							_, err := r.B.Remove(r.Context(), driver.RemoveRequest{Project: r.Project, Limit: 10})
							return err
						})
					},
				)
				r.Must(takeErr)
				if want := valueIf(r.Refusal(err), ref, v1); !maps.Equal(took.Values(), want) {
					r.Errorf("the removal ended with %v, and acquired was %v", err, took.Values())
				}
				r.WantLock(took)
			})
		}},
	}
}

// valueIf returns what an acquisition of a ref finds: v if that was written, or else nothing.
func valueIf(wrote bool, ref string, v driver.Value) map[string]driver.Value {
	if !wrote {
		return nil
	}
	return map[string]driver.Value{ref: v}
}

// acquireAgainstUpdate races an acquisition with an update from old.
func acquireAgainstUpdate(e *env, ref string, old driver.Value) {
	e.Helper()
	if old != driver.Unknown {
		e.Must(e.Update(e.B, suite.Move(ref, "", old)))
	}
	var l lock
	var err, updateErr error
	suite.Race(
		func() { l, err = e.TryAcquire(e.A, ref) },
		func() { updateErr = e.Update(e.B, suite.Move(ref, old, v2)) },
	)
	e.Must(err)
	want := valueIf(old != driver.Unknown, ref, old)
	if !e.Refusal(updateErr) {
		want = valueIf(true, ref, v2)
	}
	if !maps.Equal(l.Values(), want) {
		e.Errorf("the update ended with %v, and acquired was %v", updateErr, l.Values())
	}
	e.WantLock(l)
}

// acquireAgainstAcquire races {a, b} with {b, c}.
func acquireAgainstAcquire(e *env, a, b, c string) {
	e.Helper()
	var ab, bc lock
	var abErr, bcErr error
	suite.Race(
		func() { ab, abErr = e.TryAcquire(e.A, a, b) },
		func() { bc, bcErr = e.TryAcquire(e.B, b, c) },
	)
	if e.Refusal(abErr) == e.Refusal(bcErr) {
		e.Errorf("{a, b} got %v, {b, c} got %v", abErr, bcErr)
		return
	}
	winner, loserErr, loserRef := ab, bcErr, c
	if abErr != nil {
		winner, loserErr, loserRef = bc, abErr, a
	}
	e.WantLock(winner)
	e.WantFree(loserRef)
	if h := e.WantHolders(loserErr, b); h[0].Token != winner.Token || h[0].Owner != winner.Owner {
		e.Errorf("the loser saw %+v, the winner is %+v", h, winner)
	}
}
