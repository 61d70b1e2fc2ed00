package refdb

import (
	"container/list"
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// queues order the waiters of this process: for each (project, ref) first come,
// first served. Only a waiter that is first in all of its queues requests its locks
// from the database.
//
// A waiter enters the queues of all its refs at once. So there is one order of
// arrival, each waiter waits only for earlier ones, and no deadlock can arise: the
// earliest waiter is always ready. No waiter holds a lock while it waits here, and the
// database gives all the refs of a set or none.
//
// A waiter for several refs may be blocked for a long time: the database refused it for
// one of them, or it is not first for one. In the queues of its other refs it then lets
// waiters for a single ref pass: the first of them, one at a time, so that they keep
// their order. Passing only removes a wait, so that the argument above still holds.
// After [MaxPassed] of them it lets no more pass: their locks come free, and it is first.
//
// A lock that stands for an intent may never come free. While an intent blocks a waiter,
// directly or through the waiters ahead of it, any number may pass. Such a waiter polls,
// learns from its next request that the intent has ended, and counts from then on.
type queues struct {
	mu    sync.Mutex
	byRef map[key]*refQueue // has no empty queues
	// blocked are the queues in which a waiter could pass the first, but may not yet.
	blocked map[*refQueue]struct{}
	// held are the locks of this process: a waiter for one of them alone makes no request
	// before it is released.
	held    map[key]*Lock
	waiting int // how many waiters there are
}

type key struct{ project, ref string }

// A refQueue is the queue for one ref.
type refQueue struct {
	list.List              // of *waiter
	passing   *localWaiter // has passed the first, and requests the lock too
}

func (l *refQueue) first() *localWaiter { return l.Front().Value.(*localWaiter) }

// next is the waiter that passes the first or, if there is none, the first.
func (l *refQueue) next() *localWaiter {
	if l.passing != nil {
		return l.passing
	}
	return l.first()
}

// firstAlone is the first waiter for this ref alone, or nil.
func (l *refQueue) firstAlone() *localWaiter {
	for e := l.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*localWaiter); len(w.places) == 1 {
			return w
		}
	}
	return nil
}

// A localWaiter is a caller of Lock in its queues.
type localWaiter struct {
	id        string        // its ID in the database
	places    []queuePlace  // in the order of their refs
	behind    int           // in how many queues it is not first
	passedBy  int           // how many have passed it while no intent blocked it
	admitted  bool          // ready is closed
	ready     chan struct{} // closed when it is first in all of its queues, or passes the first
	wake      chan struct{} // buffered: tells it to request its locks now
	wakeTimer *time.Timer   // signals wake when another waiter's turn is over; nil before the first use
}

// A queuePlace is the place of a localWaiter in one queue.
type queuePlace struct {
	key    key
	queue  *refQueue
	elem   *list.Element
	holder *LockInfo // the fresh lock for which it was last refused, if any
}

// enter puts a new waiter at the end of the queues of all refs.
func (q *queues) enter(project string, refs []string) *localWaiter {
	w := &localWaiter{id: rand.Text(), ready: make(chan struct{}), wake: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting++
	if q.byRef == nil {
		q.byRef = make(map[key]*refQueue)
		q.blocked = make(map[*refQueue]struct{})
	}
	for _, ref := range refs {
		k := key{project, ref}
		l := q.byRef[k]
		if l == nil {
			l = new(refQueue)
			q.byRef[k] = l
		}
		if l.Len() > 0 {
			w.behind++
		}
		w.places = append(w.places, queuePlace{key: k, queue: l, elem: l.PushBack(w)})
	}
	if w.behind == 0 {
		w.admit()
	} else if len(w.places) == 1 {
		q.letPass(w.places[0].queue)
	}
	return w
}

// leave takes w out of its queues, and lets the waiters behind it move up.
func (q *queues) leave(w *localWaiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	for _, p := range w.places {
		l := p.queue
		wasFirst := l.Front() == p.elem
		l.Remove(p.elem)
		if l.passing == w {
			l.passing = nil
		}
		if l.Len() == 0 {
			delete(q.byRef, p.key)
			delete(q.blocked, l)
		} else if wasFirst {
			if next := l.first(); next == l.passing {
				next.behind, l.passing = 0, nil
			} else if next.behind--; next.behind == 0 {
				next.admit()
			}
		}
	}
	for _, p := range w.places {
		if p.queue.Len() > 0 {
			q.letPass(p.queue)
		}
	}
	q.letAllPass()
	w.places = nil
	if w.wakeTimer != nil {
		w.wakeTimer.Stop()
	}
}

// refused notes that the database refused w for the locks of holders.
func (q *queues) refused(w *localWaiter, holders []LockInfo) {
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
		q.letPass(p.queue)
	}
	q.letAllPass()
}

// letAllPass is letPass for all blocked queues: a change in one queue can let a waiter
// pass in another.
func (q *queues) letAllPass() {
	for l := range q.blocked {
		q.letPass(l)
	}
}

