package sqlite

import (
	"context"
	"math/rand/v2"
	"runtime"
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

	// After busyTurn in which it left the file alone for shorter than rest, a
	// process rests: longer than others sleep between tries.
	busyTurn = 100 * time.Millisecond
	rest     = 2 * lastPause
)

// tx is a write transaction. Its statements aren't ended by a context: they
// run for milliseconds, while others wait.
type tx struct {
	conn *conn
	now  int64  // the database's time, in microseconds, read after the lock was taken
	mark *int64 // the largest token ever given out, once it is needed
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
// The transaction may hold other requests of this process too: its commit, the
// wait for the disk above all, is then shared by all. They are carried out one
// after the other, so that each sees what those before it did, and none is
// answered before the commit. If one of them fails, all is undone, and each
// tries again in a transaction of its own: an error has no effect on others.
// So do may be called twice, and a refusal must not be an error of it.
//
// ctx ends the wait for other writers, and the transaction between do and
// COMMIT, unless others share it: then its outcome is what counts. It doesn't
// end a COMMIT: that waits for nobody but the disk, and so its answer always
// comes.
func (d *Driver) write(ctx context.Context, doing string, rows int, do func(*tx) error) error {
	if err := d.open(ctx); err != nil {
		return explain(d.path, doing, err)
	}
	r := &request{ctx: ctx, rows: rows, do: do}
	d.turns.take(r, d.closed)
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

// lead carries out r, and with it the requests that wait once the file is
// ours to write.
func (d *Driver) lead(r *request) {
	defer d.turns.pass()
	for !r.answered {
		if d.turns.shared {
			// Those who were just answered may have more to write: without
			// this, one of them would go alone and the others wait for it.
			runtime.Gosched()
		}
		if err := d.begin(r.ctx); err != nil {
			r.answer(err)
			return
		}
		d.carryOut(d.turns.gather(r))
		d.left = time.Now()
	}
}

// begin begins a write transaction. Before that it lets other processes in, if
// this one kept them out for long: it can't know whether any waits, SQLite has
// no queue of writers.
func (d *Driver) begin(ctx context.Context) error {
	if err := d.open(ctx); err != nil {
		return err
	}
	if time.Since(d.left) < rest && time.Since(d.busySince) >= busyTurn {
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return ctx.Err()
		case <-d.closed:
			return refdb.ErrClosed
		}
	}
	err := d.insist(ctx, d.writer, "BEGIN IMMEDIATE")
	if now := time.Now(); now.Sub(d.left) >= rest {
		d.busySince = now
	}
	return err
}

// carryOut does the work of a group in the transaction that has begun, and
// answers all of it, or none.
func (d *Driver) carryOut(group []*request) {
	committing, err := d.commit(group)
	if err != nil {
		d.writer.rollback()
		if len(group) > 1 && (!committing || certain(err)) {
			d.turns.separate(group)
			return
		}
	}
	for i, r := range group {
		r.unsure = committing
		r.answer(err)
		if i > 0 {
			close(r.turn)
		}
	}
}

// commit does the work of a group and commits it. It reports whether an error
// is that of the COMMIT.
func (d *Driver) commit(group []*request) (committing bool, err error) {
	if err := d.standing(); err != nil {
		return false, err
	}
	t := &tx{conn: d.writer}
	for _, r := range group {
		t.now = d.now()
		if err := r.do(t); err != nil {
			return false, err
		}
	}
	if len(group) == 1 {
		if err := group[0].ctx.Err(); err != nil {
			return false, err
		}
	}
	if t.mark != nil {
		if _, err := t.exec(setMark, *t.mark); err != nil {
			return false, err
		}
	}
	_, err = t.exec("COMMIT")
	return true, err
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
