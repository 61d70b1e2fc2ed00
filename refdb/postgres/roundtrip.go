package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A roundTrip is statements that are sent together, with one Sync at their end.
// The server executes them in one implicit transaction, each with a snapshot of
// its own, and commits.
type roundTrip struct {
	what       string // is being done, for errors
	writes     bool
	hasty      bool          // it fails when lock_timeout is over
	spare      *pgxpool.Pool // where it finds a connection if those of the pool are all in use; or nil
	statements []statement
	// late, unless nil, says what is sent once there is a connection for it,
	// which may be nothing.
	late func() roundTrip
}

type statement struct {
	sql  string
	args []any
	// read takes all of the rows, anew in each attempt. nil: they are of no interest.
	read func(pgx.Rows) error
}

// then returns t with one more statement.
func (t roundTrip) then(sql string, read func(pgx.Rows) error, args ...any) roundTrip {
	t.statements = append(t.statements, statement{sql, args, read})
	return t
}

// one reads the one row there is.
func one(rows pgx.Rows, into ...any) error {
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	return rows.Scan(into...)
}

// A round trip that certainly did nothing is made again, at most tries times in all.
const (
	tries    = 4
	tryPause = 5 * time.Millisecond
)

// do makes the round trip, and returns its error as refdb.Driver asks for.
func (d *Driver) do(ctx context.Context, t roundTrip) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.ending, func() { cancel(errEnded) })()
	for try := 1; ; try++ {
		came, err := d.attempt(ctx, t)
		if err == nil {
			return nil
		}
		v := judge(ctx, t, came, err)
		if v.waited && !t.hasty {
			pause(ctx, 1) // if that ends with ctx, the next attempt says so
			try--
			continue
		}
		if !v.again || try == tries || !pause(ctx, try) {
			return v.err
		}
	}
}

// pause waits before the next try, longer each time, and reports whether ctx goes on.
func pause(ctx context.Context, try int) bool {
	t := time.NewTimer(rand.N(tryPause << try))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A stage is how far a round trip came.
type stage int

const (
	connecting stage = iota // there is no connection
	preparing               // no statement was sent to be executed
	executing               // the last answer has not come
	committing              // it has, but not that to the Sync
)

// attempt makes the round trip once.
func (d *Driver) attempt(ctx context.Context, t roundTrip) (stage, error) {
	pooled, err := d.connect(ctx, t)
	if err != nil {
		return connecting, err
	}
	defer pooled.Release()
	conn := pooled.Conn()
	defer hangUp(conn.PgConn())
	if t.late != nil {
		if t = t.late(); len(t.statements) == 0 {
			return preparing, nil
		}
	}
	came, err := t.send(ctx, conn)
	if sqlState(err) == readOnlyTransaction {
		d.renewal.renew(conn.PgConn(), d.pool, d.spares.beats, d.spares.releases)
	}
	return came, err
}

// send makes the round trip on conn.
func (t roundTrip) send(ctx context.Context, conn *pgx.Conn) (stage, error) {
	var batch pgx.Batch
	for _, s := range t.statements {
		batch.Queue(s.sql, s.args...)
	}
	results := conn.SendBatch(ctx, &batch)
	defer results.Close()
	for i, s := range t.statements {
		rows, err := results.Query()
		if err == nil && s.read != nil {
			err = s.read(rows)
		}
		rows.Close()
		if rows.Err() != nil {
			err = rows.Err()
		}
		if err != nil {
			if i == 0 && unsent(err) {
				return preparing, err
			}
			return executing, err
		}
	}
	notes := notesOn(conn.PgConn())
	notes.warned = false
	err := results.Close()
	if notes.warned {
		return committing, errors.Join(refdb.ErrUnconfirmed, errNotConfirmed, err)
	}
	return committing, err
}

// hangUp ends a broken connection at once. pgx would listen for 15 s whether the
// server says goodbye, and keep the connection's place in the pool as long.
func hangUp(conn *pgconn.PgConn) {
	if !conn.IsClosed() {
		return
	}
	c := conn.Conn()
	for {
		outer, ok := c.(interface{ NetConn() net.Conn }) // TLS, which would say goodbye, or a line
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	c.Close()
}

// unsent reports whether a batch whose first result is err was certainly never sent
// to be executed: statements are prepared before, in a round trip of their own, and an
// error that pgconn calls safe to retry came before the first byte was written. After
// that the first error of a connection is never called safe; later ones might be. A
// connection that breaks while statements are prepared may pass for one that broke later.
func unsent(err error) bool {
	var prepare pgx.ErrPreprocessingBatch
	return errors.As(err, &prepare) || pgconn.SafeToRetry(err)
}
