package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// RetryTries is the maximum number of attempts of a request.
	RetryTries = 4
	// Cleaning up after a caller is retried after pauses that grow from
	// cleanupPauseMin to cleanupPauseMax.
	cleanupPauseMin = 100 * time.Millisecond
	cleanupPauseMax = 2 * time.Second
	// GracePeriod is how long work may continue after the caller's context has ended, to determine
	// the outcome of a request or to clean up after it.
	GracePeriod = 3 * time.Second
)

// Retry repeats op while it fails with ErrUnavailable, which means that it was not carried out. It
// makes a few attempts within a fraction of a second: enough for a dropped connection or a
// deadlock, but not for an outage. A driver that is not open yet counts as a failure of op.
//
// If ctx ends in between, the error wraps ctx's error and op's last one. It never wraps ctx's
// cause, which may be the loss of a lock that op has nothing to do with.
//
// While the server is not admitted, Retry compares it: see [Engine.Compare].
func Retry[T any](ctx context.Context, e *Engine, op func(driver.Driver) (T, error)) (T, error) {
	return RetryPlain(ctx, e, func(d driver.Driver) (T, error) {
		v, err := op(d)
		if !errors.Is(err, driver.ErrNotAdmitted) {
			return v, err
		}
		a, compareErr := e.Compare(ctx)
		switch {
		case compareErr != nil:
			return v, errors.Join(err, compareErr)
		case a.Admitted:
			return op(d)
		}
		return v, a.Err()
	})
}

// RetryPlain is Retry for an op that does not need an admitted server.
func RetryPlain[T any](ctx context.Context, e *Engine, op func(driver.Driver) (T, error)) (v T, err error) {
	again := false
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		var d driver.Driver
		if e.Lasting.Err() != nil {
			err = driver.ErrClosed
		} else if d, err = e.driver.get(); err == nil {
			v, err = op(d)
		}
		again = errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrOutcomeUnknown)
		if err != nil && (!again || ctx.Err() != nil) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(NewBackOff(20*time.Millisecond, 500*time.Millisecond)), backoff.WithMaxTries(RetryTries))
	if again && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return v, err
}

// Repeatable returns the error of a request that may be repeated whatever its outcome: an unknown
// outcome counts as not carried out.
func Repeatable(err error) error {
	if errors.Is(err, driver.ErrOutcomeUnknown) {
		return fmt.Errorf("%w: %v", driver.ErrUnavailable, err)
	}
	return err
}

// NewBackOff returns pauses that grow by half from first to last, each jittered by half.
func NewBackOff(first, last time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = first, last
	b.RandomizationFactor, b.Multiplier = 0.5, 1.5
	b.Reset()
	return b
}

// withGrace returns ctx or, if ctx has ended, a context with its values that lives
// for GracePeriod.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), GracePeriod)
}

// WithReleaseGrace is withGrace, except that if ctx ends later because a lock is released, as the
// lock's own context does, the returned context lives for another GracePeriod.
func WithReleaseGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return withGrace(ctx)
	}
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), driver.ErrReleased) {
			Sleep(lasting, GracePeriod)
		}
		cancel()
	})
	return lasting, func() {
		stop()
		cancel()
	}
}

// Extend returns a context with ctx's values that lives for GracePeriod longer than
// ctx, but not longer than the Engine's background work.
func (e *Engine) Extend(ctx context.Context) (context.Context, context.CancelFunc) {
	lasting, cancel := e.detach(ctx)
	stop := context.AfterFunc(ctx, func() {
		Sleep(lasting, GracePeriod)
		cancel()
	})
	return lasting, func() {
		stop()
		cancel()
	}
}

// detach returns a context with ctx's values that lives as long as the Engine's background work.
func (e *Engine) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(e.Lasting, cancel)
	return detached, func() {
		stop()
		cancel()
	}
}

// AttemptContext is detach for one of several attempts. Each attempt may take a third of
// stale-after, so that one hanging attempt does not use up the time of all.
func (e *Engine) AttemptContext(ctx context.Context) (context.Context, context.CancelFunc) {
	detached, cancel := e.detach(ctx)
	limited, stop := context.WithTimeout(detached, max(GracePeriod, e.StaleAfter/3))
	return limited, func() {
		stop()
		cancel()
	}
}

// RetryCleanup calls try until the caller's rows are deleted, can't be deleted, or
// must be stale. The first attempt ended with err.
func (e *Engine) RetryCleanup(err error, try func() error) error {
	pause := NewBackOff(cleanupPauseMin, cleanupPauseMax)
	for start := time.Now(); driver.ClassOf(err) == driver.Retryable && time.Since(start) < e.StaleAfter; err = try() {
		Sleep(e.Lasting, pause.NextBackOff())
	}
	return err
}

// Sleep returns after d, or when ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
