package refdb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

const (
	// A waiter's pauses between polls grow from pollMin to pollMax. Where
	// notifications arrive it polls every pollNotified, in case one was lost.
	pollMin      = 10 * time.Millisecond
	pollMax      = 250 * time.Millisecond
	pollNotified = time.Second
	// pollNext is the longest pause of a waiter that is the next but is not notified.
	pollNext = 50 * time.Millisecond

	// A lock is kept for a waiter for this long and two round trips: turnNotified counts
	// from the notification, turnPolled covers the longest pause between two polls.
	turnNotified  = 100 * time.Millisecond
	turnPolled    = 2 * pollMax
	turnStep      = 20 * time.Millisecond
	roundTripsMax = 2 * time.Second
)

// Lock locks refs of a project, at most [MaxLockRefs], all or none. It waits while
// others hold fresh locks on some of them. Within this process callers for a ref
// are served in the order in which they came.
//
// It gives up when ctx ends or [Options].MaxWait has passed, even if a request is
// under way; the locks that such a request gets are released. If ctx ended, the
// error wraps ctx's. If locks were in the way it is a [*LockedError]; if the
// database has not answered so far, it wraps [ErrUnavailable].
func (db *DB) Lock(ctx context.Context, project string, refs ...string) (lock *Lock, err error) {
	refs, err = engine.CheckRefs(project, refs, MaxLockRefs)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	e := Event{Op: driver.OpLock, Refs: len(refs)}
	start := time.Now()
	defer func() { db.engine.Observed(e, start, err) }()

	limit := ctx
	if db.maxWait > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeoutCause(ctx, db.maxWait, errMaxWait)
		defer cancel()
	}
	w := db.queues.enter(project, refs)
	defer db.queues.leave(w)
	select {
	case <-w.ready:
	default:
		select {
		case <-w.ready:
		case <-limit.Done():
			return nil, fmt.Errorf("locking: %w", gaveUp(limit, db.queues.queuedError(w)))
		}
	}
	lock, err = db.pollUntilLocked(limit, w, project, refs, start, &e)
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	return lock, nil
}

var (
	errMaxWait  = errors.New("wait limit reached")
	errNoAnswer = fmt.Errorf("%w: it has not answered yet", ErrUnavailable)
)

// pollUntilLocked requests the locks from the database until it gets them or limit
// ends. w is ready: it is the first in its queues, or passes the first. The call of
// Lock began at start.
func (db *DB) pollUntilLocked(limit context.Context, w *localWaiter, project string, refs []string, start time.Time, e *Event) (*Lock, error) {
	poll := engine.NewBackOff(pollMin, pollMax)
	var locked *LockedError  // the latest refusal
	var answeredAt time.Time // when the latest refusal came
	var wokenAt time.Time    // when it was woken; zero if it only paused
	dbWaiter := driver.Waiter{ID: w.id}
	if l := db.queues.heldLock(project, refs); l != nil {
		wokenAt = w.pause(limit, jitter(pollNotified)) // l's release wakes w, or enqueues it
		if limit.Err() != nil {
			db.withdraw(project, refs, w.id) // in case l's release has enqueued it
			return nil, gaveUp(limit, &LockedError{Holders: []LockInfo{l.info(refs[0])}})
		}
	}
	for limit.Err() == nil {
		w.drainWake()
		e.Attempts++
		sent := time.Now()
		dbWaiter.Channel, dbWaiter.Turn = "", db.turn(turnPolled)
		if db.notifications.active.Load() {
			dbWaiter.Channel, dbWaiter.Turn = db.channel, db.turn(turnNotified)
		}
		a, ok := db.acquireWithin(limit, project, refs, dbWaiter)
		if !ok {
			break
		}
		e.Reclaimed = a.reclaimed
		switch {
		case a.err == nil:
			e.Waited = sent.Sub(start)
			if !wokenAt.IsZero() {
				e.HandOver = time.Since(wokenAt)
			}
			return a.lock, nil
		case errors.As(a.err, &locked):
			answeredAt = time.Now()
			db.roundTrip.Store(int64(answeredAt.Sub(sent)))
			dbWaiter.Place = a.place
			db.queues.refused(w, locked.Holders)
			db.startListening()
		case errors.Is(a.err, ErrUnavailable) && locked != nil && time.Since(answeredAt) < db.engine.StaleAfter:
			// It is in the queue already: a short outage need not end the wait.
		default:
			db.withdraw(project, refs, w.id)
			return nil, a.err
		}
		pause := pauseOf(dbWaiter, poll.NextBackOff(), len(refs))
		if !errors.Is(a.err, ErrUnavailable) { // in an outage locked is out of date
			pause = min(pause, untilStale(locked))
		}
		if wokenAt = w.pause(limit, pause); !wokenAt.IsZero() {
			poll.Reset()
		}
	}
	if locked == nil {
		return nil, gaveUp(limit, errNoAnswer)
	}
	db.withdraw(project, refs, w.id)
	return nil, gaveUp(limit, locked)
}

