package refdb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	retryTries = 4
	// Cleaning up after a caller is retried after pauses that grow from
	// cleanupPauseMin to cleanupPauseMax.
	cleanupPauseMin = 100 * time.Millisecond
	cleanupPauseMax = 2 * time.Second
	// gracePeriod is how long work may go on after the caller's context ended, to
	// find out what became of a request or to clean up after it.
	gracePeriod = 3 * time.Second
)

// retry repeats op while it fails with ErrUnavailable, which says that it was
// not carried out, a few times within a fraction of a second: enough for a
// dropped connection or a deadlock, not for an outage. A driver that is not open yet counts as
// a failure of op.
//
// If ctx ends in between, the error wraps ctx's error and op's last one. It never
// wraps ctx's cause, which may be the loss of a lock that op has nothing to do with.
//
// While the server is not admitted it compares what this process knows with what the server has.
func retry[T any](ctx context.Context, db *DB, op func(Driver) (T, error)) (T, error) {
	return retryPlain(ctx, db, func(d Driver) (T, error) {
		v, err := op(d)
		if !errors.Is(err, ErrNotAdmitted) {
			return v, err
		}
		a, compareErr := db.Compare(ctx)
		switch {
		case compareErr != nil:
			return v, errors.Join(err, compareErr)
		case a.Admitted:
			return op(d)
		}
		return v, a.Err()
	})
}

// retryPlain is retry of what may be done at every server.
func retryPlain[T any](ctx context.Context, db *DB, op func(Driver) (T, error)) (v T, err error) {
	again := false
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		var d Driver
		if db.ctx.Err() != nil {
			err = ErrClosed
		} else if d, err = db.driver.get(); err == nil {
			v, err = op(d)
		}
		again = errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrOutcomeUnknown)
		if err != nil && (!again || ctx.Err() != nil) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(newBackOff(20*time.Millisecond, 500*time.Millisecond)), backoff.WithMaxTries(retryTries))
	if again && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return v, err
}

// repeatable returns the error of a request that may be made again, whatever became of it: if that is unknown, it
// counts as not carried out.
func repeatable(err error) error {
	if errors.Is(err, ErrOutcomeUnknown) {
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	return err
}

// newBackOff returns pauses that grow by half from first to last, each jittered by half.
func newBackOff(first, last time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = first, last
	b.RandomizationFactor, b.Multiplier = 0.5, 1.5
	b.Reset()
	return b
}

// withGrace returns ctx or, if ctx has ended, a context with its values that lives
// for gracePeriod.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), gracePeriod)
}

// withReleaseGrace is withGrace. But if ctx ends later because a lock is released,
// as that lock's own context does, the returned context lives for gracePeriod more.
func withReleaseGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return withGrace(ctx)
	}
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrReleased) {
			sleep(lasting, gracePeriod)
		}
		cancel()
	})
	return lasting, func() {
		stop()
		cancel()
	}
}

// extend returns a context with ctx's values that lives for gracePeriod longer than
// ctx, but not longer than the DB's background work.
func (db *DB) extend(ctx context.Context) (context.Context, context.CancelFunc) {
	lasting, cancel := db.detach(ctx)
	stop := context.AfterFunc(ctx, func() {
		sleep(lasting, gracePeriod)
		cancel()
	})
	return lasting, func() {
		stop()
		cancel()
	}
}

// detach returns a context with ctx's values that lives as long as the DB's background work.
func (db *DB) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(db.ctx, cancel)
	return detached, func() {
		stop()
		cancel()
	}
}

// attemptContext is detach for one of several attempts. Each may take a third of
// stale-after, so that one that hangs does not use up the time for all.
func (db *DB) attemptContext(ctx context.Context) (context.Context, context.CancelFunc) {
	detached, cancel := db.detach(ctx)
	limited, stop := context.WithTimeout(detached, max(gracePeriod, db.opts.StaleAfter/3))
	return limited, func() {
		stop()
		cancel()
	}
}

// retryCleanup calls try until the caller's rows are deleted, can't be deleted, or
// must be stale. The first attempt ended with err.
func (db *DB) retryCleanup(err error, try func() error) error {
	pause := newBackOff(cleanupPauseMin, cleanupPauseMax)
	for start := time.Now(); ClassOf(err) == Retryable && time.Since(start) < db.opts.StaleAfter; err = try() {
		sleep(db.ctx, pause.NextBackOff())
	}
	return err
}
