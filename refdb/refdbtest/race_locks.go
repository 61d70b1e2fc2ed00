package refdbtest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// race starts functions at about the same moment, and waits for them. On a busy machine the first
// of them often wins, so the order is shuffled.
func race(fs ...func()) {
	rand.Shuffle(len(fs), func(i, j int) { fs[i], fs[j] = fs[j], fs[i] })
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for _, f := range fs {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			f()
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

// repeat runs the rounds of a race, each on refs of its own.
func (e *env) repeat(round func(a, b, c string)) {
	e.Helper()
	e.repeatTimes(e.rounds(), round)
}

// repeatTimes is repeat with a number of rounds of the row's own.
func (e *env) repeatTimes(rounds int, round func(a, b, c string)) {
	e.Helper()
	for n := range max(1, rounds) {
		if e.Failed() {
			e.Fatalf("in round %d", n)
		}
		dir := fmt.Sprintf("refs/heads/%d/", n)
		round(dir+"a", dir+"b", dir+"c")
	}
}

// refusal is true for an ErrLocked and false for nil; any other error fails the row.
func (e *env) refusal(err error) bool {
	e.Helper()
	if err != nil && !errors.Is(err, refdb.ErrLocked) {
		e.Fatal(err)
	}
	return err != nil
}

// loss is true for an ErrLockLost and false for nil; any other error fails the row.
func (e *env) loss(err error) bool {
	e.Helper()
	if err != nil && !errors.Is(err, refdb.ErrLockLost) {
		e.Fatal(err)
	}
	return err != nil
}

func lockRaceRows() []row {
	return []row{
		{"of an acquisition and an update of a ref that exists, the update is refused or its value acquired", func(e *env) {
			e.repeat(func(ref, _, _ string) { e.acquireAgainstUpdate(ref, v1) })
		}},
		{"of an acquisition and an update of a ref that doesn't, the update is refused or its value acquired", func(e *env) {
			e.repeat(func(ref, _, _ string) { e.acquireAgainstUpdate(ref, refdb.Unknown) })
		}},
		{"of a reclaim and an update that passes the stale lock, the update is refused or its value acquired", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				e.age(e.acquire(e.a, ref), stale)
				e.acquireAgainstUpdate(ref, refdb.Unknown)
			})
		}},
		{"P1 of two acquisitions that overlap one wins, the other sees it and leaves nothing", func(e *env) {
			e.repeat(e.acquireAgainstAcquire)
		}},
		{"P5 of two reclaims that overlap one wins, the other sees it and leaves nothing", func(e *env) {
			e.repeat(func(a, b, c string) {
				e.age(e.acquire(e.a, b), stale)
				e.acquireAgainstAcquire(a, b, c)
			})
		}},
		{"P2 of a fenced update and a reclaim, the update is lost or its value acquired", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				l := e.acquire(e.a, ref)
				e.age(l, stale)
				var err, takeErr error
				var took lock
				race(
					func() {
						err = e.sendUpdate(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(ref, "", v1)}})
					},
					func() { took, takeErr = e.tryAcquire(e.b, ref) },
				)
				e.must(takeErr)
				if want := valueIf(!e.loss(err), ref, v1); !maps.Equal(took.values(), want) {
					e.Errorf("the update ended with %v, and the reclaim found %v", err, took.values())
				}
				e.wantLock(took)
			})
		}},
		{"of an update that releases and an acquisition, the acquisition is refused or finds its value", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				l := e.acquire(e.a, ref)
				var err, takeErr error
				var took lock
				race(
					func() {
						err = e.sendUpdate(e.a, refdb.UpdateRequest{Fence: l.releasing(), Updates: []refdb.Update{move(ref, "", v1)}})
					},
					func() { took, takeErr = e.tryAcquire(e.b, ref) },
				)
				e.must(err)
				if e.refusal(takeErr) {
					e.wantFree(ref)
					return
				}
				if want := valueIf(true, ref, v1); !maps.Equal(took.values(), want) {
					e.Errorf("acquired %v, want %v", took.values(), want)
				}
				e.wantLock(took)
			})
		}},
		{"of a release and an acquisition, the acquisition is refused or later", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				l := e.acquire(e.a, ref)
				var got refdb.Released
				var err, takeErr error
				var took lock
				race(
					func() { got, err = e.tryRelease(e.a, l) },
					func() { took, takeErr = e.tryAcquire(e.b, ref) },
				)
				e.must(err)
				if len(got.Missing) != 0 {
					e.Error("the release released nothing")
				}
				if e.refusal(takeErr) {
					e.wantFree(ref)
					return
				}
				e.wantLock(took)
				if took.Token <= l.Token {
					e.Errorf("token %d follows %d", took.Token, l.Token)
				}
			})
		}},
		{"P2 of a release and a reclaim, the reclaimed lock stands", func(e *env) {
			e.repeat(func(a, b, _ string) {
				l := e.acquire(e.a, a, b)
				e.age(l, stale)
				var got refdb.Released
				var err, takeErr error
				var took lock
				race(
					func() { got, err = e.tryRelease(e.a, l) },
					func() { took, takeErr = e.tryAcquire(e.b, a, b) },
				)
				e.must(err)
				e.must(takeErr)
				if n := len(got.Missing); n != len(took.Reclaimed) {
					e.Errorf("%d were missing, %d reclaimed", n, len(took.Reclaimed))
				}
				e.wantLock(took)
			})
		}},
		{"of a beat and an update that passes the stale lock, one is refused", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				l := e.acquire(e.a, ref)
				e.age(l, stale)
				var err, beatErr error
				var beats []refdb.BeatResult
				race(
					func() { beats, beatErr = e.tryBeat(e.a, l.ids()...) },
					func() { err = e.update(e.b, move(ref, "", v1)) },
				)
				e.must(beatErr)
				if refused := e.refusal(err); beats[0] == refdb.Beaten && !refused || beats[0] == refdb.BeatLost && refused {
					e.Errorf("the beat says %v, the update %v", beats, err)
				}
			})
		}},
		{"P4 of a beat and a reclaim, one is refused", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				l := e.acquire(e.a, ref)
				e.age(l, stale)
				var takeErr, beatErr error
				var beats []refdb.BeatResult
				var took lock
				race(
					func() { beats, beatErr = e.tryBeat(e.a, l.ids()...) },
					func() { took, takeErr = e.tryAcquire(e.b, ref) },
				)
				e.must(beatErr)
				refused := e.refusal(takeErr)
				if beats[0] == refdb.Beaten && !refused || beats[0] == refdb.BeatLost && refused {
					e.Errorf("the beat says %v, the reclaim %v", beats, takeErr)
				}
				if refused {
					e.wantLock(l)
				} else {
					e.wantLock(took)
				}
			})
		}},
		{"of a beat and a purge of the stale lock, one is refused", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				l := e.acquire(e.a, ref)
				e.age(l, stale)
				seen := asListed(e.row(ref))
				var err, beatErr error
				var beats []refdb.BeatResult
				var gone []bool
				race(
					func() { beats, beatErr = e.tryBeat(e.a, l.ids()...) },
					func() { gone, err = e.tryPurge(e.b, seen) },
				)
				e.must(beatErr)
				e.must(err)
				if beats[0] == refdb.Beaten && gone[0] || beats[0] == refdb.BeatLost && !gone[0] {
					e.Errorf("the beat says %v, the purge %v", beats, gone)
				}
			})
		}},
		{"of a beat and a release, the release wins and nothing is left", func(e *env) {
			e.repeat(func(a, b, c string) {
				l := e.acquire(e.a, a, b, c)
				var err, beatErr error
				var got refdb.Released
				race(
					func() { _, beatErr = e.tryBeat(e.a, l.ids()...) },
					func() { got, err = e.tryRelease(e.a, l) },
				)
				e.must(beatErr)
				e.must(err)
				if len(got.Missing) != 0 {
					e.Errorf("the release finds %q missing", got.Missing)
				}
				e.wantFree(a, b, c)
			})
		}},
		{"of a beat and fenced updates, none is hindered", func(e *env) {
			e.repeat(func(a, b, c string) {
				l := e.acquire(e.a, a, b, c)
				var beats []refdb.BeatResult
				var err, beatErr error
				race(
					func() { beats, beatErr = e.tryBeat(e.a, l.ids()...) },
					func() {
						err = e.sendUpdate(e.a, refdb.UpdateRequest{Fence: l.fence(), Updates: []refdb.Update{move(c, "", v1)}})
					},
				)
				e.must(beatErr)
				e.must(err)
				for _, r := range beats {
					if r == refdb.BeatLost {
						e.Errorf("the beat says %v", beats)
					}
				}
			})
		}},
		{"P7 of an acquisition and its abandonment, all of its locks are left or none", func(e *env) {
			e.repeat(func(a, b, c string) {
				r := e.acquireRequest(e.a, a, b, c)
				var took lock
				var err, takeErr error
				race(
					func() { took, takeErr = e.sendAcquire(e.a, r) },
					func() { err = e.tryAbandon(e.b, r) },
				)
				e.must(takeErr)
				e.must(err)
				if !e.free(a, b, c) {
					e.wantLock(took)
				}
				e.abandon(e.b, r)
				e.wantFree(a, b, c)
			})
		}},
		{"P7 a request sent twice is one acquisition, even while the first is under way", func(e *env) {
			e.repeat(func(a, b, _ string) {
				r := e.acquireRequest(e.a, a, b)
				var first, again lock
				var err, againErr error
				race(
					func() { first, err = e.sendAcquire(e.a, r) },
					func() { again, againErr = e.sendAcquire(e.b, r) },
				)
				e.must(err)
				e.must(againErr)
				if first.Token != again.Token {
					e.Errorf("tokens %d and %d", first.Token, again.Token)
				}
				e.wantLock(first)
			})
		}},
		{"of an acquisition and a removal of its project, the removal is refused or all it removed is gone", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				r := &env{T: e.T, db: e.db, a: e.a, b: e.b, project: e.project + ref}
				r.must(r.update(r.a, move(ref, "", v1)))
				var took lock
				var err, takeErr error
				race(
					func() { took, takeErr = r.tryAcquire(r.a, ref) },
					func() {
						err = retry(func() error {
							_, err := r.b.Remove(r.Context(), refdb.RemoveRequest{Project: r.project, Limit: 10})
							return err
						})
					},
				)
				r.must(takeErr)
				if want := valueIf(r.refusal(err), ref, v1); !maps.Equal(took.values(), want) {
					r.Errorf("the removal ended with %v, and acquired was %v", err, took.values())
				}
				r.wantLock(took)
			})
		}},
	}
}

