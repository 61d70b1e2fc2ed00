package driver

import "time"

// MaxPassed is how many later waiters may get a lock before one that waits.
const MaxPassed = 8

// A Waiter is a call that waits for locks.
//
// Each row of the table of locks has a queue of the waiters that were refused because of
// it, in the order of their tickets. When a lock ends and its queue is not empty, the row
// stays as a reservation: the lock is kept for the first waiter until its turn is over. To
// all others a reservation is a lock, whose owner is [ReservedFor] the waiter's: fresh during
// the turn, stale afterwards. Only an Acquire by that waiter, and Purge, can match it.
type Waiter struct {
	ID      string        // names this wait: ASCII letters and digits, at most 32
	Channel string        // on which it is woken, of the same form: see [Notifier]; "" if it polls
	Turn    time.Duration // how long a lock is kept for it; in milliseconds, at most 20 s
	Place   Place         // from the answer to its previous request; zero at first
}

// A Place is where a waiter stands in queues.
type Place struct {
	// Ticket is when it was first refused, by the database's clock. All waiters are in one
	// order, by ticket and then ID: so two that wait for several refs can't each keep what
	// the other needs.
	Ticket time.Time
	Passed int // how many later waiters got a lock before it; at most MaxPassed
	Ahead  int // how many wait before it, in the longest of its queues
}

// reserved ends the owner of a reservation.
const reserved = " (waits)"

// ReservedFor is the owner of a row that is reserved for a waiter of owner; with "", for no waiter.
func ReservedFor(owner string) string { return owner + reserved }

// A Wakeup tells a waiter that the lock on a ref is kept for it.
type Wakeup struct {
	Project, Ref string
	Waiter       string // its ID
	// After is how long the lock is kept for another waiter first: zero for the first in the queue.
	After time.Duration
}
