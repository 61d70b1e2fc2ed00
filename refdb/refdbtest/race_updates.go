package refdbtest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func updateRaceRows() []row {
	return []row{
		{"P6 of two updates from the same value one wins, and the other is told its value", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				e.must(e.update(e.a, move(ref, "", v1)))
				e.updateAgainstUpdate(
					[]refdb.Update{move(ref, v1, v2)},
					[]refdb.Update{move(ref, v1, v3)},
					refdb.Mismatch{Ref: ref, Want: v1, Have: v3},
					refdb.Mismatch{Ref: ref, Want: v1, Have: v2})
			})
		}},
		{"P6 of two updates that create a ref one wins", func(e *env) {
			e.repeat(func(ref, _, _ string) {
				e.updateAgainstUpdate(
					[]refdb.Update{move(ref, "", v2)},
					[]refdb.Update{move(ref, "", v3)},
					refdb.Mismatch{Ref: ref, Have: v3},
					refdb.Mismatch{Ref: ref, Have: v2})
			})
		}},
		{"P6 of two updates that overlap one wins, and the other writes nothing", func(e *env) {
			e.repeat(func(a, b, c string) {
				e.updateAgainstUpdate(
					[]refdb.Update{move(a, "", v2), move(b, "", v2)},
					[]refdb.Update{move(b, "", v3), move(c, "", v3)},
					refdb.Mismatch{Ref: b, Have: v3},
					refdb.Mismatch{Ref: b, Have: v2})
				if got := e.get(a, b, c); len(got) != 2 || got[0].Value != got[1].Value {
					e.Errorf("the refs hold %v", got)
				}
			})
		}},
		{"of two updates of different refs both win", func(e *env) {
			e.repeat(func(a, b, _ string) {
				var aErr, bErr error
				race(
					func() { aErr = e.update(e.a, move(a, "", v1)) },
					func() { bErr = e.update(e.b, move(b, "", v1)) },
				)
				e.must(aErr)
				e.must(bErr)
			})
		}},
		{"P6 nobody sees half of an update", func(e *env) {
			e.must(e.update(e.a, move(refA, "", "0"), move(refB, "", "0"), move(refC, "", "0")))
			stop, failed := make(chan struct{}), make(chan error, 1)
			var writing sync.WaitGroup
			writing.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					from, to := refdb.Value(fmt.Sprint(n)), refdb.Value(fmt.Sprint(n+1))
					// Advisory, so that the acquisitions below don't refuse it.
					err := e.sendUpdate(e.a, refdb.UpdateRequest{Locks: refdb.AdvisoryLocks, Updates: []refdb.Update{move(refA, from, to), move(refB, from, to), move(refC, from, to)}})
					if err != nil {
						failed <- err
						return
					}
				}
			})
			defer writing.Wait()
			defer close(stop)
			// A round counts only if there was an update since the last one, so that both sides run.
			last := refdb.Value("0")
			for changes := 0; changes < e.rounds(); {
				select {
				case err := <-failed:
					e.Fatal(err)
				default:
				}
				refs := e.get(refA, refB, refC)
				page, err := e.b.List(e.Context(), refdb.RefQuery{Project: e.project, Limit: 10})
				e.must(err)
				l := e.acquire(e.b, refA, refB, refC)
				e.release(e.b, l)
				for _, seen := range [][]refdb.Ref{refs, page.Refs, l.Acquired.Refs} {
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
		{"P6 every update that succeeded counts, however many there are", func(e *env) {
			// Each update increments two of three counters: a lost update would be missing in the end.
			refs := []string{refA, refB, refC}
			processes := []process{e.a, e.b, e.spawn("site-c/3"), e.spawn("site-d/4")}
			var won [3]atomic.Int64
			errs := make([]error, len(processes))
			var working sync.WaitGroup
			for i, p := range processes {
				working.Go(func() {
					for n := range max(10, e.rounds()/len(processes)) {
						x, y := (n+i)%3, (n+i+1)%3
						if x > y {
							x, y = y, x
						}
						switch err := e.increment(p, refs[x], refs[y]); {
						case err == nil:
							won[x].Add(1)
							won[y].Add(1)
						case !errors.Is(err, refdb.ErrMismatch):
							errs[i] = err
							return
						}
					}
				})
			}
			working.Wait()
			e.must(errors.Join(errs...))
			got := valuesOf(e.get(refs...))
			for i, ref := range refs {
				if want := refdb.Value(fmt.Sprint(won[i].Load())); got[ref] != want {
					e.Errorf("%s counts %q, %s updates of it succeeded", ref, got[ref], want)
				}
			}
		}},
	}
}

