package sqlite

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// busyLimit is how long a writer tries to get in between other processes,
	// unless its context ends before. Transactions take milliseconds: after
	// that long one of them is stuck.
	busyLimit = 5 * time.Second

	// The pauses between tries grow from the first to the last. SQLite's own
	// grow to a hundred milliseconds, and a process that is never idle would
	// keep others out for seconds; these cost a waiter some percent of a core.
	firstPause = 100 * time.Microsecond
	lastPause  = time.Millisecond
)

// tx is a write transaction. Its statements aren't ended by a context: they
// run for milliseconds, while others wait.
type tx struct {
	conn *conn
	now  int64 // the database's time, in microseconds, read after the lock was taken
}

func (t *tx) exec(query string, args ...any) (int64, error) {
	return t.conn.exec(context.Background(), query, args...)
}

func (t *tx) query(each func(row), query string, args ...any) error {
	return t.conn.query(context.Background(), each, query, args...)
}

// write runs do in a write transaction and commits it; if do fails, nothing
// has happened. There is one write transaction at a time among all processes,
// so they are in one order, and each sees what those before it did.
//
// ctx ends the wait for other writers, and the transaction between do and
// COMMIT. It doesn't end a COMMIT: that waits for nobody but the disk, and so
// its answer always comes.
func (d *Driver) write(ctx context.Context, doing string, do func(*tx) error) error {
	c, err := d.take(ctx, d.writer)
	if err != nil {
		return explain(d.path, doing, err)
	}
	defer func() { d.writer <- c }()

	if err := d.insist(ctx, c, "BEGIN IMMEDIATE"); err != nil {
		return explain(d.path, doing, err)
	}
	err = d.standing()
	if err == nil {
		err = do(&tx{conn: c, now: d.now()})
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.rollback()
		return explain(d.path, doing, err)
	}
	if _, err := c.exec(context.Background(), "COMMIT"); err != nil {
		c.rollback()
		return explainCommit(d.path, doing, err)
	}
	return nil
}

// insist runs a statement again and again while other processes are in its way.
func (d *Driver) insist(ctx context.Context, c *conn, query string) error {
	err := insist(ctx, d.closed, d.patience, func() error {
		_, err := c.exec(context.Background(), query)
		return err
	})
	if code(err) != 0 && !busy(err) {
		_ = c.close()
	}
	return err
}

// insist repeats try while other processes are in its way.
func insist(ctx context.Context, closed <-chan struct{}, patience time.Duration, try func() error) error {
	pause := firstPause
	for start := time.Now(); ; {
		err := try()
		if !busy(err) || time.Since(start) > patience {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
			pause = min(2*pause, lastPause)
		case <-ctx.Done():
			return ctx.Err()
		case <-closed:
			return refdb.ErrClosed
		}
	}
}
