package heartbeat

import "errors"

// The reasons for which a lease ends; errors.Is finds them in what [Lease.Err] returns.
var (
	// ErrLost: a beat found that the item was deleted, or taken by another holder.
	ErrLost = errors.New("lease lost")
	// ErrExpired: no beat is known to have succeeded for so long that other holders may soon take
	// the item.
	ErrExpired = errors.New("lease expired")
	// ErrStopped: the holder called Stop.
	ErrStopped = errors.New("lease stopped")
	// ErrClosed: the keeper was closed.
	ErrClosed = errors.New("keeper of the lease closed")
)

// A Lease is one item that a [Keeper] keeps fresh. It ends once, with the first reason that occurs.
// All methods may be called concurrently.
type Lease[T any] struct {
	keeper *Keeper[T]
	item   T
	done   chan struct{}

	// The following fields are guarded by keeper.mu.
	index     int     // in keeper.leases; -1 once ended
	deadline  Instant // moved only by successful beats
	err       error   // nil until ended
	early     bool    // is beaten at keeper.nextEarly, before the tick
	suspended int     // calls of Suspend without their Resume
	lostAfter uint64  // only beats with a larger number can lose the lease
}

// Done returns a channel that is closed when the lease has ended. If the process was frozen or the
// machine suspended, the channel may be closed up to an interval after they continue; Err is never
// late.
func (l *Lease[T]) Done() <-chan struct{} { return l.done }

// Err returns nil until the lease ends. After that it returns an error that wraps ErrLost,
// ErrExpired, ErrStopped or ErrClosed. It compares the deadline with the clock itself, and so does
// not depend on a timer.
func (l *Lease[T]) Err() error {
	k := l.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.err == nil { // saves reading the clock, which costs a system call
		k.expire(l, k.now())
	}
	return l.err
}

// Deadline returns when the lease expires unless a beat succeeds before: StaleAfter − Margin after
// the last successful beat was sent or, before the first one, after the acquisition was sent. An
// ended lease keeps its last deadline.
func (l *Lease[T]) Deadline() Instant {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	return l.deadline
}

// Suspend makes the keeper ignore the result Lost until Resume. A holder calls it before a request
// that may release the item. The lease is still beaten and can still expire. Calls nest.
func (l *Lease[T]) Suspend() {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	l.suspended++
}

// Resume ends the effect of Suspend. Beats sent before Resume still can't lose the lease; later
// ones can.
func (l *Lease[T]) Resume() {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	if l.suspended > 0 {
		l.suspended--
		l.lostAfter = l.keeper.beats
	}
}

// Stop ends the lease with ErrStopped; stopped is false if the lease had already ended. No later
// beat includes the lease, and the result of a beat in flight does not change it.
func (l *Lease[T]) Stop() (stopped bool) {
	k := l.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire(l, k.now())
	stopped = l.err == nil
	k.end(l, ErrStopped)
	return stopped
}

// A leaseHeap holds the leases that have not ended, with the first to expire on top.
type leaseHeap[T any] []*Lease[T]

func (h leaseHeap[T]) Len() int           { return len(h) }
func (h leaseHeap[T]) Less(i, j int) bool { return h[i].deadline < h[j].deadline }

func (h leaseHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *leaseHeap[T]) Push(x any) {
	l := x.(*Lease[T])
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *leaseHeap[T]) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.index = -1
	return l
}
