package refdb

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// hints receives a driver's notifications of released locks, from the first
// time that somebody has to wait. Without them waiters poll more often.
type hints struct {
	start sync.Once
	// live: a release that is waited for will be heard of.
	live atomic.Bool
}

// listen starts to receive hints, once, if the driver has any to give.
func (db *DB) listen() {
	notifier, ok := db.driver.(Notifier)
	if !ok {
		return
	}
	db.hints.start.Do(func() {
		db.inBackground(func() { db.hear(notifier) })
	})
}

// hear listens until the DB is closed, again and again after a lost connection.
func (db *DB) hear(n Notifier) {
	pause := newBackOff(100*time.Millisecond, 5*time.Second)
	for db.closing.Err() == nil {
		err := n.Listen(db.closing, db.waiter.Channel, func() {
			pause.Reset()
			db.hints.live.Store(true)
			// What was released before we listened was not heard.
			db.queues.wakeAll()
		}, db.wakeUp)
		db.hints.live.Store(false)
		db.queues.wakeAll() // they go over to polling
		if errors.Is(err, errors.ErrUnsupported) {
			db.opts.Logger.Info("no notifications through this connection: waiters poll")
			return
		}
		if db.closing.Err() == nil {
			db.opts.Logger.Warn("notifications interrupted: waiters poll until they are back", "class", ClassOf(err).String())
		}
		sleep(db.closing, pause.NextBackOff())
	}
}

// handoff says whether l, about to be released, goes next to a waiter of this
// process, past the driver's notifications, or whether this process goes back
// behind those that they wake.
func (db *DB) handoff(l *Lock) Handoff {
	if !db.hints.live.Load() || len(l.refs) > 1 {
		return Handoff{}
	}
	switch next, back := db.queues.handOver(l.project, l.refs[0]); {
	case next:
		return Handoff{Next: db.waiter}
	case back:
		return Handoff{Last: db.waiter}
	default:
		return Handoff{}
	}
}

// released notes that l was released with h, and wakes who waits for its refs
// here, unless the driver's notifications will: those keep the order among all
// processes. queues are those that the release answered with.
func (db *DB) released(l *Lock, h Handoff, queues []Queue) {
	next := h.Next != Waiter{}
	db.queues.handedOver(l.project, l.refs[0], next)
	switch {
	case next:
		var behind Queue
		if len(queues) > 0 {
			behind = queues[0]
		}
		db.queues.giveTurn(l.project, l.refs[0], behind)
		db.wake(l.project, l.refs[0])
	case !db.hints.live.Load():
		for _, ref := range l.refs {
			db.queues.wake(l.project, ref)
		}
	}
}

// wakeUp notes that it is this process's turn to lock a ref.
func (db *DB) wakeUp(w Wakeup) {
	if len(w.Queue) == 0 || w.Queue[0] != db.waiter {
		return // meant for somebody else behind the same channel
	}
	db.queues.giveTurn(w.Project, w.Ref, w.Queue[1:])
	db.wake(w.Project, w.Ref)
}

// wake tells who waits first for a ref in this process to ask the database now.
// If nobody does any more, it is the turn of other processes.
func (db *DB) wake(project, ref string) {
	if !db.queues.wake(project, ref) {
		db.passOn(project, ref)
	}
}

// passOn gives up this process's turn to lock a ref, if it has it.
func (db *DB) passOn(project, ref string) {
	db.passOnTo(project, ref, db.queues.takeTurn(project, ref))
}

func (db *DB) passOnTo(project, ref string, behind Queue) {
	if n, ok := db.driver.(Notifier); ok && len(behind) > 0 {
		n.PassOn(Wakeup{Project: project, Ref: ref, Queue: behind})
	}
}

// returnQueues sees to the queues of a request for locks that failed. The driver
// has put those of locks that stand back into their rows. Where none stands the
// others may have their turn. After another error it is still ours.
func (db *DB) returnQueues(r AcquireRequest, err error) {
	var locked *LockedError
	refused := errors.As(err, &locked)
	for i, q := range r.Queues {
		ref, behind := r.Refs[i], q
		if len(q) > 0 && q[0] == db.waiter {
			behind = q[1:]
		}
		switch {
		case q == nil:
		case !refused:
			db.queues.giveTurn(r.Project, ref, behind)
			if !db.queues.waits(r.Project, ref) {
				db.passOn(r.Project, ref) // whoever it was for has given up
			}
		case !slices.ContainsFunc(locked.Holders, func(l LockInfo) bool { return l.Ref == ref && !l.Stale() }):
			db.passOnTo(r.Project, ref, behind)
		}
	}
}

// sleep returns after d, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