// letPass lets the first waiter for the ref alone pass those ahead of it, if the first
// in the queue is blocked by another ref.
func (q *queues) letPass(l *refQueue) {
	first, next := l.first(), l.firstAlone()
	switch {
	case l.passing != nil || next == nil || next == first:
		delete(q.blocked, l)
		return
	case first.blockedByIntent(l, map[*localWaiter]bool{}):
	case first.blockedElsewhere(l) && first.passedBy < driver.MaxPassed:
		first.passedBy++
	default:
		q.blocked[l] = struct{}{}
		return
	}
	delete(q.blocked, l)
	l.passing = next
	next.admit()
}

// blockedElsewhere reports whether w has to wait for a ref other than that of l.
func (w *localWaiter) blockedElsewhere(l *refQueue) bool {
	return slices.ContainsFunc(w.places, func(p queuePlace) bool {
		return p.queue != l && (p.holder != nil || p.queue.first() != w)
	})
}

// blockedByIntent reports whether w has to wait for an intent on a ref other than that of
// l, or for a waiter that does. seen are the waiters that were checked already.
func (w *localWaiter) blockedByIntent(l *refQueue, seen map[*localWaiter]bool) bool {
	seen[w] = true
	return slices.ContainsFunc(w.places, func(p queuePlace) bool {
		if p.queue == l {
			return false
		}
		if p.holder != nil && p.holder.Intended() {
			return true
		}
		first := p.queue.first()
		return !seen[first] && first.blockedByIntent(nil, seen)
	})
}

// queuedError says what w, which is not ready, waits for: the waiters ahead of it and the
// locks on its refs by which these were refused.
func (q *queues) queuedError(w *localWaiter) *LockedError {
	q.mu.Lock()
	defer q.mu.Unlock()
	locked := &LockedError{Queued: true}
	for _, p := range w.places {
		for _, other := range []*localWaiter{p.queue.next(), p.queue.first()} {
			i := slices.IndexFunc(other.places, func(o queuePlace) bool { return o.queue == p.queue })
			if h := other.places[i].holder; h != nil {
				locked.Holders = append(locked.Holders, *h)
				break
			}
		}
	}
	return locked
}

// addHeld notes that this process has a lock on refs.
func (q *queues) addHeld(l *Lock, refs []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held == nil {
		q.held = make(map[key]*Lock)
	}
	for _, ref := range refs {
		q.held[key{l.project, ref}] = l
	}
}

// removeHeld notes that this process no longer has l on refs.
func (q *queues) removeHeld(l *Lock, refs []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, ref := range refs {
		if k := (key{l.project, ref}); q.held[k] == l {
			delete(q.held, k)
		}
	}
}

// heldLock is this process's lock on the only ref of refs, or nil.
func (q *queues) heldLock(project string, refs []string) *Lock {
	if len(refs) > 1 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held[key{project, refs[0]}]
}

// nextAlone returns the ID of the next waiter for a ref if it waits for that ref alone: a
// waiter for several refs might not be able to take the lock.
func (q *queues) nextAlone(project, ref string) (id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.byRef[key{project, ref}]; l != nil && len(l.next().places) == 1 {
		return l.next().id
	}
	return ""
}

// wakeNext tells the next waiter for a ref to request its locks now.
func (q *queues) wakeNext(project, ref string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.byRef[key{project, ref}]; l != nil {
		signal(l.next().wake)
	}
}

// wakeWaiter tells one waiter for a ref to request its locks now. It returns false if that
// waiter is gone.
func (q *queues) wakeWaiter(project, ref, id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.find(project, ref, id)
	if w != nil {
		signal(w.wake)
	}
	return w != nil
}

// wakeWaiterAfter is wakeWaiter after d. A later call for the same waiter, for the turn of
// another one, replaces an earlier call.
func (q *queues) wakeWaiterAfter(project, ref, id string, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch w := q.find(project, ref, id); {
	case w == nil:
	case w.wakeTimer == nil:
		w.wakeTimer = time.AfterFunc(d, func() { signal(w.wake) })
	default:
		w.wakeTimer.Reset(d)
	}
}

// find returns a waiter for a ref, or nil.
func (q *queues) find(project, ref, id string) *localWaiter {
	l := q.byRef[key{project, ref}]
	if l == nil {
		return nil
	}
	for e := l.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*localWaiter); w.id == id {
			return w
		}
	}
	return nil
}

// wakeAll tells the first and the next waiter of every queue to request their locks now.
func (q *queues) wakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.byRef {
		signal(l.first().wake)
		signal(l.next().wake)
	}
}

// count returns how many waiters there are.
func (q *queues) count() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// admit lets w request its locks from the database.
func (w *localWaiter) admit() {
	if !w.admitted {
		w.admitted = true
		close(w.ready)
	}
}

// pause waits for d, or until limit ends. If w is woken before, it returns when.
func (w *localWaiter) pause(limit context.Context, d time.Duration) (woken time.Time) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-w.wake:
		return time.Now()
	case <-t.C:
	case <-limit.Done():
	}
	return time.Time{}
}

// drainWake drops an earlier wake-up.
func (w *localWaiter) drainWake() {
	select {
	case <-w.wake:
	default:
	}
}
