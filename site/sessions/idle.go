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

// AwaitIdle waits until no living guard may have lock files in the repository at path, until a time
// at most. Then it calls then, before a guard may have lock files there again. It reports whether
// it called then.
func (gs *Guards) AwaitIdle(ctx context.Context, path string, until time.Time, then func()) bool {
	return gs.await(ctx, until, func() bool {
		if gs.livingIn(path) {
			return false
		}
		then()
		return true
	})
}

// AwaitDead waits until no goroutine settles what a dead guard has left, until a time at most.
func (gs *Guards) AwaitDead(ctx context.Context, until time.Time) {
	gs.await(ctx, until, gs.deadAreSettled)
}

// MayHaveLeftLocksIn reports whether a dead guard may have left lock files in the repository at
// path that have to be removed.
func (gs *Guards) MayHaveLeftLocksIn(path string) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.deadIn(path)
}