// updateAgainstUpdate races two updates: one must succeed, the other fail with its mismatch.
func (e *env) updateAgainstUpdate(x, y []refdb.Update, xLost, yLost refdb.Mismatch) {
	e.Helper()
	var xErr, yErr error
	race(
		func() { xErr = e.update(e.a, x...) },
		func() { yErr = e.update(e.b, y...) },
	)
	switch {
	case xErr == nil:
		e.wantMismatches(yErr, yLost)
	case yErr == nil:
		e.wantMismatches(xErr, xLost)
	default:
		e.Errorf("both failed: %v and %v", xErr, yErr)
	}
}

// increment adds 1 to counters in one update.
func (e *env) increment(p process, refs ...string) error {
	rows, err := p.Get(e.Context(), e.project, refs)
	if err != nil {
		return err
	}
	values := valuesOf(rows)
	var updates []refdb.Update
	for _, ref := range refs {
		n := 0
		fmt.Sscan(string(values[ref]), &n)
		updates = append(updates, move(ref, values[ref], refdb.Value(fmt.Sprint(n+1))))
	}
	return e.update(p, updates...)
}

func contenderRows() []row {
	return []row{
		{"P5 of 32 contenders for a stale lock exactly one wins", func(e *env) {
			const contenders = 32
			processes := []process{e.a, e.b}
			holder := e.acquire(e.a, refA, refB)
			for round := range max(1, e.rounds()/2) {
				e.age(holder, stale)
				locks := make([]lock, contenders)
				errs := make([]error, contenders)
				var all []func()
				for i := range contenders {
					p := process{processes[i%len(processes)].Driver, fmt.Sprintf("contender/%d", i)}
					all = append(all, func() { locks[i], errs[i] = e.tryAcquire(p, refA, refB) })
				}
				race(all...)

				var winners []lock
				for i, err := range errs {
					if !e.refusal(err) {
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
				e.wantLock(winner)
				for _, err := range errs {
					if err == nil {
						continue
					}
					for _, h := range e.wantHolders(err, refA, refB) {
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
					l, err := e.acquireEventually(p, refA)
					if err != nil {
						return err
					}
					if _, err := e.tryRelease(p, l); err != nil {
						return err
					}
				}
				return nil
			}
			race(func() { errs[0] = take(e.a) }, func() { errs[1] = take(e.b) })
			e.must(errors.Join(errs...))
			e.wantFree(refA)
		}},
	}
}

// acquireEventually tries to take locks until it gets them, or patience is over.
func (e *env) acquireEventually(p process, refs ...string) (lock, error) {
	for deadline := time.Now().Add(patience); ; {
		l, err := e.tryAcquire(p, refs...)
		if !errors.Is(err, refdb.ErrLocked) || time.Now().After(deadline) {
			return l, err
		}
	}
}

// A criticalSection checks a ref's holders: there is one at a time, each with a larger token than
// the one before.
type criticalSection struct {
	inside atomic.Bool
	mu     sync.Mutex
	last   refdb.Token
}

func (s *criticalSection) enter(t refdb.Token) error {
	if !s.inside.CompareAndSwap(false, true) {
		return errors.New("two holders at once")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t <= s.last {
		return fmt.Errorf("token %d follows %d", t, s.last)
	}
	s.last = t
	return nil
}

func mutualExclusion(e *env) {
	sets := [][]string{{refA, refB}, {refB, refC}, {refA, refC}, {refB}, {refA, refB, refC}}
	sections := map[string]*criticalSection{refA: {}, refB: {}, refC: {}}
	work := func(p process, n int) error {
		set := sets[n%len(sets)]
		l, err := e.acquireEventually(p, set...)
		if err != nil {
			return err
		}
		for _, ref := range set {
			if err := sections[ref].enter(l.Token); err != nil {
				return fmt.Errorf("%s: %w", ref, err)
			}
		}
		var updates []refdb.Update
		values := l.values()
		for _, ref := range set {
			updates = append(updates, move(ref, values[ref], refdb.Value(fmt.Sprint(l.Token))))
			sections[ref].inside.Store(false)
		}
		if n%3 == 0 { // this holder pauses until its lock is stale: another may take it, and only one of them writes
			e.age(l, stale)
		}
		err = e.sendUpdate(p, refdb.UpdateRequest{Fence: l.releasing(), Updates: updates})
		if n%3 == 0 && errors.Is(err, refdb.ErrLockLost) {
			err = nil
		}
		return err
	}
	processes := []process{e.a, e.b, e.spawn("site-c/3"), e.spawn("site-d/4")}
	errs := make([]error, len(processes))
	var working sync.WaitGroup
	for i, p := range processes {
		working.Go(func() {
			for n := range max(10, e.rounds()/len(processes)) {
				if errs[i] = work(p, n+i); errs[i] != nil {
					return
				}
			}
		})
	}
	working.Wait()
	e.must(errors.Join(errs...))
}
