package refdb

import (
	"container/list"
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"
)

// queues order the waiters of this process: for each (project, ref) first
// come, first served, and only who is first in all of its queues asks the database.
//
// A set of refs enters all of its queues at once. So there is one order in which
// all waiters came, and each waits only for some that came earlier: no circle of waiting
// can arise, and whoever came first of all can always ask. Nobody holds a lock while
// it waits here, and the database gives all the refs of a set or none.
//
// One that waits for several refs may be unable to go on for a long time: because the
// database refused it for one of them, or because it is not first for one. For the
// others it then lets those pass who wait for a single ref: the first of them, one at a
// time, so that they keep their order among each other. Passing only takes a wait
// away, so that the order above still holds. After [MaxPassed] of them it lets nobody pass any
// more: what they hold comes free, and it is first. What stands for an intent may
// never come free; while that is what stops it, directly or by way of those ahead of it,
// any number may pass. It learns that the intent has ended when it asks again, which it does
// by itself, and counts from then on.
type queues struct {
	mu    sync.Mutex
	lines map[key]*line // a line that is empty is deleted
	// stopped are the lines in which somebody might pass the first, but may not yet.
	stopped map[*line]struct{}
	// held are the locks of this process: who waits for one of them alone need not ask the
	// database before it is released.
	held map[key]*Lock
}

type key struct{ project, ref string }

// A line is the queue for one ref.
type line struct {
	list.List         // of *waiter
	passing   *waiter // has passed the first, and asks the database too
}

func (l *line) first() *waiter { return l.Front().Value.(*waiter) }

// next is whoever asks next for the ref alone or, if there is none, the first.
func (l *line) next() *waiter {
	if l.passing != nil {
		return l.passing
	}
	return l.first()
}

// firstAlone is the first who waits for nothing but this ref, or nil.
func (l *line) firstAlone() *waiter {
	for e := l.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter); len(w.places) == 1 {
			return w
		}
	}
	return nil
}

// A waiter is a caller of Lock in its queues.
type waiter struct {
	id     string        // by which the database knows it
	places []place       // in the order of their refs
	behind int           // in how many queues it is not first
	passes int           // how many have passed it, those that it may have to wait for without end left out
	asks   bool          // first is closed
	first  chan struct{} // closed once it is first in all, or passes
	wake   chan struct{} // buffered: a hint to ask the database now
	later  *time.Timer   // gives that hint after somebody else's turn; nil before the first
}

type place struct {
	key    key
	line   *line
	elem   *list.Element
	holder *LockInfo // of the fresh lock that it was refused for last, if any
}

// enter puts a new waiter at the end of the queues of all refs.
func (q *queues) enter(project string, refs []string) *waiter {
	w := &waiter{id: rand.Text(), first: make(chan struct{}), wake: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lines == nil {
		q.lines = make(map[key]*line)
		q.stopped = make(map[*line]struct{})
	}
	for _, ref := range refs {
		k := key{project, ref}
		l := q.lines[k]
		if l == nil {
			l = new(line)
			q.lines[k] = l
		}
		if l.Len() > 0 {
			w.behind++
		}
		w.places = append(w.places, place{key: k, line: l, elem: l.PushBack(w)})
	}
	if w.behind == 0 {
		w.ask()
	} else if len(w.places) == 1 {
		q.letPass(w.places[0].line)
	}
	return w
}

// leave takes w out of its queues, which hands over to those behind it.
func (q *queues) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range w.places {
		l := p.line
		wasFirst := l.Front() == p.elem
		l.Remove(p.elem)
		if l.passing == w {
			l.passing = nil
		}
		if l.Len() == 0 {
			delete(q.lines, p.key)
			delete(q.stopped, l)
		} else if wasFirst {
			if next := l.first(); next == l.passing {
				next.behind, l.passing = 0, nil
			} else if next.behind--; next.behind == 0 {
				next.ask()
			}
		}
	}
	for _, p := range w.places {
		if p.line.Len() > 0 {
			q.letPass(p.line)
		}
	}
	q.letAllPass()
	w.places = nil
	if w.later != nil {
		w.later.Stop()
	}
}

// refused notes that the database refused w for the locks of holders.
func (q *queues) refused(w *waiter, holders []LockInfo) {
	fresh := make(map[string]*LockInfo, len(holders))
	for i, h := range holders {
		if !h.Stale() {
			fresh[h.Ref] = &holders[i]
		}
	}
	intended := func(h *LockInfo) bool { return h != nil && h.Intended() }
	q.mu.Lock()
	defer q.mu.Unlock()
	changed := false
	for i := range w.places {
		p := &w.places[i]
		before := p.holder
		p.holder = fresh[p.key.ref]
		changed = changed || (before == nil) != (p.holder == nil) || intended(before) != intended(p.holder)
	}
	if !changed {
		return
	}
	for _, p := range w.places {
		q.letPass(p.line)
	}
	q.letAllPass()
}

