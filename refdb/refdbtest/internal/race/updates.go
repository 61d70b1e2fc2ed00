package race

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

func updateRows() []row {
	return []row{
		{"P6 of two updates from the same value one wins, and the other's error has the new value", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				e.Must(e.Update(e.A, suite.Move(ref, "", v1)))
				updateAgainstUpdate(e,
					[]driver.Update{suite.Move(ref, v1, v2)},
					[]driver.Update{suite.Move(ref, v1, v3)},
					driver.Mismatch{Ref: ref, Want: v1, Have: v3},
					driver.Mismatch{Ref: ref, Want: v1, Have: v2})
			})
		}},
		{"P6 of two updates that create a ref one wins", func(e *env) {
			repeat(e, func(ref, _, _ string) {
				updateAgainstUpdate(e,
					[]driver.Update{suite.Move(ref, "", v2)},
					[]driver.Update{suite.Move(ref, "", v3)},
					driver.Mismatch{Ref: ref, Have: v3},
					driver.Mismatch{Ref: ref, Have: v2})
			})
		}},
		{"P6 of two overlapping updates one wins, and the other writes nothing", func(e *env) {
			repeat(e, func(a, b, c string) {
				updateAgainstUpdate(e,
					[]driver.Update{suite.Move(a, "", v2), suite.Move(b, "", v2)},
					[]driver.Update{suite.Move(b, "", v3), suite.Move(c, "", v3)},
					driver.Mismatch{Ref: b, Have: v3},
					driver.Mismatch{Ref: b, Have: v2})
				if got := e.Get(a, b, c); len(got) != 2 || got[0].Value != got[1].Value {
					e.Errorf("the refs hold %v", got)
				}
			})
		}},
		{"of two updates of different refs both win", func(e *env) {
			repeat(e, func(a, b, _ string) {
				var aErr, bErr error
				suite.Race(
					func() { aErr = e.Update(e.A, suite.Move(a, "", v1)) },
					func() { bErr = e.Update(e.B, suite.Move(b, "", v1)) },
				)
				e.Must(aErr)
				e.Must(bErr)
			})
		}},
		{"P6 no reader sees half of an update", func(e *env) {
			e.Must(e.Update(e.A, suite.Move(refA, "", "0"), suite.Move(refB, "", "0"), suite.Move(refC, "", "0")))
			stop, failed := make(chan struct{}), make(chan error, 1)
			var writing sync.WaitGroup
			writing.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					from, to := driver.Value(fmt.Sprint(n)), driver.Value(fmt.Sprint(n+1))
					// Advisory, so that the acquisitions below don't refuse it.
					err := e.SendUpdate(e.A, driver.UpdateRequest{Locks: driver.AdvisoryLocks, Updates: []driver.Update{suite.Move(refA, from, to), suite.Move(refB, from, to), suite.Move(refC, from, to)}})
					if err != nil {
						failed <- err
						return
					}
				}
			})
			defer writing.Wait()
			defer close(stop)
			// A round counts only if there was an update since the last one, so that both sides
			// run.
			last := driver.Value("0")
			for changes := 0; changes < e.Rounds(); {
				select {
				case err := <-failed:
					e.Fatal(err)
				default:
				}
				refs := e.Get(refA, refB, refC)
				page, err := e.B.List(e.Context(), driver.RefQuery{Project: e.Project, Limit: 10})
				e.Must(err)
				l := e.Acquire(e.B, refA, refB, refC)
				e.Release(e.B, l)
				for _, seen := range [][]driver.Ref{refs, page.Refs, l.Acquired.Refs} {
					if len(seen) != 3 || seen[0].Value != seen[1].Value || seen[1].Value != seen[2].Value {
						e.Fatalf("saw %v", seen)
					}
				}
				if refs[0].Value != last {
					last = refs[0].Value
					changes++
				}
			}
		}},
		{"P6 no successful update is lost, however many there are", func(e *env) {
			// Each update increments two of three counters: a lost update would be missing in the
			// end.
			refs := []string{refA, refB, refC}
			processes := []process{e.A, e.B, e.Spawn("site-c/3"), e.Spawn("site-d/4")}
			var won [3]atomic.Int64
			errs := make([]error, len(processes))
			var working sync.WaitGroup
			for i, p := range processes {
				working.Go(func() {
					for n := range max(10, e.Rounds()/len(processes)) {
						x, y := (n+i)%3, (n+i+1)%3
						if x > y {
							x, y = y, x
						}
						switch err := increment(e, p, refs[x], refs[y]); {
						case err == nil:
							won[x].Add(1)
							won[y].Add(1)
						case !errors.Is(err, driver.ErrMismatch):
							errs[i] = err
							return
						}
					}
				})
			}
			working.Wait()
			e.Must(errors.Join(errs...))
			got := suite.ValuesOf(e.Get(refs...))
			for i, ref := range refs {
				if want := driver.Value(fmt.Sprint(won[i].Load())); got[ref] != want {
					e.Errorf("%s counts %q, %s updates of it succeeded", ref, got[ref], want)
				}
			}
		}},
	}
}