// turn is how long a lock is kept for a waiter of this process: d and two round trips, measured by
// the last one. It changes in steps, because each change is written to all of the waiter's queues.
func (db *DB) turn(d time.Duration) time.Duration {
	return d + min(2*time.Duration(db.roundTrip.Load()), roundTripsMax).Truncate(turnStep)
}

// pauseOf is how long w, which waits for that many refs, may wait before its next request. Without
// notifications that is at most polled.
func pauseOf(w driver.Waiter, polled time.Duration, refs int) time.Duration {
	d := polled
	switch {
	case w.Channel != "":
		d = jitter(pollNotified)
	case w.Place.Ahead == 0:
		d = min(polled, jitter(pollNext))
	}
	if refs > 1 && w.Place.Passed >= driver.MaxPassed {
		d = min(d, w.Turn/2) // its reservations stay only while it keeps asking
	}
	return d
}

// acquireWithin is acquire, unless limit ends before the answer comes; then ok is
// false. The request goes on for a while in the background, and releases the locks
// that it gets.
func (db *DB) acquireWithin(limit context.Context, project string, refs []string, waiter driver.Waiter) (a answer, ok bool) {
	answers := make(chan answer)
	if !db.engine.InBackground(func() {
		ctx, cancel := db.engine.Extend(limit)
		defer cancel()
		a := db.acquire(ctx, project, refs, waiter)
		if a.err != nil && db.engine.Lasting.Err() != nil {
			a.err = fmt.Errorf("%w: %v", ErrClosed, a.err)
		}
		select {
		case answers <- a:
		case <-limit.Done():
			if a.lock != nil {
				_ = a.lock.Release(db.engine.Lasting) // retries in the background if it fails
			} else {
				db.withdraw(project, refs, waiter.ID)
			}
		}
	}) {
		return answer{err: ErrClosed}, true
	}
	select {
	case a := <-answers:
		return a, true
	case <-limit.Done():
		return answer{}, false
	}
}

// gaveUp is the error of a waiter whose limit ended. inTheWay is why it did not get the locks.
func gaveUp(limit context.Context, inTheWay error) error {
	if context.Cause(limit) == errMaxWait {
		return fmt.Errorf("%w: %w", errMaxWait, inTheWay)
	}
	return fmt.Errorf("%w: %w", limit.Err(), inTheWay)
}

// untilStale is the time until the last of the holders would become stale if it
// sent no more beats. Unless a lock is released, polling before that is useless.
func untilStale(locked *LockedError) time.Duration {
	var d time.Duration
	for _, h := range locked.Holders {
		d = max(d, h.StaleAfter-h.Age)
	}
	return d + time.Millisecond
}

// jitter spreads d by half, so that waiters of many processes don't keep in step.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d)
}
