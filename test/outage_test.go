package test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A flaky driver has a network that can be cut. Beats then hang until their
// deadline, as when packets are dropped, or fail at once.
type flaky struct {
	refdb.Driver
	hang, fail atomic.Bool
}

func (f *flaky) Beat(ctx context.Context, locks []refdb.LockID) ([]refdb.BeatResult, error) {
	switch {
	case f.hang.Load():
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", ctx.Err(), refdb.ErrOutcomeUnknown)
	case f.fail.Load():
		return nil, fmt.Errorf("connection refused: %w", refdb.ErrUnavailable)
	}
	return f.Driver.Beat(ctx, locks)
}

func TestP4AHolderThatCannotReachTheDatabaseKnowsBeforeAnybodyTakesOver(t *testing.T) {
	for name, cut := range map[string]func(*flaky){
		"requests hang": func(f *flaky) { f.hang.Store(true) },
		"requests fail": func(f *flaky) { f.fail.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, d *dbtest.Database) {
				var network *flaky
				cutOff := site(t, d, func(d refdb.Driver) refdb.Driver {
					network = &flaky{Driver: d}
					return network
				})
				lock, _ := mustLock(t, cutOff)
				ctx := lock.Context()
				cut(network)
				was := time.Now()

				taken := make(chan *refdb.Lock, 1)
				contender := site(t, d, nil)
				go func() {
					lock, err := contender.Lock(t.Context(), project, mainRef)
					if err != nil {
						t.Error(err)
					}
					taken <- lock
				}()
				select {
				case <-ctx.Done():
				case <-taken:
					t.Fatal("somebody took the lock over before its holder knew")
				}
				knew := time.Since(was)
				if err := context.Cause(ctx); !errors.Is(err, refdb.ErrLockLost) || !errors.Is(lock.Err(), refdb.ErrLockLost) {
					t.Errorf("cause %v, Err %v", err, lock.Err())
				}
				// The last beat that succeeded was sent at most an interval before
				// the cut, and the lease lasts four fifths of stale-after.
				if soonest := staleAfter*4/5 - beatEvery - 100*time.Millisecond; knew < soonest {
					t.Errorf("the lock was given up after %s, no need to before %s", knew, soonest)
				}
				if next := <-taken; next == nil || next.Token() <= lock.Token() {
					t.Errorf("taken over: %v", next)
				}
			})
		})
	}
}

func TestP7ALockSurvivesBeatsThatFailForAWhile(t *testing.T) {
	onEach(t, func(t *testing.T, d *dbtest.Database) {
		var network *flaky
		db := site(t, d, func(d refdb.Driver) refdb.Driver {
			network = &flaky{Driver: d}
			return network
		})
		lock, _ := mustLock(t, db)
		network.fail.Store(true)
		// Half of the lease passes without a beat. Then beats get through again.
		wait(t, lock, staleAfter*2/5)
		network.fail.Store(false)
		wait(t, lock, staleAfter*3/2)
		if err := lock.Update(t.Context(), []refdb.Update{{Ref: mainRef, New: after}}); err != nil {
			t.Error(err)
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// wait fails the test if the lock is lost within d.
func wait(t *testing.T, lock *refdb.Lock, d time.Duration) {
	t.Helper()
	select {
	case <-lock.Done():
		t.Fatal(lock.Err())
	case <-time.After(d):
	}
}
