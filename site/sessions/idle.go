package sessions

import (
	"context"
	"time"
)

// MayWorkIn reports whether a guard that lives may have lock files in the repository at path.
func (gs *Guards) MayWorkIn(path string) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.livingIn(path)
}

// AwaitIdle waits until no guard that lives may have lock files in the repository at path, until a time at most, and then calls then, before
// one may have some again. It reports whether it did.
func (gs *Guards) AwaitIdle(ctx context.Context, path string, until time.Time, then func()) bool {
	return gs.await(ctx, until, func() bool {
		if gs.livingIn(path) {
			return false
		}
		then()
		return true
	})
}

// AwaitDead waits until nobody is about to settle what a dead guard has left, until a time at most.
func (gs *Guards) AwaitDead(ctx context.Context, until time.Time) {
	gs.await(ctx, until, gs.deadAreSettled)
}

// MayHaveLeftLocksIn reports whether a dead guard may have left lock files in the repository at path that are yet to be removed.
func (gs *Guards) MayHaveLeftLocksIn(path string) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.deadIn(path)
}
