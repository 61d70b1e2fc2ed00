// Package pause waits for a time, or until a context ends.
package pause

import (
	"context"
	"time"
)

// For waits for t. It reports false if ctx ended first.
func For(ctx context.Context, t time.Duration) bool {
	select {
	case <-time.After(t):
		return true
	case <-ctx.Done():
		return false
	}
}
