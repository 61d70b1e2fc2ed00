package refdb

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	retryTries = 4
	// detachedLimit bounds what is done after the caller's context ended, to
	// find out what became of a request or to clean up behind it.
	detachedLimit = 3 * time.Second
)

// retry repeats op while it fails with ErrUnavailable, which says that it was
// not carried out, a few times within a fraction of a second: enough for a
// dropped connection or a deadlock, not for an outage.
func retry[T any](ctx context.Context, db *DB, op func() (T, error)) (T, error) {
	return backoff.Retry(ctx, func() (v T, err error) {
		if db.ctx.Err() != nil {
			return v, backoff.Permanent(ErrClosed)
		}
		v, err = op()
		if err != nil && (!errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown) || ctx.Err() != nil) {
			err = backoff.Permanent(err)
		}
		return v, err
	}, backoff.WithBackOff(newBackOff(20*time.Millisecond, 500*time.Millisecond)), backoff.WithMaxTries(retryTries))
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
