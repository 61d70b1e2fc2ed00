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

	// hopeless is the part of its patience that a writer has left after another
	// gave up: whoever tries again and again shall not wait as long each time.
	hopeless = 50

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

// execOne is exec of a statement that changes one row, or none.
func (t *tx) execOne(query string, args ...any) (bool, error) {
	n, err := t.exec(query, args...)
	return n > 0, err
}

func (t *tx) query(each func(row), query string, args ...any) error {
	return t.conn.query(context.Background(), each, query, args...)
}

// write runs do in a write transaction and commits it. If do fails, nothing has
// happened. There is one write transaction at a time among all processes, so they
// have one order, and each sees the effects of those before it.
//
// With group commit the transaction may hold other requests of this process too,
// which share the wait for the disk. They are carried out one after the other,
// each sees the effects of those before it, and none is answered before the
// commit. If one of them fails, all are undone, and each is tried again in a
// transaction of its own, so that an error has no effect on others. Therefore do
// may be called twice, and a refusal must not be an error of do.
//
// ctx ends the wait for other writers, and the transaction between do and COMMIT,
// unless others share it. It doesn't end a COMMIT, which waits only for the disk:
// so the answer always comes.
func (d *Driver) write(ctx context.Context, doing string, rows int, do func(*tx) error) error {
	if err := d.open(ctx); err != nil {
		return explain(d.path, doing, err)
	}
	r := &request{ctx: ctx, rows: rows, do: do, arrived: time.Now()}
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

// decide is write for what may be refused. A refusal is committed, with what do
// has written, and then the error of decide.
func (d *Driver) decide(ctx context.Context, doing string, rows int, do func(*tx) (refused, err error)) error {
	var refused error
	err := d.write(ctx, doing, rows, func(t *tx) (err error) {
		refused, err = do(t)
		return err
	})
	if err != nil {
		return err
	}
	return refused
}

// writeEach is write for n rows, and reports of which do says that it matched.
func (d *Driver) writeEach(ctx context.Context, doing string, n int, do func(t *tx, i int) (bool, error)) ([]bool, error) {
	matched := make([]bool, n)
	err := d.write(ctx, doing, n, func(t *tx) (err error) {
		for i := range matched {
			if matched[i], err = do(t, i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return matched, nil
}

// lead carries out r, together with the requests that wait by the time that this
// process may write the file.
func (d *Driver) lead(r *request) {
	defer d.turns.pass()
	for !r.answered {
		if d.turns.shared {
			// The callers just answered may have more to write. Without this, the
			// first of them would write alone while the others wait for it.
			runtime.Gosched()
		}
		if err := d.begin(r.ctx, r.arrived); err != nil {
			r.answer(err)
			if busy(err) {
				d.turns.refuse(err)
			}
			return
		}
		size := d.carryOut(d.turns.gather(r))
		d.left = time.Now()
		d.trim(size)
	}
}

// begin begins a write transaction. Before that it pauses for other processes if
// this one kept them out for long: SQLite has no queue of writers that would tell
// whether one waits. Patience counts from the arrival of the request, or from
// when this process last had the file.
func (d *Driver) begin(ctx context.Context, arrived time.Time) error {
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
	since, patience := arrived, d.patience
	if since.Before(d.left) {
		since = d.left
	}
	if d.stuck {
		patience /= hopeless
	}
	err := d.insist(ctx, d.writer, since.Add(patience), "BEGIN IMMEDIATE")
	if err == nil || busy(err) {
		d.stuck = err != nil
	}
	if now := time.Now(); now.Sub(d.left) >= rest {
		d.busySince = now
	}
	return err
}

// carryOut does the work of a group in the transaction that has begun, and
// answers all of it, or none. It returns the size of the log.
func (d *Driver) carryOut(group []*request) (size int64) {
	committing, err := d.commit(group)
	if err != nil {
		d.writer.rollback()
		if len(group) > 1 && (!committing || certain(err)) {
			d.turns.separate(group)
			return 0
		}
	} else if size, err = d.files.standing(); err != nil {
		// It went to a log that others had perhaps replaced already.
		committing = true
	}
	for i, r := range group {
		r.unsure = committing
		r.answer(err)
		if i > 0 {
			close(r.turn)
		}
	}
	return size
}

// commit does the work of a group and commits it. It reports whether an error
// is that of the COMMIT.
func (d *Driver) commit(group []*request) (committing bool, err error) {
	// Another process may have replaced the files and taken the lock in the new
	// ones. It did so after the COMMIT if they still stand then, and before any
	// answer: so carryOut looks again. This first look is to write nothing in vain.
	if _, err := d.files.standing(); err != nil {
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
func (d *Driver) insist(ctx context.Context, c *conn, until time.Time, query string) error {
	err := insist(ctx, d.closed, until, func() error {
		_, err := c.exec(context.Background(), query)
		return err
	})
	if code(err) != 0 && !busy(err) {
		_ = c.close()
	}
	return err
}

// insist repeats try while other processes are in its way.
func insist(ctx context.Context, closed <-chan struct{}, until time.Time, try func() error) error {
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
			return refdb.ErrClosed
		}
	}
}
