package pushmirror

import (
	"context"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/pause"
)

// outageLast is the longest pause while a mirror can't be reached.
const outageLast = 5 * time.Second

// An outage slows down all work on a mirror that can't be reached, so that thousands of projects
// don't all try.
type outage struct {
	mu    sync.Mutex
	pause time.Duration // after the last failure; 0 after a success
	until time.Time     // when the next attempt may begin
}

// record records whether a repository at the mirror could be read.
func (o *outage) record(reached bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if reached {
		o.pause, o.until = 0, time.Time{}
		return
	}
	if now := time.Now(); now.After(o.until) { // of attempts at the same time, one counts
		o.pause = min(max(2*o.pause, retryFirst), outageLast)
		o.until = now.Add(o.pause)
	}
}

// await waits until an attempt may begin. It reports false if ctx ended first.
func (o *outage) await(ctx context.Context) bool {
	o.mu.Lock()
	wait := time.Until(o.until)
	o.mu.Unlock()
	return wait <= 0 || pause.For(ctx, wait)
}
