package sqlite

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// busyLimit is how long a writer waits for other processes to release the file, unless its
	// context ends before. Transactions take milliseconds: after that long, one of them is stuck.
	busyLimit = 5 * time.Second

	// stuckDivisor divides the patience of a writer after another one ran out of patience, so that
	// callers that retry don't wait as long each time.
	stuckDivisor = 50

	// The pauses between attempts grow from the first to the last. SQLite's own pauses grow to a
	// hundred milliseconds, and a process that is never idle would exclude others for seconds;
	// these cost a waiter a few percent of a core.
	firstPause = 100 * time.Microsecond
	lastPause  = time.Millisecond

	// After maxBusy without a pause of at least rest, a process pauses for rest: longer than other
	// processes sleep between attempts.
	maxBusy = 100 * time.Millisecond
	rest    = 2 * lastPause
)

// read runs do on a read-only connection. A statement sees everything that any process committed
// before the statement began: a commit updates the index in shared memory before it returns, and a
// read starts by checking that index. So one statement is linearizable, and waits for no writer.
func (d *Driver) read(ctx context.Context, doing string, do func(*conn) error) error {
	c, err := d.borrowReader(ctx)
	if err != nil {
		return explain(d.path, doing, err)
	}
	defer func() { d.readers <- c }()
	err = do(c)
	// The check comes after the read, to detect a log that other processes had replaced before.
	if _, gone := d.files.verify(); gone != nil {
		return explain(d.path, doing, gone)
	}
	if err == nil {
		return nil
	}
	if code(err) != 0 {
		// The error may have left the connection in any state; a new one takes a millisecond.
		_ = c.close()
	}
	return explain(d.path, doing, ended(ctx, err))
}

// borrowReader returns a reading connection, first come, first served.
func (d *Driver) borrowReader(ctx context.Context) (*conn, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	select {
	case c := <-d.readers:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.closed:
		return nil, driver.ErrClosed
	}
}

// tx is a write transaction. Its statements ignore contexts: they run for milliseconds, while
// others wait.
type tx struct {
	conn *conn
	now  int64  // the database's time in microseconds, read after the lock was taken
	mark *int64 // the largest token ever assigned, once it is needed

	admitted *string // the admitted server, once it is needed

	testimonies bool // the schema has columns for them; set when the state of the admission was read
}

func (t *tx) exec(query string, args ...any) (int64, error) {
	return t.conn.exec(context.Background(), query, args...)
}

// execOne is exec of a statement that changes one row, or none.
func (t *tx) execOne(query string, args ...any) (bool, error) {
	n, err := t.exec(query, args...)
	return n > 0, err
}

func (t *tx) query(each func(row), query string, args ...any) error {
	return t.conn.query(context.Background(), each, query, args...)
}

// write is writeAnyway for changes of refs, locks, intents, projects or the history. If the file is
// not admitted, it does nothing and returns driver.ErrNotAdmitted; the other requests of the group
// are carried out.
func (d *Driver) write(ctx context.Context, doing string, rows int, do func(*tx) error) error {
	admitted := false
	err := d.writeAnyway(ctx, doing, rows, func(t *tx) (err error) {
		if admitted, err = t.isAdmitted(d.server); err != nil || !admitted {
			return err
		}
		return do(t)
	})
	if err == nil && !admitted {
		err = explain(d.path, doing, driver.ErrNotAdmitted)
	}
	return err
}

// writeAnyway runs do in a write transaction and commits it. If do fails, nothing has happened.
// Among all processes there is one write transaction at a time, so write transactions have one
// order, and each sees the effects of those before it.
//
// With group commit the transaction may include other requests of this process, which share the
// wait for the disk. They are carried out one after the other, each sees the effects of those
// before it, and none is answered before the commit. If one of them fails, all are undone, and each
// is retried in a transaction of its own, so that an error does not affect others. Therefore do may
// be called twice, and a refusal must not be an error of do.
//
// ctx ends the wait for other writers, and the transaction between do and COMMIT, unless others
// share it. It does not end a COMMIT, which waits only for the disk, so the answer always arrives.
func (d *Driver) writeAnyway(ctx context.Context, doing string, rows int, do func(*tx) error) error {
	if err := d.checkOpen(ctx); err != nil {
		return explain(d.path, doing, err)
	}
	r := &request{ctx: ctx, rows: rows, do: do, arrived: time.Now()}
	d.groups.wait(r, d.closed)
	if !r.answered {
		d.lead(r)
	}
	switch {
	case r.err == nil:
		return nil
	case r.unsure:
		return explainCommit(d.path, doing, r.err)
	default:
		return explain(d.path, doing, r.err)
	}
}

