package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

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
	var b pgx.Batch
	for _, s := range t.statements {
		b.Queue(s.sql, s.args...)
	}
	results := conn.SendBatch(ctx, &b)
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
	warned := warnings(conn)
	*warned = false
	err = results.Close()
	if *warned {
		return committing, errors.Join(refdb.ErrUnconfirmed, errNotConfirmed, err)
	}
	return committing, err
}

// unsent reports whether a batch whose first result is err was never sent to
// be executed.
func unsent(err error) bool {
	var prepare pgx.ErrPreprocessingBatch
	return errors.As(err, &prepare) || pgconn.SafeToRetry(err)
}

const warningsKey = "refdb.warned"

// warnings is where noteWarning notes a warning that arrives on conn.
func warnings(conn *pgxpool.Conn) *bool {
	data := conn.Conn().PgConn().CustomData()
	warned, ok := data[warningsKey].(*bool)
	if !ok {
		warned = new(bool)
		data[warningsKey] = warned
	}
	return warned
}

// noteWarning is called with what the server says beside its answers. A commit
// that gives up waiting for its synchronous standby, because somebody cancels
// or terminates it, warns and then reports success: it is durable here but not
// there. It has no code of its own, so that any warning counts that comes with
// a commit; a statement's own warnings come earlier.
func noteWarning(conn *pgconn.PgConn, n *pgconn.Notice) {
	const (
		warning       = "01000" // canceling wait for synchronous replication
		adminShutdown = "57P01" // the same, and terminating the connection
	)
	if n.Code != warning && n.Code != adminShutdown {
		return
	}
	if warned, ok := conn.CustomData()[warningsKey].(*bool); ok {
		*warned = true
	}
}
