package smarthttp

import (
	"context"
	"time"
)

// A semaphore lets as many in at a time as it has room for.
type semaphore chan struct{}

// enter waits for room, until ctx ends; after that limit it returns errBusy. Who was let in calls leave.
func (s semaphore) enter(ctx context.Context, limit time.Duration) (leave func(), err error) {
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
