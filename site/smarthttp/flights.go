package smarthttp

import (
	"context"
	"sync"
)

// flights do work that several requests want at the same time once for all of them.
type flights[K comparable, V any] struct {
	mu      sync.Mutex
	running map[K]*flight[V]
	tasks   sync.WaitGroup
}

type flight[V any] struct {
	waiters int
	cancel  context.CancelFunc
	done    chan struct{} // closed once value and err are there
	value   V
	err     error
}

// do returns what work returns, which another call with that key may have begun. The context of work ends when none of its callers waits
// any more. If ctx ends, do returns the reason at once.
func (f *flights[K, V]) do(ctx context.Context, key K, work func(context.Context) (V, error)) (V, error) {
	f.mu.Lock()
	if f.running == nil {
		f.running = map[K]*flight[V]{}
	}
	one := f.running[key]
	if one == nil {
		working, cancel := context.WithCancel(context.WithoutCancel(ctx))
		one = &flight[V]{cancel: cancel, done: make(chan struct{})}
		f.running[key] = one
		f.tasks.Go(func() {
			one.value, one.err = work(working)
			f.mu.Lock()
			f.forget(key, one)
			f.mu.Unlock()
			cancel()
			close(one.done)
		})
	}
	one.waiters++
	f.mu.Unlock()
	select {
	case <-one.done:
		return one.value, one.err
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if one.waiters--; one.waiters == 0 {
		one.cancel()
		f.forget(key, one) // who comes now begins anew
	}
	var none V
	return none, context.Cause(ctx)
}

// forget is called with f.mu held.
func (f *flights[K, V]) forget(key K, one *flight[V]) {
	if f.running[key] == one {
		delete(f.running, key)
	}
}

// wait waits until nothing runs. Nothing is begun meanwhile.
func (f *flights[K, V]) wait() { f.tasks.Wait() }
