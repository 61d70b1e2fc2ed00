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
		err := n.Listen(db.closing, func() {
			pause.Reset()
			db.hints.live.Store(true)
			// What was released before we listened was not heard.
			db.queues.wakeAll()
		}, db.wake)
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

// handOver reports whether l, about to be released, goes next to a waiter of this
// process, past the driver's notifications, or whether one goes back behind those
// that they wake.
func (db *DB) handOver(l *Lock) (next, back bool) {
	if !db.hints.live.Load() || len(l.refs) > 1 {
		return false, false
	}
	return db.queues.handOver(l.project, l.refs[0])
}

// released notes that l went next to a waiter of this process or not, as handOver
// said, and wakes who waits for its refs here, unless the driver's notifications
// will: those keep the order among all processes.
func (db *DB) released(l *Lock, next bool) {
	db.queues.handedOver(l.project, l.refs[0], next)
	if db.hints.live.Load() && !next {
		return
	}
	for _, ref := range l.refs {
		if next {
			db.wake(l.project, ref)
		} else {
			db.queues.wake(l.project, ref)
		}
	}
}

// wake tells who waits first for a ref in this process to ask the database now.
// If nobody does any more, it is the turn of other processes.
func (db *DB) wake(project, ref string) {
	if !db.queues.wake(project, ref) {
		db.passOn(project, ref)
	}
}

func (db *DB) passOn(project, ref string) {
	if n, ok := db.driver.(Notifier); ok {
		n.PassOn(project, ref)
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
