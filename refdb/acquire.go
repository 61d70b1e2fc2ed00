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
// waiting. While others hold fresh locks on some of them the error is a
// [*LockedError] that names every holder; stale locks are taken over.
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

// acquire asks the database once for the locks, or more often if replies get
// lost. waiter, unless zero, waits for them if they are refused.
func (db *DB) acquire(ctx context.Context, project string, refs []string, waiter Waiter) answer {
	r := AcquireRequest{
		Project: project, Refs: refs, Owner: db.owner, Nonce: rand.Text(),
		StaleAfter: db.opts.StaleAfter, Waiter: waiter,
	}
	// The lease counts from before the first request: whichever of several
	// took effect, its rows are not older than that.
	sent := db.keeper.Now()
	a, err := db.request(ctx, r)
	if err != nil {
		return answer{place: a.Place, err: err}
	}
	return db.hold(ctx, r, a, sent)
}

// request asks the database for what r says; more often if replies get lost.
func (db *DB) request(ctx context.Context, r AcquireRequest) (Acquired, error) {
	if db.closing.Err() != nil {
		return Acquired{}, ErrClosed
	}
	var doubt, unconfirmed bool
	a, err := retry(ctx, db, func() (Acquired, error) {
		a, err := db.driver.Acquire(ctx, r)
		unconfirmed = errors.Is(err, ErrUnconfirmed)
		if errors.Is(err, ErrOutcomeUnknown) && !unconfirmed {
			// Rows with our nonce are ours: asking again finds them.
			doubt = true
			err = fmt.Errorf("%w: %v", ErrUnavailable, err)
		}
		return a, err
	})
	if unconfirmed {
		// Finding them would not confirm them.
		doubt = true
		err = fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	if err != nil {
		if doubt && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		if doubt {
			db.abandon(r)
		}
	}
	return a, err
}

// hold makes a Lock of what the database has given.
func (db *DB) hold(ctx context.Context, r AcquireRequest, a Acquired, sent heartbeat.Instant) answer {
	l := &Lock{
		db: db, project: r.Project, refs: r.Refs, token: a.Token,
		values: make(map[string]Value, len(a.Refs)), start: time.Now(), parent: ctx,
		ending: make(chan struct{}, 1),
	}
	for _, ref := range a.Refs {
		l.values[ref.Name] = ref.Value
	}
	db.queues.hold(l)
	l.lease = db.keeper.Keep(l, sent)
	switch err := l.Err(); {
	case errors.Is(err, ErrClosed):
		// Nobody will release it.
		db.queues.ended(l)
		db.abandon(r)
		return answer{err: err}
	case err != nil:
		// The answer took longer than the lease lasts.
		db.queues.ended(l)
		db.abandon(r)
		return answer{err: fmt.Errorf("%w: the locks were granted too late to be kept: %v", ErrUnavailable, err)}
	}
	if n := len(a.Reclaimed); n > 0 {
		db.opts.Logger.WarnContext(ctx, "stale locks taken over", "lock", db.digest(r.Project, r.Refs),
			"reclaimed", n, "age", a.Reclaimed[0].Age, "stale_after", a.Reclaimed[0].StaleAfter)
	}
	return answer{lock: l, reclaimed: len(a.Reclaimed)}
}

// abandon deletes what a request may have acquired that its caller gave up
// on. If that fails too, the rows go stale, as those of a crashed process do.
func (db *DB) abandon(r AcquireRequest) {
	try := func() error {
		ctx, cancel := db.attempt(db.ctx)
		defer cancel()
		_, err := retry(ctx, db, func() (struct{}, error) {
			err := db.driver.Abandon(ctx, AbandonRequest{Project: r.Project, Refs: r.Refs, Owner: r.Owner, Nonce: r.Nonce})
			if errors.Is(err, ErrOutcomeUnknown) {
				err = fmt.Errorf("%w: %v", ErrUnavailable, err)
			}
			return struct{}{}, err
		})
		return err
	}
	db.lastly(func() {
		err := db.insist(try(), try)
		if err != nil {
			db.opts.Logger.Warn("a lock that was given up on may stand until it is stale",
				"lock", db.digest(r.Project, r.Refs), "stale_after", db.opts.StaleAfter, "class", ClassOf(err).String())
		}
	})
}
