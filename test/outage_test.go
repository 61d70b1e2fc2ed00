package test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A flaky driver has a network that can be cut. Beats then hang until their
// deadline, as when packets are dropped, or fail at once.
type flaky struct {
	refdb.Driver

	mu     sync.Mutex
	cut    func(context.Context) error // what becomes of beats; nil: they arrive
	failed int
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", ctx.Err(), refdb.ErrOutcomeUnknown)
}

func fail(context.Context) error { return fmt.Errorf("connection refused: %w", refdb.ErrUnavailable) }

func (f *flaky) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	f.mu.Lock()
	cut := f.cut
	f.mu.Unlock()
	if cut != nil {
		err := cut(ctx)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.failed++
		return nil, err
	}
	return f.Driver.Beat(ctx, locks)
}

// set decides what becomes of the beats that are sent from now on.
func (f *flaky) set(cut func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut, f.failed = cut, 0
}

// failures returns how many beats have failed since set.
func (f *flaky) failures() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

func TestP4AHolderThatCannotReachTheDatabaseKnowsBeforeAnybodyTakesOver(t *testing.T) {
	for name, cut := range map[string]func(context.Context) error{"requests hang": hang, "requests fail": fail} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, d *dbtest.Database) {
				network := &flaky{Driver: d.Open(t)}
				cutOff := siteOn(t, network, refdb.Options{Site: "eu", StaleAfter: shortStaleAfter, Heartbeat: shortBeatEvery})
				began, gaveUp := time.Now(), make(chan time.Time, 1)
				lock := mustLock(t, cutOff)
				ctx := lock.Context()
				context.AfterFunc(ctx, func() { gaveUp <- time.Now() })
				network.set(cut)

				next := mustLock(t, site(t, d))
				if !errors.Is(lock.Err(), refdb.ErrLockLost) {
					t.Fatalf("somebody took the lock over before its holder knew: %v", lock.Err())
				}
				// The lease lasts four fifths of stale-after.
				if stood := (<-gaveUp).Sub(began); stood < shortStaleAfter*4/5 {
					t.Errorf("the lock was given up after %s", stood)
				}
				if err := context.Cause(ctx); !errors.Is(err, refdb.ErrLockLost) {
					t.Errorf("cause %v", err)
				}
				if next.Token() <= lock.Token() {
					t.Errorf("token %d follows %d", next.Token(), lock.Token())
				}
			})
		})
	}
}

func TestP7ALockSurvivesBeatsThatFailForAWhile(t *testing.T) {
	onEach(t, func(t *testing.T, d *dbtest.Database) {
		network := &flaky{Driver: d.Open(t)}
		db := siteOn(t, network, refdb.Options{Site: "eu", StaleAfter: staleAfter, Heartbeat: beatEvery})
		lock := mustLock(t, db)
		network.set(fail)
		for network.failures() < 5 {
			time.Sleep(beatEvery)
		}
		// Half of the lease has passed without a beat. Then beats get through again.
		const old = staleAfter / 2
		d.Age(t, project, mainRef, old)
		network.set(nil)
		for row(t, d).Age >= old {
			time.Sleep(beatEvery)
		}
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
		if err := lock.Update(t.Context(), []refdb.Update{{Ref: mainRef, New: after}}); err != nil {
			t.Error(err)
		}
		if err := lock.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