// updateAgainstUpdate races two updates: one must succeed, the other fail with its mismatch.
func updateAgainstUpdate(e *env, x, y []driver.Update, xLost, yLost driver.Mismatch) {
	e.Helper()
	var xErr, yErr error
	suite.Race(
		func() { xErr = e.Update(e.A, x...) },
		func() { yErr = e.Update(e.B, y...) },
	)
	switch {
	case xErr == nil:
		e.WantMismatches(yErr, yLost)
	case yErr == nil:
		e.WantMismatches(xErr, xLost)
	default:
		e.Errorf("both failed: %v and %v", xErr, yErr)
	}
}

// increment adds 1 to counters in one update.
func increment(e *env, p process, refs ...string) error {
	rows, err := p.Get(e.Context(), e.Project, refs)
	if err != nil {
		return err
	}
	values := suite.ValuesOf(rows)
	var updates []driver.Update
	for _, ref := range refs {
		n := 0
		fmt.Sscan(string(values[ref]), &n)
		updates = append(updates, suite.Move(ref, values[ref], driver.Value(fmt.Sprint(n+1))))
	}
	return e.Update(p, updates...)
}

func contenderRows() []row {
	return []row{
		{"P5 of 32 contenders for a stale lock exactly one wins", func(e *env) {
			const contenders = 32
			processes := []process{e.A, e.B}
			holder := e.Acquire(e.A, refA, refB)
			for round := range max(1, e.Rounds()/2) {
				e.Age(holder, stale)
				locks := make([]lock, contenders)
				errs := make([]error, contenders)
				var all []func()
				for i := range contenders {
					p := process{Driver: processes[i%len(processes)].Driver, Owner: fmt.Sprintf("contender/%d", i)}
					all = append(all, func() { locks[i], errs[i] = e.TryAcquire(p, refA, refB) })
				}
				suite.Race(all...)

				var winners []lock
				for i, err := range errs {
					if !e.Refusal(err) {
						winners = append(winners, locks[i])
					}
				}
				if len(winners) != 1 {
					e.Fatalf("round %d: %d contenders won", round, len(winners))
				}
				winner := winners[0]
				if winner.Token <= holder.Token || len(winner.Reclaimed) != 2 || winner.Reclaimed[0].Token != holder.Token {
					e.Fatalf("round %d: won %+v after token %d", round, winner.Acquired, holder.Token)
				}
				e.WantLock(winner)
				for _, err := range errs {
					if err == nil {
						continue
					}
					for _, h := range e.WantHolders(err, refA, refB) {
						if h.Token != winner.Token || h.Owner != winner.Owner {
							e.Errorf("round %d: a loser saw %+v, the winner is %+v", round, h, winner)
						}
					}
				}
				holder = winner
			}
		}},
		{"P1 the holders of a ref never overlap, and each has a larger token than the last", mutualExclusion},
		{"two processes that take a lock ten times each both get it ten times", func(e *env) {
			errs := make([]error, 2)
			take := func(p process) error {
				for range 10 {
					l, err := e.AcquireEventually(p, refA)
					if err != nil {
						return err
					}
					if _, err := e.TryRelease(p, l); err != nil {
						return err
					}
				}
				return nil
			}
			suite.Race(func() { errs[0] = take(e.A) }, func() { errs[1] = take(e.B) })
			e.Must(errors.Join(errs...))
			e.WantFree(refA)
		}},
	}
}

func mutualExclusion(e *env) {
	sets := [][]string{{refA, refB}, {refB, refC}, {refA, refC}, {refB}, {refA, refB, refC}}
	sections := map[string]*suite.CriticalSection{refA: {}, refB: {}, refC: {}}
	work := func(p process, n int) error {
		set := sets[n%len(sets)]
		l, err := e.AcquireEventually(p, set...)
		if err != nil {
			return err
		}
		for _, ref := range set {
			if err := sections[ref].Enter(l.Token); err != nil {
				return fmt.Errorf("%s: %w", ref, err)
			}
		}
		var updates []driver.Update
		values := l.Values()
		for _, ref := range set {
			updates = append(updates, suite.Move(ref, values[ref], driver.Value(fmt.Sprint(l.Token))))
			sections[ref].Leave()
		}
		if n%3 == 0 { // this holder pauses until its lock is stale: another may take it, and only one of them writes
			e.Age(l, stale)
		}
		err = e.SendUpdate(p, driver.UpdateRequest{Fence: l.Releasing(), Updates: updates})
		if n%3 == 0 && errors.Is(err, driver.ErrLockLost) {
			err = nil
		}
		return err
	}
	processes := []process{e.A, e.B, e.Spawn("site-c/3"), e.Spawn("site-d/4")}
	errs := make([]error, len(processes))
	var working sync.WaitGroup
	for i, p := range processes {
		working.Go(func() {
			for n := range max(10, e.Rounds()/len(processes)) {
				if errs[i] = work(p, n+i); errs[i] != nil {
					return
				}
			}
		})
	}
	working.Wait()
	e.Must(errors.Join(errs...))
}
