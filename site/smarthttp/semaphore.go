package smarthttp

import "context"

// A gate lets as many in at a time as it has room for.
type gate chan struct{}

// enter waits for room, until ctx ends; after askLimit it returns errBusy. Who was let in calls leave.
func (g gate) enter(ctx context.Context) (leave func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askLimit, errBusy)
	defer cancel()
	select {
	case g <- struct{}{}:
		return func() { <-g }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
