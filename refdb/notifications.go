package refdb

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// notifications are whether the driver's notifications of released locks arrive. A
// DB listens from the first time that a caller has to wait. Without notifications
// waiters poll more often.
type notifications struct {
	start sync.Once
	// active: the DB is listening, and misses no notification.
	active atomic.Bool
}

// startListening starts to receive notifications, once, if the driver has any.
func (db *DB) startListening() {
	if _, ok, err := roleOf[Notifier](db.driver); !ok && err == nil {
		return
	}
	db.notifications.start.Do(func() { db.inBackground(db.listen) })
}

// listen receives notifications until the DB is closed. It waits until the driver is open, and
// reconnects after a lost connection.
func (db *DB) listen() {
	select {
	case <-db.driver.done:
	case <-db.closing.Done():
	}
	n, ok, _ := roleOf[Notifier](db.driver)
	if !ok {
		return
	}
	pause := newBackOff(100*time.Millisecond, 5*time.Second)
	for db.closing.Err() == nil {
		err := n.Listen(db.closing, db.channel, func() {
			pause.Reset()
			db.notifications.active.Store(true)
			// Releases before this moment were not notified.
			db.queues.wakeAll()
		}, db.wakeUp)
		db.notifications.active.Store(false)
		db.queues.wakeAll() // from now on they poll
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

// nextWaiter is the waiter of this process that comes next for refs, whose lock is about to be released.
func (db *DB) nextWaiter(project string, refs []string) Waiter {
	if !db.notifications.active.Load() || len(refs) > 1 {
		return Waiter{}
	}
	id := db.queues.nextAlone(project, refs[0])
	if id == "" {
		return Waiter{}
	}
	return Waiter{ID: id, Channel: db.channel, Turn: db.turn(turnNotified)}
}

// afterRelease wakes the waiters of this process for refs of l, which were released to next.
// Unless next is zero the driver wakes it at its turn. But if the answer was lost, or the DB no
// longer listens, no such notification may come.
func (db *DB) afterRelease(l *Lock, refs []string, next Waiter) {
	db.queues.removeHeld(l, refs)
	if next.ID != "" && !l.replyLost() && db.notifications.active.Load() {
		return
	}
	for _, ref := range refs {
		db.queues.wakeNext(l.project, ref)
	}
}

// wakeUp tells a waiter of this process that a lock is kept for it. If that waiter has given up,
// it is withdrawn, so that the others need not wait until its turn is over.
func (db *DB) wakeUp(w Wakeup) {
	if w.After > 0 {
		db.queues.wakeWaiterAfter(w.Project, w.Ref, w.Waiter, w.After)
		return
	}
	if !db.queues.wakeWaiter(w.Project, w.Ref, w.Waiter) {
		db.withdraw(w.Project, []string{w.Ref}, w.Waiter)
	}
}

// withdraw takes a waiter that has given up out of its queues. If that fails, the others wait
// for its turn to end.
func (db *DB) withdraw(project string, refs []string, waiter string) {
	db.inBackground(func() {
		ctx, cancel := db.attemptContext(db.ctx)
		defer cancel()
		r := AbandonRequest{Project: project, Refs: refs, Owner: db.owner, Waiter: waiter}
		d, err := db.driver.get()
		if err == nil {
			err = d.Abandon(ctx, r)
		}
		if err != nil {
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
