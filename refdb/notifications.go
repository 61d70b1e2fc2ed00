package refdb

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
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
	if _, ok, err := engine.RoleOf[driver.Notifier](db.engine); !ok && err == nil {
		return
	}
	db.notifications.start.Do(func() { db.engine.InBackground(db.listen) })
}

// listen receives notifications until the DB is closed. It waits until the driver is open, and
// reconnects after a lost connection.
func (db *DB) listen() {
	select {
	case <-db.engine.Opened():
	case <-db.engine.Closing.Done():
	}
	n, ok, _ := engine.RoleOf[driver.Notifier](db.engine)
	if !ok {
		return
	}
	pause := engine.NewBackOff(100*time.Millisecond, 5*time.Second)
	for db.engine.Closing.Err() == nil {
		err := n.Listen(db.engine.Closing, db.channel, func() {
			pause.Reset()
			db.notifications.active.Store(true)
			// Releases before this moment were not notified.
			db.queues.wakeAll()
		}, db.wakeUp)
		db.notifications.active.Store(false)
		db.queues.wakeAll() // from now on they poll
		if errors.Is(err, errors.ErrUnsupported) {
			db.engine.Logger.Info("no notifications through this connection: waiters poll")
			return
		}
		if db.engine.Closing.Err() == nil {
			db.engine.Logger.Warn("notifications interrupted: waiters poll until they are back", "class", ClassOf(err).String())
		}
		engine.Sleep(db.engine.Closing, pause.NextBackOff())
	}
}

// nextWaiter is the waiter of this process that comes next for refs, whose lock is about to be
// released.
func (db *DB) nextWaiter(project string, refs []string) driver.Waiter {
	if !db.notifications.active.Load() || len(refs) > 1 {
		return driver.Waiter{}
	}
	id := db.queues.nextAlone(project, refs[0])
	if id == "" {
		return driver.Waiter{}
	}
	return driver.Waiter{ID: id, Channel: db.channel, Turn: db.turn(turnNotified)}
}

// afterRelease wakes the waiters of this process for refs of l, which were released to next.
// Unless next is zero the driver wakes it at its turn. But if the answer was lost, or the DB no
// longer listens, no such notification may come.
func (db *DB) afterRelease(l *Lock, refs []string, next driver.Waiter) {
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
func (db *DB) wakeUp(w driver.Wakeup) {
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
	db.engine.InBackground(func() {
		ctx, cancel := db.engine.AttemptContext(db.engine.Lasting)
		defer cancel()
		r := driver.AbandonRequest{Project: project, Refs: refs, Owner: db.engine.Owner, Waiter: waiter}
		d, err := db.engine.Driver()
		if err == nil {
			err = d.Abandon(ctx, r)
		}
		if err != nil {
			db.engine.Logger.Debug("a waiter that gave up could not be taken out of its queue", "lock", db.engine.Digest(project, refs), "class", ClassOf(err).String())
		}
	})
}
