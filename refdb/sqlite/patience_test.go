package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func TestAllRequestsThatWaitForABlockedWriterFailTogether(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	synctest.Test(t, func(t *testing.T) {
		d := openWithLimits(t, "sqlite:"+path)
		leave := occupy(t, openWithLimits(t, "sqlite:"+path))
		defer leave()
		start := time.Now()
		var callers sync.WaitGroup
		for i := range 20 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				err := put(t.Context(), d, fmt.Sprintf("refs/heads/%d", i), "", v1)
				if !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("caller %d: %v", i, err)
				}
				// 5 s for the first request, and the time until its last attempt.
				if took := time.Since(start); took > 5*time.Second+10*time.Millisecond {
					t.Errorf("caller %d failed at %v", i, took)
				}
			})
		}
		callers.Wait()
	})
}

// The library retries after ErrUnavailable.
func TestLaterRequestsDoNotWaitAgainForABlockedWriter(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	synctest.Test(t, func(t *testing.T) {
		d := openWithLimits(t, "sqlite:"+path)
		leave := occupy(t, openWithLimits(t, "sqlite:"+path))
		start := time.Now()
		for range 4 {
			if err := put(t.Context(), d, refA, "", v1); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("four tries took %v", took)
		}
		leave()
		update(t, d, refA, "", v1)

		// The full patience applies again.
		leave = occupy(t, openWithLimits(t, "sqlite:"+path))
		defer leave()
		start = time.Now()
		if err := put(t.Context(), d, refA, v1, v2); !errors.Is(err, driver.ErrUnavailable) || time.Since(start) < 5*time.Second {
			t.Errorf("gave up after %v: %v", time.Since(start), err)
		}
	})
}

// A caller that gives up leaves its place in the queue to the next one, but not the time that it
// waited.
func TestPatienceCountsFromARequestsArrival(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	synctest.Test(t, func(t *testing.T) {
		d := openWithLimits(t, "sqlite:"+path)
		leave := occupy(t, openWithLimits(t, "sqlite:"+path))
		defer leave()
		start := time.Now()
		var callers sync.WaitGroup
		for i := range 3 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				ctx := t.Context()
				if i < 2 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, 4*time.Second)
					defer cancel()
				}
				_ = put(ctx, d, refA, "", v1)
			})
		}
		callers.Wait()
		if took := time.Since(start); took > 5*time.Second+50*time.Millisecond {
			t.Errorf("the last gave up after %v", took)
		}
	})
}
