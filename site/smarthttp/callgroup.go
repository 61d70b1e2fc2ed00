package smarthttp

import (
	"context"
	"sync"
)

// A callGroup does work once for all requests that need its result at the same time.
type callGroup[K comparable, V any] struct {
	mu      sync.Mutex
	running map[K]*call[V]
	tasks   sync.WaitGroup
}

type call[V any] struct {
	waiters int
	cancel  context.CancelFunc
	done    chan struct{} // closed once value and err are there
	value   V
	err     error
}

// do returns the result of work for a key. If another call with this key is in progress, do waits
// for the result of that call. The context of work ends when no caller waits any more. If ctx ends,
// do returns its cause at once.
func (g *callGroup[K, V]) do(ctx context.Context, key K, work func(context.Context) (V, error)) (V, error) {
	g.mu.Lock()
	if g.running == nil {
		g.running = map[K]*call[V]{}
	}
	c := g.running[key]
	if c == nil {
		working, cancel := context.WithCancel(context.WithoutCancel(ctx))
		c = &call[V]{cancel: cancel, done: make(chan struct{})}
		g.running[key] = c
		g.tasks.Go(func() {
			c.value, c.err = work(working)
			g.mu.Lock()
			g.forget(key, c)
			g.mu.Unlock()
			cancel()
			close(c.done)
		})
	}
	c.waiters++
	g.mu.Unlock()
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.waiters--; c.waiters == 0 {
		c.cancel()
		g.forget(key, c) // a later call begins anew
	}
	var none V
	return none, context.Cause(ctx)
}

// forget must be called with g.mu held.
func (g *callGroup[K, V]) forget(key K, c *call[V]) {
	if g.running[key] == c {
		delete(g.running, key)
	}
}

// wait waits until no work is running. do must not be called meanwhile.
func (g *callGroup[K, V]) wait() { g.tasks.Wait() }
