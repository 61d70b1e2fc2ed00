package refdb

import (
	"container/list"
	"sync"
)

// queues order the waiters of this process: for each (project, ref) first
// come, first served, and only who is first in all of its queues asks the database.
// A set of refs enters all of its queues at once, so that two waiters are in
// the same order in every queue they share, and no circle of waiting can arise.
type queues struct {
	mu    sync.Mutex
	lines map[key]*list.List // of *waiter; a line that is empty is deleted
}

type key struct{ project, ref string }

// A waiter is a caller of Lock in its queues.
type waiter struct {
	places []place
	behind int           // in how many queues it is not first
	first  chan struct{} // closed once it is first in all
	wake   chan struct{} // buffered: a hint to ask the database now
}

type place struct {
	key  key
	elem *list.Element
}

// enter puts a new waiter at the end of the queues of all refs.
func (q *queues) enter(project string, refs []string) *waiter {
	w := &waiter{first: make(chan struct{}), wake: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lines == nil {
		q.lines = make(map[key]*list.List)
	}
	for _, ref := range refs {
		k := key{project, ref}
		line := q.lines[k]
		if line == nil {
			line = list.New()
			q.lines[k] = line
		}
		if line.Len() > 0 {
			w.behind++
		}
		w.places = append(w.places, place{k, line.PushBack(w)})
	}
	if w.behind == 0 {
		close(w.first)
	}
	return w
}

// leave takes w out of its queues, which hands over to those behind it.
func (q *queues) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range w.places {
		line := q.lines[p.key]
		wasFirst := line.Front() == p.elem
		line.Remove(p.elem)
		switch {
		case line.Len() == 0:
			delete(q.lines, p.key)
		case wasFirst:
			next := line.Front().Value.(*waiter)
			if next.behind--; next.behind == 0 {
				close(next.first)
			}
		}
	}
	w.places = nil
}

// wake tells the first waiter for a ref to ask the database now.
func (q *queues) wake(project, ref string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if line := q.lines[key{project, ref}]; line != nil {
		line.Front().Value.(*waiter).hint()
	}
}

// wakeAll tells every first waiter to ask the database now.
func (q *queues) wakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, line := range q.lines {
		line.Front().Value.(*waiter).hint()
	}
}

func (w *waiter) hint() {
	select {
	case w.wake <- struct{}{}:
	default: // one is pending already
	}
}
