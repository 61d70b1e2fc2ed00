package heartbeat

import "errors"

// Why a lease ended; errors.Is finds them in what [Lease.Err] returns.
var (
	// ErrLost: a beat found that the item is gone, or another's.
	ErrLost = errors.New("lease lost")
	// ErrExpired: no beat was known to succeed for so long that others may
	// soon take it.
	ErrExpired = errors.New("lease expired")
	// ErrStopped: its own holder called Stop.
	ErrStopped = errors.New("lease stopped")
	// ErrClosed: its keeper was closed.
	ErrClosed = errors.New("keeper of the lease closed")
)

// A Lease is one item that a [Keeper] keeps fresh. It ends once, and stays
// ended for the reason that was first. All methods may be called concurrently.
type Lease[T any] struct {
	keeper *Keeper[T]
	item   T
	done   chan struct{}

	// The rest is guarded by keeper.mu.
	index     int     // in keeper.leases; -1 once ended
	deadline  Instant // moved on by successful beats only
	err       error   // nil until ended
	early     bool    // beaten at keeper.early, before the tick
	suspended int     // calls of Suspend without their Resume
	deaf      uint64  // the last beat that could have met a suspended lease
}

// Done returns a channel that is closed when the lease has ended. It may be
// closed late if the process was frozen or the machine suspended, by up to an
// interval after they go on; Err is not.
func (l *Lease[T]) Done() <-chan struct{} { return l.done }

// Err returns nil while the lease stands, and after it ended an error that is
// one of ErrLost, ErrExpired, ErrStopped and ErrClosed. It compares the
// deadline with the clock itself: it needs no timer to have fired.
func (l *Lease[T]) Err() error {
	k := l.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.err == nil { // the clock costs a system call
		k.expire(l, k.now())
	}
	return l.err
}

// Deadline returns when the lease expires unless a beat succeeds before: the
// instant that the last successful beat, or else the acquisition, was sent,
// plus StaleAfter − Margin. Of an ended lease it is the last one it had.
func (l *Lease[T]) Deadline() Instant {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	return l.deadline
}

// Suspend makes "lost" mean nothing until Resume, because the holder itself
// may be about to give the item up. The lease is still beaten and can still
// expire. Calls nest.
func (l *Lease[T]) Suspend() {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	l.suspended++
}

// Resume ends what Suspend began. Beats sent before it still can't lose the
// lease, the next one can.
func (l *Lease[T]) Resume() {
	l.keeper.mu.Lock()
	defer l.keeper.mu.Unlock()
	if l.suspended > 0 {
		l.suspended--
		l.deaf = l.keeper.beats
	}
}

// Stop ends the lease with ErrStopped, or reports that it ended before. No beat that
// starts later carries it, and the answer of one under way means nothing to it.
func (l *Lease[T]) Stop() (stopped bool) {
	k := l.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire(l, k.now())
	stopped = l.err == nil
	k.end(l, ErrStopped)
	return stopped
}

// A queue is a heap of the leases that stand, the first to expire on top.
type queue[T any] []*Lease[T]

func (q queue[T]) Len() int           { return len(q) }
func (q queue[T]) Less(i, j int) bool { return q[i].deadline < q[j].deadline }

func (q queue[T]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue[T]) Push(x any) {
	l := x.(*Lease[T])
	l.index = len(*q)
	*q = append(*q, l)
}

func (q *queue[T]) Pop() any {
	last := len(*q) - 1
	l := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	l.index = -1
	return l
}
