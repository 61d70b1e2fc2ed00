package refdb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// A waiter polls between pollFirst and pollLast, ever more slowly; every
	// pollHinted where notifications arrive, in case that one was lost.
	pollFirst  = 10 * time.Millisecond
	pollLast   = 250 * time.Millisecond
	pollHinted = time.Second
	// pollNext is the longest pause of one that is the next by its place, and is not told.
	pollNext = 50 * time.Millisecond

	// A lock is kept for a waiter for so long, and for two of its round trips: from when it is
	// told, or for as long as it may pause between two polls.
	turnHinted = 100 * time.Millisecond
	turnPolled = 2 * pollLast
	turnStep   = 20 * time.Millisecond
	tripsLast  = 2 * time.Second
)

// Lock locks refs of a project, at most [MaxLockRefs], all or none, and waits
// for it as long as others hold fresh locks on some. Within this process
// callers for a ref are served in the order in which they came.
//
// It gives up when ctx ends or [Options].MaxWait has passed, whatever the database
// does. The error then wraps ctx's, if that was it, and is a [*LockedError] if
// somebody was in the way; if the database has not answered so far, it wraps
// [ErrUnavailable]. What a request that is still under way gets is given back.
func (db *DB) Lock(ctx context.Context, project string, refs ...string) (lock *Lock, err error) {
	refs, err = checkRefs(project, refs, MaxLockRefs)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	e := Event{Op: OpLock, Refs: len(refs)}
	start := time.Now()
	defer func() { db.observe(e, start, err) }()

	limit := ctx
	if db.opts.MaxWait > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeoutCause(ctx, db.opts.MaxWait, errMaxWait)
		defer cancel()
	}
	w := db.queues.enter(project, refs)
	defer db.queues.leave(w)
	select {
	case <-w.first:
	default:
		select {
		case <-w.first:
		case <-limit.Done():
			return nil, fmt.Errorf("locking: %w", gaveUp(limit, db.queues.ahead(w)))
		}
	}
	lock, err = db.lockFirst(limit, w, project, refs, &e)
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	return lock, nil
}

var (
	errMaxWait  = errors.New("wait limit reached")
	errNoAnswer = fmt.Errorf("%w: it has not answered yet", ErrUnavailable)
)

// lockFirst asks the database, as the first of this process, until it gets the
// locks or limit ends.
func (db *DB) lockFirst(limit context.Context, w *waiter, project string, refs []string, e *Event) (*Lock, error) {
	poll := newBackOff(pollFirst, pollLast)
	var locked *LockedError // the latest refusal
	var heard time.Time     // when the database last answered, once it has
	waiter := Waiter{ID: w.id}
	if db.queues.holds(project, refs) {
		w.pause(limit, jitter(pollHinted)) // its release hands the lock over
	}
	for limit.Err() == nil {
		w.forget()
		e.Attempts++
		sent := time.Now()
		waiter.Channel, waiter.Turn = "", db.turn(turnPolled)
		if db.hints.live.Load() {
			waiter.Channel, waiter.Turn = db.channel, db.turn(turnHinted)
		}
		a, ok := db.acquireWithin(limit, project, refs, waiter)
		if !ok {
			break
		}
		e.Reclaimed = a.reclaimed
		switch {
		case a.err == nil:
			return a.lock, nil
		case errors.As(a.err, &locked):
			heard = time.Now()
			db.trip.Store(int64(heard.Sub(sent)))
			waiter.Place = a.place
			db.queues.refused(w, locked.Holders)
			db.listen()
		case errors.Is(a.err, ErrUnavailable) && locked != nil && time.Since(heard) < db.opts.StaleAfter:
			// We queue already: sit a short outage out.
		default:
			db.withdraw(project, refs, w.id)
			return nil, a.err
		}
		pause := waiter.pause(poll.NextBackOff(), len(refs))
		if !errors.Is(a.err, ErrUnavailable) { // else that was in the way some time ago
			pause = min(pause, untilStale(locked))
		}
		if w.pause(limit, pause) {
			poll.Reset()
		}
	}
	if locked == nil {
		return nil, gaveUp(limit, errNoAnswer)
	}
	db.withdraw(project, refs, w.id)
	return nil, gaveUp(limit, locked)
}

// turn is how long a lock is kept for a waiter of this process: two round trips more than that, as
// the last one took. It goes in steps, because each change is written to all of the waiter's queues.
func (db *DB) turn(d time.Duration) time.Duration {
	return d + min(2*time.Duration(db.trip.Load()), tripsLast).Truncate(turnStep)
}

// pause is how long w, who waits for a number of refs, may wait before it asks again: at most
// as long as polled, if it is not told when to ask.
func (w Waiter) pause(polled time.Duration, refs int) time.Duration {
	d := polled
	switch {
	case w.Channel != "":
		d = jitter(pollHinted)
	case w.Place.Ahead == 0:
		d = min(polled, jitter(pollNext))
	}
	if refs > 1 && w.Place.Passed >= MaxPassed {
		d = min(d, w.Turn/2) // some may be kept for it, as long as it asks
	}
	return d
}

// acquireWithin is acquire, unless limit ends before it has an answer. The request
// then goes on for a while in the background, and gives back what it gets.
func (db *DB) acquireWithin(limit context.Context, project string, refs []string, waiter Waiter) (a answer, ok bool) {
	answers := make(chan answer)
	if !db.inBackground(func() {
		ctx, cancel := db.past(limit)
		defer cancel()
		a := db.acquire(ctx, project, refs, waiter)
		if a.err != nil && db.ctx.Err() != nil {
			a.err = fmt.Errorf("%w: %v", ErrClosed, a.err)
		}
		select {
		case answers <- a:
		case <-limit.Done():
			if a.lock != nil {
				_ = a.lock.Release(db.ctx) // which sees to it
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

// gaveUp is the error of a waiter whose limit ended because of what was in the way.
func gaveUp(limit context.Context, inTheWay error) error {
	if context.Cause(limit) == errMaxWait {
		return fmt.Errorf("%w: %w", errMaxWait, inTheWay)
	}
	return fmt.Errorf("%w: %w", limit.Err(), inTheWay)
}

// untilStale is how long until the last of the holders would become stale, if
// it did not beat any more: before that there is nothing to get by waiting alone.
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
