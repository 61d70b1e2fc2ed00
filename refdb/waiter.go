package refdb

import "time"

// MaxPassed is how many may get a lock past somebody who came earlier.
const MaxPassed = 8

// A Waiter is somebody who waits for locks.
//
// Each row of the table of locks has a queue of those who were refused because of it, in the
// order of their tickets. When a lock ends, its row stays if somebody waits, as a reservation: the
// lock is kept for the first of them until its turn is over. To all others that is a fresh
// lock, of the owner [ReservedFor] says, and then a stale one; no request but Acquire by that
// waiter, and Purge, can match it.
type Waiter struct {
	ID      string        // of one who waits, once: ASCII letters and digits, at most 32
	Channel string        // that wakes it, of the same form: see [Notifier]; "" if it polls
	Turn    time.Duration // how long a lock is kept for it; in milliseconds, at most 20 s
	Place   Place         // from the answer to its request before; zero at first
}

// A Place is how a waiter stands in queues.
type Place struct {
	// Ticket is when it was first refused, by the database's clock. There is one order of all
	// waiters, by ticket and then ID: so two who wait for several refs can't each keep what
	// the other needs.
	Ticket time.Time
	Passed int // how many got a lock past it; at most MaxPassed
	Ahead  int // how many wait before it, in the longest of its queues
}

// reserved ends the owner of a row that is kept for somebody.
const reserved = " (waits)"

// ReservedFor is the owner of a row that is kept for a waiter of owner; of "", for nobody.
func ReservedFor(owner string) string { return owner + reserved }

// A Wakeup tells a waiter that the lock on a ref is kept for it.
type Wakeup struct {
	Project, Ref string
	Waiter       string // its ID
	// After is for how long the lock is kept for somebody else before: zero for the first in the queue.
	After time.Duration
}
