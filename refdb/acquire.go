package refdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// TryLock locks refs of a project, at most [MaxLockRefs], all or none, without
// waiting. It takes stale locks over. While others hold fresh locks on some of
// the refs, the error is a [*LockedError] that names every holder.
func (db *DB) TryLock(ctx context.Context, project string, refs ...string) (lock *Lock, err error) {
	refs, err = engine.CheckRefs(project, refs, MaxLockRefs)
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	start := time.Now()
	var a answer
	defer func() {
		db.engine.Observed(Event{Op: driver.OpTryLock, Refs: len(refs), Reclaimed: a.reclaimed, Attempts: 1}, start, err)
	}()
	a = db.acquire(ctx, project, refs, driver.Waiter{})
	if a.err != nil {
		return nil, fmt.Errorf("locking: %w", a.err)
	}
	return a.lock, nil
}

// An answer is what became of a request for locks.
type answer struct {
	lock      *Lock
	reclaimed int
	place     driver.Place // of the waiter, if the locks were refused
	err       error
}

// acquire requests the locks once, or more often if replies are lost. waiter,
// unless zero, enters their queues if they are refused.
func (db *DB) acquire(ctx context.Context, project string, refs []string, waiter driver.Waiter) answer {
	r := driver.AcquireRequest{
		Project: project, Refs: refs, Owner: db.engine.Owner, Nonce: rand.Text(),
		StaleAfter: db.engine.StaleAfter, Waiter: waiter,
	}
	// The lease counts from before the first request: whichever request took
	// effect, its rows are not older than that.
	sent := db.keeper.Now()
	a, _, err := db.engine.Acquire(ctx, r)
	if err != nil {
		return answer{place: a.Place, err: err}
	}
	return db.newLock(ctx, r, a, sent)
}

// newLock returns a Lock on the acquired rows, and starts its lease.
func (db *DB) newLock(ctx context.Context, r driver.AcquireRequest, a driver.Acquired, sent heartbeat.Instant) answer {
	l := &Lock{
		db: db, project: r.Project, refs: r.Refs, token: a.Token,
		values: make(map[string]Value, len(a.Refs)), start: time.Now(), parent: ctx,
		ending: make(chan struct{}, 1),
	}
	for _, ref := range a.Refs {
		l.values[ref.Name] = ref.Value
	}
	db.queues.addHeld(l, r.Refs)
	l.lease = db.keeper.Keep(l, sent)
	switch err := l.Err(); {
	case errors.Is(err, ErrClosed):
		// No caller will release it.
		db.queues.removeHeld(l, r.Refs)
		db.engine.Abandon(r)
		return answer{err: err}
	case err != nil:
		// The answer took longer than the lease lasts.
		db.queues.removeHeld(l, r.Refs)
		db.engine.Abandon(r)
		return answer{err: fmt.Errorf("%w: the locks were granted too late to be kept: %v", ErrUnavailable, err)}
	}
	if n := len(a.Reclaimed); n > 0 {
		db.engine.Logger.WarnContext(ctx, "stale locks taken over", "lock", db.engine.Digest(r.Project, r.Refs),
			"reclaimed", n, "age", a.Reclaimed[0].Age, "stale_after", a.Reclaimed[0].StaleAfter)
	}
	return answer{lock: l, reclaimed: len(a.Reclaimed)}
}

// WithLock locks refs of a project as [DB.Lock] does, runs fn, and releases the lock
// when fn has returned, failed or panicked. The context of fn ends when the lock is lost or
// released, with [Lock.Err] as its cause, and when ctx does.
//
// If the refs can't be locked, it returns that error and fn is not run. Otherwise it returns the
// errors of fn and of the release, joined. That of the release wraps [ErrLockLost] if the lock did
// not stand until the end. fn may end the lock itself, by [Lock.UpdateAndRelease] or
// [Lock.Release].
func (db *DB) WithLock(ctx context.Context, project string, refs []string, fn func(ctx context.Context, lock *Lock) error) (err error) {
	lock, err := db.Lock(ctx, project, refs...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release(ctx)) }()
	guarded, cancel := context.WithCancelCause(lock.Context())
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	return fn(guarded, lock)
}
