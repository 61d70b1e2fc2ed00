package driver

import "time"

// MaxPassed is the maximum number of later waiters that may get a lock before a waiter.
const MaxPassed = 8

// A Waiter is a call that waits for locks.
//
// Each row of the table of locks has a queue of the waiters that it refused, in the order of their
// tickets. When a lock ends and its queue is not empty, the row becomes a reservation: the lock is
// kept for the first waiter until the waiter's turn is over. To all other requests a reservation is
// a lock of the owner [ReservedFor] the waiter's owner: fresh during the turn, stale afterwards.
// Only Purge, and an Acquire by that waiter, can match it.
type Waiter struct {
	ID      string        // identifies this wait: ASCII letters and digits, at most 32
	Channel string        // the channel on which it is woken, in the same format: see [Notifier]; "" if it polls
	Turn    time.Duration // how long a lock is kept for it; in milliseconds, at most 20 s
	Place   Place         // from the reply to its previous request; zero at first
}

// A Place is the place of a waiter in its queues.
type Place struct {
	// Ticket is the time of the waiter's first refusal, by the database's clock. All waiters are in
	// one order, by ticket and then ID, so that two waiters for several refs can't each keep a ref
	// that the other needs.
	Ticket time.Time
	Passed int // how many later waiters got a lock before it; at most MaxPassed
	Ahead  int // how many waiters precede it, in the longest of its queues
}

// reserved is the suffix of a reservation's owner.
const reserved = " (waits)"

// ReservedFor returns the owner of a row that is reserved for a waiter of owner or, if owner is "",
// for no waiter.
func ReservedFor(owner string) string { return owner + reserved }

// A Wakeup notifies a waiter that the lock on a ref is reserved for it.
type Wakeup struct {
	Project, Ref string
	Waiter       string // its ID
	// After is how long the lock is first kept for another waiter; zero for the first in the queue.
	After time.Duration
}
