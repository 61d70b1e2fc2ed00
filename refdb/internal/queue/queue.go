// Package queue decides who gets a lock next. A driver that decides in Go, in a transaction, calls
// Decide when locks are asked for, End when one ends, Purge and Pass when a purge or an update
// meets a row, and Withdraw when a waiter gives up. [driver.LockStore] has the rules.
package queue

import (
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// MaxPlaces is the length of the longest queue. A waiter that does not fit in polls.
	MaxPlaces = 100
	// Unheard is a channel that no process listens on. It is that of a waiter that polls, and for which locks
	// are kept nevertheless.
	Unheard = "grants"
	// maxTurn is the longest time for which a lock is kept for a waiter.
	maxTurn = 20 * time.Second
)

// A Queue holds the places of the waiters for a lock, in the order of their tickets.
type Queue []Place

// Read parses the places of a row. It leaves out texts that are none.
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

// Without returns q without the waiter of that ID.
func (q Queue) Without(id string) Queue {
	return slices.DeleteFunc(slices.Clone(q), func(p Place) bool { return p.ID == id })
}

// passedBy returns q after p, which is not in it, got the lock.
func (q Queue) passedBy(p Place) Queue {
	q = slices.Clone(q)
	for i := range q {
		if !p.before(q[i]) {
			q[i].Passed = min(q[i].Passed+1, driver.MaxPassed)
		}
	}
	return q
}

// Overtaken returns q after somebody without a ticket got the lock: all were passed.
func (q Queue) Overtaken() Queue { return q.passedBy(Place{}) }

// due reports whether a waiter was passed as often as is allowed.
func (q Queue) due() bool {
	return slices.ContainsFunc(q, func(p Place) bool { return p.Passed >= driver.MaxPassed })
}

// ahead returns how many places are before p.
func (q Queue) ahead(p Place) (n int) {
	for _, other := range q {
		if other.before(p) {
			n++
		}
	}
	return n
}
