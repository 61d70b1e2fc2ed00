// Package queue is who waits for a lock, in order: what a driver that decides in Go, inside
// of a transaction, makes of the rows of locks, when they are asked for and when they end.
// See [refdb.LockStore] for the rules.
package queue

import (
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// maxPlaces is the longest queue. Whoever does not fit in, as the last, polls.
	maxPlaces = 100
	// maxTurn is the longest that a lock is kept for a waiter.
	maxTurn = 20 * time.Second
)

// A Queue is the places of those who wait for a lock, in the order of their tickets.
type Queue []Place

// Read returns the places of a row, without what is no place.
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

// Texts is what a row keeps of q.
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

// with is q with p in its place.
func (q Queue) with(p Place) Queue {
	q = q.Without(p.ID)
	i, _ := slices.BinarySearchFunc(q, p, Place.compare)
	q = slices.Insert(q, i, p)
	return q[:min(len(q), maxPlaces)]
}

// Without is q without the waiter of that ID.
func (q Queue) Without(id string) Queue {
	return slices.DeleteFunc(slices.Clone(q), func(p Place) bool { return p.ID == id })
}

// passedBy is q after p, which is not in it, got the lock.
func (q Queue) passedBy(p Place) Queue {
	q = slices.Clone(q)
	for i := range q {
		if !p.before(q[i]) {
			q[i].Passed = min(q[i].Passed+1, refdb.MaxPassed)
		}
	}
	return q
}

// Overtaken is q after somebody who has no ticket got the lock.
func (q Queue) Overtaken() Queue { return q.passedBy(Place{}) }

// due reports whether somebody was passed as often as may be.
func (q Queue) due() bool {
	return slices.ContainsFunc(q, func(p Place) bool { return p.Passed >= refdb.MaxPassed })
}

// ahead counts the places before p.
func (q Queue) ahead(p Place) (n int) {
	for _, other := range q {
		if other.before(p) {
			n++
		}
	}
	return n
}
