package refdb

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"
)

// queues order the waiters of this process: for each (project, ref) first
// come, first served, and only who is first in all of its queues asks the database.
// A set of refs enters all of its queues at once, so that two waiters are in
// the same order in every queue they share, and no circle of waiting can arise.
type queues struct {
	mu    sync.Mutex
	lines map[key]*list.List // of *waiter; a line that is empty is deleted
	// passed counts how often in a row a lock was handed over within this process.
	passed map[key]int
	// others is until when it is the turn of other processes.
	others map[key]time.Time
	// turns are the locks that it is this process's turn to take, by the database's
	// queues, with those who wait behind it.
	turns map[key]Queue
}

// maxTurns bounds what the database's queues may leave behind here. Whoever is
// forgotten polls.
const maxTurns = 10_000

// handOvers is how often in a row a lock may stay in this process, from holder to
// waiter, before the processes that wait have their turn. It saves a
// notification each time, and keeps nobody waiting for long. Then this process
// goes back to the end of the queue, and asks by itself only after othersTurn, in
// case that its wake-up is lost: before that it would get in between.
const (
	handOvers  = 8
	othersTurn = 100 * time.Millisecond
)

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

// leave takes w out of its queues, which hands over to those behind it. It
// returns those in which there is nobody left.
func (q *queues) leave(w *waiter) (empty []key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range w.places {
		line := q.lines[p.key]
		wasFirst := line.Front() == p.elem
		line.Remove(p.elem)
		switch {
		case line.Len() == 0:
			delete(q.lines, p.key)
			empty = append(empty, p.key)
		case wasFirst:
			next := line.Front().Value.(*waiter)
			if next.behind--; next.behind == 0 {
				close(next.first)
			}
		}
	}
	w.places = nil
	return empty
}

// handOver reports whether a lock that is about to be released goes next to a
// waiter of this process, which is then to be woken, or whether one goes back
// behind the other processes.
func (q *queues) handOver(project, ref string) (next, back bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := key{project, ref}
	delete(q.others, k)
	line := q.lines[k]
	if line == nil || len(line.Front().Value.(*waiter).places) > 1 {
		return false, false // who waits for others, too, might not be able to take it
	}
	if q.passed[k] < handOvers {
		return true, false
	}
	// From now on: one who asks while the release is under way might come right after it.
	if q.others == nil {
		q.others = make(map[key]time.Time)
	}
	q.others[k] = time.Now().Add(othersTurn)
	return false, true
}

// handedOver notes that the lock was released, to a waiter of this process or not.
func (q *queues) handedOver(project, ref string, next bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := key{project, ref}
	if !next {
		delete(q.passed, k)
		return
	}
	if q.passed == nil {
		q.passed = make(map[key]int)
	}
	q.passed[k]++
}

// untilTurn returns for how long it is the turn of other processes to ask for a lock.
func (q *queues) untilTurn(project string, refs []string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := key{project, refs[0]}
	until, ok := q.others[k]
	if !ok || len(refs) > 1 {
		return 0
	}
	if d := time.Until(until); d > 0 {
		return d
	}
	delete(q.others, k)
	return 0
}

// giveTurn notes that it is this process's turn to lock a ref, and who waits
// behind it. They join those of a turn that it has already.
func (q *queues) giveTurn(project, ref string, behind Queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turns == nil || len(q.turns) >= maxTurns {
		q.turns = make(map[key]Queue)
	}
	k := key{project, ref}
	turn := q.turns[k]
	for _, w := range behind {
		if !slices.Contains(turn, w) {
			turn = append(turn, w)
		}
	}
	q.turns[k] = turn
}

// takeTurn ends the process's turn to lock a ref, and returns who waits behind it.
func (q *queues) takeTurn(project, ref string) (behind Queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := key{project, ref}
	behind = q.turns[k]
	delete(q.turns, k)
	return behind
}

// takeTurns ends the process's turns to lock refs, and returns the queues for a
// request that does so: nil, or one for each of them, with the waiter, unless it
// is zero, before those behind it.
func (q *queues) takeTurns(project string, refs []string, waiter Waiter) (all []Queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turns) == 0 {
		return nil
	}
	for i, ref := range refs {
		k := key{project, ref}
		behind, ok := q.turns[k]
		if !ok {
			continue
		}
		delete(q.turns, k)
		if all == nil {
			all = make([]Queue, len(refs))
		}
		if waiter != (Waiter{}) {
			behind = append(Queue{waiter}, behind...)
		}
		all[i] = behind
	}
	return all
}

// wake tells the first waiter for a ref to ask the database now, or reports that
// there is none that could: one that waits for other refs behind somebody else asks
// once it is the first for all.
func (q *queues) wake(project, ref string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.lines[key{project, ref}]
	if line == nil {
		return false
	}
	first := line.Front().Value.(*waiter)
	first.hint()
	return first.behind == 0
}

// wakeAll tells every first waiter to ask the database now.
func (q *queues) wakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, line := range q.lines {
		line.Front().Value.(*waiter).hint()
	}
}

// pause waits for d, a hint, or the end of limit.
func (w *waiter) pause(limit context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.wake:
	case <-t.C:
	case <-limit.Done():
	}
}

// forget drops a hint from before.
func (w *waiter) forget() {
	select {
	case <-w.wake:
	default:
	}
}

func (w *waiter) hint() {
	select {
	case w.wake <- struct{}{}:
	default: // one is pending already
	}
}
