package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// databasePause is how long to wait before a database that is down is asked again.
const databasePause = 200 * time.Millisecond

// pause waits, and returns ctx's error if that ends meanwhile.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// outage reports whether err says that the database does not answer now.
func outage(err error) bool {
	return !errors.Is(err, refdb.ErrLocked) &&
		(errors.Is(err, refdb.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded))
}

// within returns a context that ends when --wait is over.
func (l *locking) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.wait == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, l.wait)
}

// openWithin opens the database. With --wait it waits for one that is down.
func (l *locking) openWithin(ctx context.Context) (*refdb.DB, error) {
	return persist(ctx, l, func() (*refdb.DB, error) { return l.open(ctx, l.options) })
}

// acquire takes the lock, and says once that it waits for it.
func (l *locking) acquire(ctx context.Context, db *refdb.DB) (*refdb.Lock, error) {
	lock, err := persist(ctx, l, func() (*refdb.Lock, error) {
		limited, cancel := l.limited(ctx)
		defer cancel()
		return db.TryLock(limited, l.project, l.refs...)
	})
	var locked *refdb.LockedError
	if !errors.As(err, &locked) {
		return lock, err
	}
	if err := l.refuseNested(locked); err != nil {
		return nil, l.conflicting(err)
	}
	if l.try {
		return nil, l.conflicting(err)
	}
	l.note("waiting: %s", locked)
	lock, err = persist(ctx, l, func() (*refdb.Lock, error) { return db.Lock(ctx, l.project, l.refs...) })
	if errors.As(err, &locked) {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("not within --wait %s: %w", l.wait, locked)
		}
		err = l.conflicting(err)
	}
	return lock, err
}

// conflicting gives an error about a lock of others the status that was asked for.
func (l *locking) conflicting(err error) error {
	if l.conflict == exitLocked {
		return err
	}
	return &status{l.conflict, err.Error()}
}

// persist repeats what meets a database that is down, with --wait until that is over.
func persist[T any](ctx context.Context, l *locking, do func() (T, error)) (T, error) {
	for said := false; ; said = true {
		v, err := do()
		if l.wait == 0 || !outage(err) {
			return v, err
		}
		if !said && ctx.Err() == nil {
			l.note("waiting: %s", err)
		}
		if pause(ctx, databasePause) != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			// Not due to --timeout, as an error that wraps the deadline's would be.
			return v, fmt.Errorf("not within --wait %s: %w: %v", l.wait, refdb.ErrUnavailable, err)
		} else if ctx.Err() != nil {
			return v, fmt.Errorf("%w: %v", ctx.Err(), err)
		}
	}
}
