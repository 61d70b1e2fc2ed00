package refdb

import (
	"context"
	"errors"
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
		err := n.Listen(db.closing, db.channel, func() {
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

// next is who of this process gets l, about to be released, past the driver's notifications.
func (db *DB) next(l *Lock) Waiter {
	if !db.hints.live.Load() || len(l.refs) > 1 {
		return Waiter{}
	}
	id := db.queues.nextAlone(l.project, l.refs[0])
	if id == "" {
		return Waiter{}
	}
	return Waiter{ID: id, Channel: db.channel, Turn: db.turn(turnHinted)}
}

// released wakes who waits here for the refs of l, which was released to next. If that one has given
// up meanwhile, the lock may be kept for it.
func (db *DB) released(l *Lock, next Waiter) {
	db.queues.ended(l)
	for _, ref := range l.refs {
		db.queues.wake(l.project, ref)
	}
	if next.ID != "" && !db.queues.wakeWaiter(l.project, l.refs[0], next.ID) {
		db.withdraw(l.project, l.refs, next.ID)
	}
}

// wakeUp tells a waiter of this process that a lock is kept for it. If it has given up, those
// behind it need not wait until its turn is over.
func (db *DB) wakeUp(w Wakeup) {
	if w.After > 0 {
		db.queues.wakeWaiterAfter(w.Project, w.Ref, w.Waiter, w.After)
		return
	}
	if !db.queues.wakeWaiter(w.Project, w.Ref, w.Waiter) {
		db.withdraw(w.Project, []string{w.Ref}, w.Waiter)
	}
}

// withdraw takes a waiter that has given up out of its queues. If that fails, its places cost
// the others its turn.
func (db *DB) withdraw(project string, refs []string, waiter string) {
	db.inBackground(func() {
		ctx, cancel := db.attempt(db.ctx)
		defer cancel()
		r := AbandonRequest{Project: project, Refs: refs, Owner: db.owner, Waiter: waiter}
		if err := db.driver.Abandon(ctx, r); err != nil {
			db.opts.Logger.Debug("a waiter that gave up could not be taken out of its queue", "lock", db.digest(project, refs), "class", ClassOf(err).String())
		}
	})
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
