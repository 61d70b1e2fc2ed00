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
)

// Lock locks refs of a project, at most [MaxLockRefs], all or none, and waits
// for it as long as others hold fresh locks on some. Within this process
// callers for a ref are served in the order in which they came.
//
// It gives up when ctx ends or [Options].MaxWait has passed. The error then
// wraps ctx's, if that was it, and is a [*LockedError] if holders were seen.
func (db *DB) Lock(ctx context.Context, project string, refs ...string) (lock *Lock, err error) {
	refs, err = checkRefs(project, refs, MaxLockRefs)
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
	leave := func() {
		for _, k := range db.queues.leave(w) {
			db.passOn(k.project, k.ref) // a wake-up that came too late for this one
		}
	}
	defer leave()
	select {
	case <-w.first:
	default:
		select {
		case <-w.first:
		case <-limit.Done():
			leave() // those behind must not wait for the look
			return nil, fmt.Errorf("locking: %w", gaveUp(limit, db.standing(ctx, project, refs)))
		}
	}
	lock, err = db.lockFirst(ctx, limit, w, project, refs, &e)
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	return lock, nil
}

var errMaxWait = errors.New("wait limit reached")

// lockFirst asks the database, as the first of this process, until it gets the
// locks or limit ends. Requests under way are cut off by ctx's end only.
func (db *DB) lockFirst(ctx, limit context.Context, w *waiter, project string, refs []string, e *Event) (lock *Lock, err error) {
	poll := newBackOff(pollFirst, pollLast)
	var locked *LockedError // the latest refusal
	var heard time.Time     // when the database last answered, once it has
	w.pause(limit, db.queues.untilTurn(project, refs))
	for {
		w.forget()
		e.Attempts++
		hinted, waiter := db.hints.live.Load(), Waiter{}
		if hinted {
			waiter = db.waiter
		}
		lock, e.Reclaimed, err = db.acquire(ctx, project, refs, waiter)
		switch {
		case err == nil:
			return lock, nil
		case errors.As(err, &locked):
			heard = time.Now()
			db.listen()
		case errors.Is(err, ErrUnavailable) && ctx.Err() == nil && locked != nil && time.Since(heard) < db.opts.StaleAfter:
			// We queue already: sit a short outage out.
		case ctx.Err() != nil && locked != nil:
			return nil, gaveUp(ctx, locked)
		default:
			return nil, err
		}
		pause := poll.NextBackOff()
		if hinted {
			pause = jitter(pollHinted)
		}
		t := time.NewTimer(min(pause, untilStale(locked)))
		select {
		case <-t.C:
		case <-w.wake:
			poll.Reset()
		case <-limit.Done():
			t.Stop()
			return nil, gaveUp(limit, locked)
		}
		t.Stop()
	}
}

// standing says, for an error only, who holds the locks that were waited for.
func (db *DB) standing(ctx context.Context, project string, refs []string) *LockedError {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), detachedLimit)
	defer cancel()
	locked := &LockedError{}
	for _, ref := range refs[:min(len(refs), 10)] {
		holders, err := db.lockOn(ctx, project, ref)
		if err != nil {
			break
		}
		locked.Holders = append(locked.Holders, holders...)
	}
	return locked
}

// gaveUp is the error of a waiter whose limit ended.
func gaveUp(limit context.Context, locked *LockedError) error {
	if context.Cause(limit) == errMaxWait {
		return fmt.Errorf("%w: %w", errMaxWait, locked)
	}
	return fmt.Errorf("%w: %w", limit.Err(), locked)
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
