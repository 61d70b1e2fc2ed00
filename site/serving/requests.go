package serving

import "sync/atomic"

// Requests are the requests to reconcile soon.
type Requests struct {
	requested, done atomic.Uint64
	now             chan struct{} // has an item if there is something to reconcile
}

func newRequests() Requests { return Requests{now: make(chan struct{}, 1)} }

// Request makes the reconcile loop run soon.
func (r *Requests) Request() {
	r.requested.Add(1)
	select {
	case r.now <- struct{}{}:
	default:
	}
}

// Wanted receives an item when somebody has requested to reconcile.
func (r *Requests) Wanted() <-chan struct{} { return r.now }

// Begin returns a function to be called when everything requested so far is reconciled.
func (r *Requests) Begin() (done func()) {
	requested := r.requested.Load()
	return func() { r.done.Store(requested) }
}

// Outstanding reports whether a request has not been met.
func (r *Requests) Outstanding() bool { return r.done.Load() != r.requested.Load() }
