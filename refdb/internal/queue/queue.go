// Package queue decides which waiter gets a lock next. A driver that decides in Go, in a
// transaction, calls Decide when locks are requested, End when a lock ends, Purge when a row is
// purged, Pass when an update passes a row, and Withdraw when a waiter gives up. The rules are in
// the comment of [driver.LockStore].
package queue

import (
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// MaxPlaces is the maximum length of a queue. A waiter that does not fit into the queue polls.
	MaxPlaces = 100
	// Unheard is a channel that no process listens on. It is the channel of a waiter that polls
	// although locks are reserved for it.
	Unheard = "grants"
	// maxTurn is the maximum time for which a lock is reserved for a waiter.
	maxTurn = 20 * time.Second
)

// A Queue holds the places of the waiters for a lock, in the order of their tickets.
type Queue []Place

// Read parses the places of a row. It skips strings that are not places.
func Read(texts []string) Queue {
	var q Queue
	for _, s := range texts {
		if p, ok := Parse(s); ok {
			q = append(q, p)
		}
	}
	slices.SortFunc(q, Place.compare)
	return q
}

// Texts returns q as a row stores it.
func (q Queue) Texts() []string {
	texts := make([]string, len(q))
	for i, p := range q {
		texts[i] = p.String()
	}
	return texts
}

func (q Queue) find(id string) (Place, bool) {
	i := slices.IndexFunc(q, func(p Place) bool { return p.ID == id })
	if i < 0 {
		return Place{}, false
	}
	return q[i], true
}

// with returns q with p, which replaces an earlier place of the same waiter.
func (q Queue) with(p Place) Queue {
	q = q.Without(p.ID)
	i, _ := slices.BinarySearchFunc(q, p, Place.compare)
	q = slices.Insert(q, i, p)
	return q[:min(len(q), MaxPlaces)]
}

// Without returns q without the waiter with the given ID.
func (q Queue) Without(id string) Queue {
	return slices.DeleteFunc(slices.Clone(q), func(p Place) bool { return p.ID == id })
}

// passedBy returns q after the waiter of p, which is not in q, got the lock.
func (q Queue) passedBy(p Place) Queue {
	q = slices.Clone(q)
	for i := range q {
		if !p.before(q[i]) {
			q[i].Passed = min(q[i].Passed+1, driver.MaxPassed)
		}
	}
	return q
}

// Overtaken returns q after a request without a ticket got the lock, and so passed all waiters.
func (q Queue) Overtaken() Queue { return q.passedBy(Place{}) }

// due reports whether a waiter has been passed as often as is allowed.
func (q Queue) due() bool {
	return slices.ContainsFunc(q, func(p Place) bool { return p.Passed >= driver.MaxPassed })
}

// ahead returns the number of places that precede p.
func (q Queue) ahead(p Place) (n int) {
	for _, other := range q {
		if other.before(p) {
			n++
		}
	}
	return n
}
