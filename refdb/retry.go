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
	// What is cleaned up behind a caller is tried again after a pause between
	// insistFirst and insistLast.
	insistFirst = 100 * time.Millisecond
	insistLast  = 2 * time.Second
	// detachedLimit bounds what is done after the caller's context ended, to
	// find out what became of a request or to clean up behind it.
	detachedLimit = 3 * time.Second
)

// retry repeats op while it fails with ErrUnavailable, which says that it was
// not carried out, a few times within a fraction of a second: enough for a
// dropped connection or a deadlock, not for an outage.
//
// If ctx ends in between, the error wraps ctx's and the last one of op. Never the
// cause of ctx's end: that may be the loss of a lock that op has nothing to do with.
func retry[T any](ctx context.Context, db *DB, op func() (T, error)) (v T, err error) {
	again := false
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		if db.ctx.Err() != nil {
			err = ErrClosed
		} else {
			v, err = op()
		}
		again = errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrOutcomeUnknown) && ctx.Err() == nil
		if err != nil && !again {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(newBackOff(20*time.Millisecond, 500*time.Millisecond)), backoff.WithMaxTries(retryTries))
	if again && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return v, err
}

// newBackOff grows by half from first to last, each jittered by half.
func newBackOff(first, last time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = first, last
	b.RandomizationFactor, b.Multiplier = 0.5, 1.5
	b.Reset()
	return b
}

// detached returns ctx while it lasts; once it has ended, a context with its
// values that lives for detachedLimit.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), detachedLimit)
}

// pastRelease is detached; but if ctx ends later because a lock is released, as
// that lock's own context does, what it returns lives for detachedLimit more.
func pastRelease(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return detached(ctx)
	}
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), ErrReleased) {
			sleep(lasting, detachedLimit)
		}
		cancel()
	})
	return lasting, func() {
		stop()
		cancel()
	}
}

// past returns a context with ctx's values that lives for detachedLimit more than
// ctx, but not longer than the DB's background work.
func (db *DB) past(ctx context.Context) (context.Context, context.CancelFunc) {
	lasting, cancel := db.detach(ctx)
	stop := context.AfterFunc(ctx, func() {
		sleep(lasting, detachedLimit)
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

// attempt is detach for one of several tries to delete rows behind a caller: a
// third of the time there is for them, so that one that hangs does not take it all.
func (db *DB) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	detached, cancel := db.detach(ctx)
	limited, stop := context.WithTimeout(detached, max(detachedLimit, db.opts.StaleAfter/3))
	return limited, func() {
		stop()
		cancel()
	}
}

// insist tries again to delete rows behind a caller, the first try having
// ended with err: until it is done, can't be, or the rows must be stale.
func (db *DB) insist(err error, try func() error) error {
	pause := newBackOff(insistFirst, insistLast)
	for start := time.Now(); ClassOf(err) == Retryable && time.Since(start) < db.opts.StaleAfter; err = try() {
		sleep(db.ctx, pause.NextBackOff())
	}
	return err
}
