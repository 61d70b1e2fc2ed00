package smarthttp

import "context"

// A semaphore lets as many in at a time as it has room for.
type semaphore chan struct{}

// enter waits for room, until ctx ends; after askLimit it returns errBusy. Who was let in calls leave.
func (s semaphore) enter(ctx context.Context) (leave func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askLimit, errBusy)
	defer cancel()
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