// letAllPass is letPass for the lines whose first may have been stopped by what
// has just changed in another one.
func (q *queues) letAllPass() {
	for l := range q.stopped {
		q.letPass(l)
	}
}

// letPass lets the first who waits for the ref alone pass those before it, if the
// first of these can't go on for another ref's sake.
func (q *queues) letPass(l *line) {
	first, next := l.first(), l.firstAlone()
	switch {
	case l.passing != nil || next == nil || next == first:
		delete(q.stopped, l)
		return
	case first.stoppedForGood(l, map[*waiter]bool{}):
	case first.stoppedBeside(l) && first.passes < MaxPassed:
		first.passes++
	default:
		q.stopped[l] = struct{}{}
		return
	}
	delete(q.stopped, l)
	l.passing = next
	next.ask()
}

// stoppedBeside reports whether w has to wait for another ref than that of l.
func (w *waiter) stoppedBeside(l *line) bool {
	return slices.ContainsFunc(w.places, func(p place) bool {
		return p.line != l && (p.holder != nil || p.line.first() != w)
	})
}

// stoppedForGood reports whether w has to wait for what stands for an intent on another
// ref than that of l, or for somebody who does. seen are those who were looked at.
func (w *waiter) stoppedForGood(l *line, seen map[*waiter]bool) bool {
	seen[w] = true
	return slices.ContainsFunc(w.places, func(p place) bool {
		if p.line == l {
			return false
		}
		if p.holder != nil && p.holder.Intended() {
			return true
		}
		first := p.line.first()
		return !seen[first] && first.stoppedForGood(nil, seen)
	})
}

// ahead says what w waits for, which is not the first in all of its queues: those
// before it and, as far as these were told, the locks on its refs.
func (q *queues) ahead(w *waiter) *LockedError {
	q.mu.Lock()
	defer q.mu.Unlock()
	locked := &LockedError{Queued: true}
	for _, p := range w.places {
		for _, other := range []*waiter{p.line.next(), p.line.first()} {
			i := slices.IndexFunc(other.places, func(o place) bool { return o.line == p.line })
			if h := other.places[i].holder; h != nil {
				locked.Holders = append(locked.Holders, *h)
				break
			}
		}
	}
	return locked
}

// hold notes that this process has a lock.
func (q *queues) hold(l *Lock) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held == nil {
		q.held = make(map[key]*Lock)
	}
	for _, ref := range l.refs {
		q.held[key{l.project, ref}] = l
	}
}

// ended notes that it has l no more.
func (q *queues) ended(l *Lock) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, ref := range l.refs {
		if k := (key{l.project, ref}); q.held[k] == l {
			delete(q.held, k)
		}
	}
}

// holds reports whether this process has the lock on the one ref that somebody waits for.
func (q *queues) holds(project string, refs []string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(refs) == 1 && q.held[key{project, refs[0]}] != nil
}

// nextAlone returns the ID of the waiter who asks next for a ref, if it waits for that alone:
// one who waits for others, too, might not be able to take it.
func (q *queues) nextAlone(project, ref string) (id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[key{project, ref}]; l != nil && len(l.next().places) == 1 {
		return l.next().id
	}
	return ""
}

// wake tells the next waiter for a ref to ask the database now.
func (q *queues) wake(project, ref string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[key{project, ref}]; l != nil {
		l.next().hint()
	}
}

// wakeWaiter tells one waiter for a ref to ask the database now, or reports that it
// waits no more.
func (q *queues) wakeWaiter(project, ref, id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.find(project, ref, id)
	if w != nil {
		w.hint()
	}
	return w != nil
}

// wakeWaiterAfter does so after d, unless it is told again before: then it is still somebody else's turn.
func (q *queues) wakeWaiterAfter(project, ref, id string, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch w := q.find(project, ref, id); {
	case w == nil:
	case w.later == nil:
		w.later = time.AfterFunc(d, w.hint)
	default:
		w.later.Reset(d)
	}
}

// find returns a waiter for a ref, or nil.
func (q *queues) find(project, ref, id string) *waiter {
	l := q.lines[key{project, ref}]
	if l == nil {
		return nil
	}
	for e := l.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*waiter); w.id == id {
			return w
		}
	}
	return nil
}

// wakeAll tells every waiter that asks to do so now.
func (q *queues) wakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines {
		l.first().hint()
		l.next().hint()
	}
}

// ask tells w that it may ask the database.
func (w *waiter) ask() {
	if !w.asks {
		w.asks = true
		close(w.first)
	}
}

// pause waits for d, or until limit ends. It reports whether a hint came first.
func (w *waiter) pause(limit context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.wake:
		return true
	case <-t.C:
	case <-limit.Done():
	}
	return false
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