// valueIf returns what an acquisition of a ref finds: v if that was written, or else nothing.
func valueIf(wrote bool, ref string, v refdb.Value) map[string]refdb.Value {
	if !wrote {
		return nil
	}
	return map[string]refdb.Value{ref: v}
}

// acquireAgainstUpdate races an acquisition with an update from old.
func (e *env) acquireAgainstUpdate(ref string, old refdb.Value) {
	e.Helper()
	if old != refdb.Unknown {
		e.must(e.update(e.b, move(ref, "", old)))
	}
	var l lock
	var err, updateErr error
	race(
		func() { l, err = e.tryAcquire(e.a, ref) },
		func() { updateErr = e.update(e.b, move(ref, old, v2)) },
	)
	e.must(err)
	want := valueIf(old != refdb.Unknown, ref, old)
	if !e.refusal(updateErr) {
		want = valueIf(true, ref, v2)
	}
	if !maps.Equal(l.values(), want) {
		e.Errorf("the update ended with %v, and acquired was %v", updateErr, l.values())
	}
	e.wantLock(l)
}

// acquireAgainstAcquire races {a, b} with {b, c}.
func (e *env) acquireAgainstAcquire(a, b, c string) {
	e.Helper()
	var ab, bc lock
	var abErr, bcErr error
	race(
		func() { ab, abErr = e.tryAcquire(e.a, a, b) },
		func() { bc, bcErr = e.tryAcquire(e.b, b, c) },
	)
	if e.refusal(abErr) == e.refusal(bcErr) {
		e.Errorf("{a, b} got %v, {b, c} got %v", abErr, bcErr)
		return
	}
	winner, loserErr, loserRef := ab, bcErr, c
	if abErr != nil {
		winner, loserErr, loserRef = bc, abErr, a
	}
	e.wantLock(winner)
	e.wantFree(loserRef)
	if h := e.wantHolders(loserErr, b); h[0].Token != winner.Token || h[0].Owner != winner.Owner {
		e.Errorf("the loser saw %+v, the winner is %+v", h, winner)
	}
}
