package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A trip is what is done in one round trip: statements that are sent together,
// with one Sync at their end. The server executes them in one implicit
// transaction, each with a snapshot of its own, and commits.
type trip struct {
	what       string // is being done, for errors
	writes     bool
	statements []statement
}

type statement struct {
	sql  string
	args []any
	// read takes all of the rows, anew each time that the trip is made. nil: they say nothing.
	read func(pgx.Rows) error
}

// then returns t with one more statement.
func (t trip) then(sql string, read func(pgx.Rows) error, args ...any) trip {
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

// A trip that certainly did nothing is made again, at most tries times in all.
const (
	tries    = 4
	tryPause = 5 * time.Millisecond
)

// do makes the trip, and says what became of it as refdb.Driver asks for.
func (d *Driver) do(ctx context.Context, t trip) error {
	for try := 1; ; try++ {
		came, err := d.attempt(ctx, t)
		if err == nil {
			return nil
		}
		v := judge(ctx, t, came, err)
		if v.readOnly {
			// All our connections lead to this server, which is not the primary,
			// or not any more. New ones may find the one that is.
			d.pool.Reset()
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

// A stage is how far a trip came.
type stage int

const (
	connecting stage = iota // there is no connection
	preparing               // no statement was sent to be executed
	executing               // the last answer has not come
	committing              // it has, but not that to the Sync
)

// attempt makes the trip once.
func (d *Driver) attempt(ctx context.Context, t trip) (stage, error) {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return connecting, err
	}
	defer conn.Release()
	answers, err := d.send(ctx, conn.Conn(), t)
	if err != nil {
		return preparing, err
	}
	defer answers.Close()
	for i, s := range t.statements {
		rows, err := answers.Query()
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
	on := connectionOf(conn.Conn().PgConn())
	on.warned = false
	err = answers.Close()
	if on.warned {
		return committing, errors.Join(refdb.ErrUnconfirmed, errNotConfirmed, err)
	}
	return committing, err
}

// answers are those to a trip's statements, and at last to its Sync.
type answers interface {
	Query() (pgx.Rows, error)
	Close() error
}

// send sends the trip's statements. An error says that none was sent to be executed;
// the answer to the first may still say so.
func (d *Driver) send(ctx context.Context, conn *pgx.Conn, t trip) (answers, error) {
	if d.prepares {
		return connectionOf(conn.PgConn()).exchange(ctx, conn, t)
	}
	var b pgx.Batch
	for _, s := range t.statements {
		b.Queue(s.sql, s.args...)
	}
	return conn.SendBatch(ctx, &b), nil
}

// unsent reports whether a batch whose first result is err was never sent to
// be executed.
func unsent(err error) bool {
	var prepare pgx.ErrPreprocessingBatch
	return errors.As(err, &prepare) || pgconn.SafeToRetry(err)
}
