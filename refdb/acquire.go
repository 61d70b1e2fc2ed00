package refdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
)

// TryLock locks refs of a project, at most [MaxLockRefs], all or none, without
// waiting. It takes stale locks over. While others hold fresh locks on some of
// the refs, the error is a [*LockedError] that names every holder.
func (db *DB) TryLock(ctx context.Context, project string, refs ...string) (lock *Lock, err error) {
	refs, err = checkRefs(project, refs, MaxLockRefs)
	if err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	start := time.Now()
	var a answer
	defer func() {
		db.observe(Event{Op: OpTryLock, Refs: len(refs), Reclaimed: a.reclaimed, Attempts: 1}, start, err)
	}()
	a = db.acquire(ctx, project, refs, Waiter{})
	if a.err != nil {
		return nil, fmt.Errorf("locking: %w", a.err)
	}
	return a.lock, nil
}

// An answer is what became of a request for locks.
type answer struct {
	lock      *Lock
	reclaimed int
	place     Place // of the waiter, if the locks were refused
	err       error
}

// acquire requests the locks once, or more often if replies are lost. waiter,
// unless zero, enters their queues if they are refused.
func (db *DB) acquire(ctx context.Context, project string, refs []string, waiter Waiter) answer {
	r := AcquireRequest{
		Project: project, Refs: refs, Owner: db.owner, Nonce: rand.Text(),
		StaleAfter: db.opts.StaleAfter, Waiter: waiter,
	}
	// The lease counts from before the first request: whichever request took
	// effect, its rows are not older than that.
	sent := db.keeper.Now()
	a, err := db.requestLocks(ctx, r)
	if err != nil {
		return answer{place: a.Place, err: err}
	}
	return db.newLock(ctx, r, a, sent)
}

// requestLocks sends r, again if the reply is lost.
func (db *DB) requestLocks(ctx context.Context, r AcquireRequest) (Acquired, error) {
	if db.closing.Err() != nil {
		return Acquired{}, ErrClosed
	}
	if err := db.schemaError(); err != nil {
		return Acquired{}, err
	}
	var mayHold, unconfirmed bool // mayHold: the database may have granted the locks
	a, err := retry(ctx, db, func(d Driver) (Acquired, error) {
		a, err := d.Acquire(ctx, r)
		unconfirmed = errors.Is(err, ErrUnconfirmed)
		if errors.Is(err, ErrOutcomeUnknown) && !unconfirmed {
			// Rows with our nonce are ours: the next request finds them.
			mayHold = true
			err = fmt.Errorf("%w: %v", ErrUnavailable, err)
		}
		return a, err
	})
	if unconfirmed {
		// Finding our rows would not confirm them.
		mayHold = true
		err = fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	if err != nil {
		if mayHold && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		if mayHold {
			db.abandon(r)
		}
	}
	return a, err
}

// newLock returns a Lock on the acquired rows, and starts its lease.
func (db *DB) newLock(ctx context.Context, r AcquireRequest, a Acquired, sent heartbeat.Instant) answer {
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
		db.abandon(r)
		return answer{err: err}
	case err != nil:
		// The answer took longer than the lease lasts.
		db.queues.removeHeld(l, r.Refs)
		db.abandon(r)
		return answer{err: fmt.Errorf("%w: the locks were granted too late to be kept: %v", ErrUnavailable, err)}
	}
	if n := len(a.Reclaimed); n > 0 {
		db.opts.Logger.WarnContext(ctx, "stale locks taken over", "lock", db.digest(r.Project, r.Refs),
			"reclaimed", n, "age", a.Reclaimed[0].Age, "stale_after", a.Reclaimed[0].StaleAfter)
	}
	return answer{lock: l, reclaimed: len(a.Reclaimed)}
}

// abandon deletes the rows that an abandoned request may have acquired. If that
// fails too, the rows go stale, as those of a crashed process do.
func (db *DB) abandon(r AcquireRequest) {
	try := func() error {
		ctx, cancel := db.attemptContext(db.ctx)
		defer cancel()
		_, err := retry(ctx, db, func(d Driver) (struct{}, error) {
			err := d.Abandon(ctx, AbandonRequest{Project: r.Project, Refs: r.Refs, Owner: r.Owner, Nonce: r.Nonce})
			return struct{}{}, repeatable(err)
		})
		return err
	}
	db.inBackgroundOrNow(func() {
		err := db.retryCleanup(try(), try)
		if err != nil {
			db.opts.Logger.Warn("an abandoned lock may remain until it is stale",
				"lock", db.digest(r.Project, r.Refs), "stale_after", db.opts.StaleAfter, "class", ClassOf(err).String())
		}
	})
}

// WithLock locks refs of a project as [DB.Lock] does, runs fn, and releases the lock
// when fn has returned, failed or panicked. The context of fn ends when the lock is lost or
// released, with [Lock.Err] as its cause, and when ctx does.
//
// If the refs can't be locked, it returns that error and fn is not run. Otherwise it returns the
// errors of fn and of the release, joined. That of the release wraps [ErrLockLost] if the lock did
// not stand until the end. fn may end the lock itself, by [Lock.UpdateAndRelease] or [Lock.Release].
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

// A Token names one version of a lock: the database's timestamp of the
// acquisition, in microseconds since the Unix epoch; on PostgreSQL usually a
// timestamp up to two seconds before it. Of two tokens of the same ref the larger
// is the later, whatever the clock did; no two acquisitions of a ref have the
// same token.
//
// A token makes a lock safe outside this package too: a resource that remembers
// the largest token it has seen, and refuses smaller ones, can't be written by a
// holder that was frozen while it lost its lock.
type Token int64

// TokenOf returns the token that stands for the database's timestamp t, cut to
// microseconds.
func TokenOf(t time.Time) Token { return Token(t.UnixMicro()) }

// Time returns the timestamp that t stands for, in UTC.
func (t Token) Time() time.Time { return time.UnixMicro(int64(t)).UTC() }
