package refdbtest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func contenderRows() []row {
	return []row{
		{"P5 of 32 contenders for a stale lock exactly one wins", func(e *env) {
			const contenders, rounds = 32, 100
			processes := []process{e.a, e.b}
			holder := e.acquire(e.a, refA, refB)
			for round := range rounds {
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
		{"P1 the holders of a ref never overlap, and each has a larger token than the last", exclusion},
		{"two processes that take a lock ten times each both get it ten times", func(e *env) {
			errs := make([]error, 2)
			take := func(p process) error {
				for range 10 {
					l, err := e.insist(p, refA)
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

// insist tries to take locks until it gets them.
func (e *env) insist(p process, refs ...string) (lock, error) {
	for deadline := time.Now().Add(patience); ; {
		l, err := e.tryAcquire(p, refs...)
		if !errors.Is(err, refdb.ErrLocked) || time.Now().After(deadline) {
			return l, err
		}
	}
}

// A section is what is known of a ref's holders: one at a time, each with a
// larger token than the one before.
type section struct {
	inside atomic.Bool
	mu     sync.Mutex
	last   refdb.Token
}

func (s *section) enter(t refdb.Token) error {
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

func exclusion(e *env) {
	sets := [][]string{{refA, refB}, {refB, refC}, {refA, refC}, {refB}, {refA, refB, refC}}
	sections := map[string]*section{refA: {}, refB: {}, refC: {}}
	work := func(p process, n int) error {
		set := sets[n%len(sets)]
		l, err := e.insist(p, set...)
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
		if n%3 == 0 { // a holder that sleeps now: the next may enter, and only one of them writes
			e.age(l, stale)
		}
		err = e.transact(p, refdb.UpdateRequest{Fence: l.releasing(), Updates: updates})
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