// The functions read, snapshot, write and writeAnyway are the methods of the same names for
// requests with an answer. If there is an error, there is no answer.

func read[T any](ctx context.Context, d *Driver, doing string, do func(*conn) (T, error)) (T, error) {
	return answered(do, func(do func(*conn) error) error { return d.read(ctx, doing, do) })
}

func snapshot[T any](ctx context.Context, d *Driver, doing string, do func(*conn) (T, error)) (T, error) {
	return answered(do, func(do func(*conn) error) error { return d.snapshot(ctx, doing, do) })
}

func write[T any](ctx context.Context, d *Driver, doing string, rows int, do func(*tx) (T, error)) (T, error) {
	return answered(do, func(do func(*tx) error) error { return d.write(ctx, doing, rows, do) })
}

func writeAnyway[T any](ctx context.Context, d *Driver, doing string, do func(*tx) (T, error)) (T, error) {
	return answered(do, func(do func(*tx) error) error { return d.writeAnyway(ctx, doing, 1, do) })
}

// answered returns the answer of do. run calls do, perhaps more than once.
func answered[C, T any](do func(C) (T, error), run func(func(C) error) error) (answer T, err error) {
	err = run(func(c C) (err error) {
		answer, err = do(c)
		return err
	})
	if err != nil {
		return *new(T), err
	}
	return answer, nil
}

// decide is write for a request that may be refused. Writes that do makes before a refusal are
// committed, and decide then returns the refusal.
func decide[T any](ctx context.Context, d *Driver, doing string, rows int, do func(*tx) (answer T, refused, err error)) (T, error) {
	var refused error
	answer, err := write(ctx, d, doing, rows, func(t *tx) (answer T, err error) {
		answer, refused, err = do(t)
		return answer, err
	})
	return answer, cmp.Or(err, refused)
}

// decide is the function decide for a request without an answer.
func (d *Driver) decide(ctx context.Context, doing string, rows int, do func(*tx) (refused, err error)) error {
	_, err := decide(ctx, d, doing, rows, func(t *tx) (_ struct{}, refused, err error) {
		refused, err = do(t)
		return struct{}{}, refused, err
	})
	return err
}

// writeEach is write for n rows, and reports which of them matched according to do.
func (d *Driver) writeEach(ctx context.Context, doing string, n int, do func(t *tx, i int) (bool, error)) ([]bool, error) {
	return write(ctx, d, doing, n, func(t *tx) (matched []bool, err error) {
		matched = make([]bool, n)
		for i := 0; i < n && err == nil; i++ {
			matched[i], err = do(t, i)
		}
		return matched, err
	})
}

// begin begins a write transaction. If this process has excluded others for long, it pauses first,
// because SQLite has no queue of writers that would show whether another process waits. Patience
// counts from the arrival of the request, or from the last time this process released the file.
func (d *Driver) begin(ctx context.Context, arrived time.Time) error {
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	if time.Since(d.released) < rest && time.Since(d.busySince) >= maxBusy {
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return ctx.Err()
		case <-d.closed:
			return driver.ErrClosed
		}
	}
	since, patience := arrived, d.patience
	if since.Before(d.released) {
		since = d.released
	}
	if d.stuck {
		patience /= stuckDivisor
	}
	err := d.retryBusy(ctx, d.writer, since.Add(patience), "BEGIN IMMEDIATE")
	if err == nil || busy(err) {
		d.stuck = err != nil
	}
	if now := time.Now(); now.Sub(d.released) >= rest {
		d.busySince = now
	}
	return err
}

// retryBusy repeats a statement while other processes keep the file locked.
func (d *Driver) retryBusy(ctx context.Context, c *conn, until time.Time, query string) error {
	err := retryBusy(ctx, d.closed, until, func() error {
		_, err := c.exec(context.Background(), query)
		return err
	})
	if code(err) != 0 && !busy(err) {
		_ = c.close()
	}
	return err
}

// retryBusy repeats try while other processes keep the file locked.
func retryBusy(ctx context.Context, closed <-chan struct{}, until time.Time, try func() error) error {
	for pause := firstPause; ; {
		err := try()
		if !busy(err) || time.Now().After(until) {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
			pause = min(2*pause, lastPause)
		case <-ctx.Done():
			return ctx.Err()
		case <-closed:
			return driver.ErrClosed
		}
	}
}
