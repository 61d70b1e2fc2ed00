package smarthttp

import (
	"context"
	"time"
)

// A semaphore bounds the number of its holders by its capacity.
type semaphore chan struct{}

// acquire waits for capacity until ctx ends, and for at most limit; after that the error is
// errBusy. The holder calls release.
func (s semaphore) acquire(ctx context.Context, limit time.Duration) (release func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	default:
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errBusy)
	defer cancel()
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
