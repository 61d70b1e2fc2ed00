// Package roundtrip makes round trips to a PostgreSQL server: it has the connections,
// sends statements in one pipeline, and tells what became of them when that fails.
package roundtrip

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	refdbdriver "github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Pipeline is statements that are sent together, with one Sync at their end: one
// round trip. The server executes them in one implicit transaction, each with a
// snapshot of its own, and commits. The first one is the guard of Settings, or contains it.
type Pipeline struct {
	What              string // is being done, for errors
	writes            bool
	failAtLockTimeout bool
	pool              Pool
	statements        []Statement
	// Late, unless nil, returns the statements, perhaps none, once there is a connection.
	Late func() []Statement
}

// Read is an empty pipeline that only reads: it is sent again when its answer was lost.
func Read(what string) Pipeline { return Pipeline{What: what} }

// Write is an empty pipeline that writes: a lost answer is an unknown outcome.
func Write(what string) Pipeline { return Pipeline{What: what, writes: true} }

// On returns p, to be sent on the connections of a pool.
func (p Pipeline) On(pool Pool) Pipeline {
	p.pool = pool
	return p
}

// FailAtLockTimeout returns p, to fail when lock_timeout is over. Without it p is sent
// again for as long as its context goes on.
func (p Pipeline) FailAtLockTimeout() Pipeline {
	p.failAtLockTimeout = true
	return p
}

// Then returns p with more statements.
func (p Pipeline) Then(more ...Statement) Pipeline {
	p.statements = append(p.statements, more...)
	return p
}

// Query returns p with one more statement, whose rows are read.
func (p Pipeline) Query(sql string, read func(pgx.Rows) error, args ...any) Pipeline {
	return p.Then(Query(sql, read, args...))
}

// Exec returns p with one more statement, whose rows are of no interest.
func (p Pipeline) Exec(sql string, args ...any) Pipeline { return p.Then(Exec(sql, args...)) }

// A Statement is one statement of a pipeline.
type Statement struct {
	SQL  string
	Args []any
	// Read takes all of the rows, anew in each attempt. nil: they are of no interest.
	Read func(pgx.Rows) error

	guarded bool // SQL is the columns of a SELECT, behind the guard
}

// Query is a statement whose rows are read.
func Query(sql string, read func(pgx.Rows) error, args ...any) Statement {
	return Statement{SQL: sql, Args: args, Read: read}
}

// Exec is a statement whose rows are of no interest.
func Exec(sql string, args ...any) Statement { return Statement{SQL: sql, Args: args} }

// Guarded is a statement that selects columns, and begins its pipeline without a guard of its own.
// It names nothing but pg_catalog, and that in full: see Settings.
func Guarded(columns string, args ...any) Statement {
	return Statement{SQL: columns, Args: args, guarded: true}
}

// A round trip that certainly did nothing is made again, tries times in all at most.
const (
	tries    = 4
	tryPause = 5 * time.Millisecond
)

// Do makes the round trip of a pipeline, and returns its error as driver.Driver asks for.
func (p *Pools) Do(ctx context.Context, work Pipeline) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ending, func() { cancel(errEnded) })()
	for try := 1; ; try++ {
		came, err := p.attempt(ctx, work)
		if err == nil {
			return nil
		}
		v := judge(ctx, work, came, err)
		if p.rotation.Load() != nil && isRefusal(err) {
			// It passes once the server and the file agree. They may have changed between two attempts to connect.
			v.again, v.err = try == 1, fmt.Errorf("%w: %w", refdbdriver.ErrUnavailable, v.err)
		}
		if v.waited && !work.failAtLockTimeout {
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

// A Stage is how far a round trip came.
type Stage int

const (
	Connecting Stage = iota // there is no connection
	Preparing               // no statement was sent to be executed
	Executing               // the last answer has not come
	Committing              // it has, but not that to the Sync
)

// attempt makes the round trip once.
func (p *Pools) attempt(ctx context.Context, work Pipeline) (Stage, error) {
	acquired, err := p.connect(ctx, work.pool)
	if err != nil {
		return Connecting, err
	}
	defer acquired.Release()
	conn := acquired.Conn()
	defer hangUp(conn.PgConn())
	statements := work.statements
	if work.Late != nil {
		if statements = work.Late(); len(statements) == 0 {
			return Preparing, nil
		}
	}
	settings := p.settings.Load()
	statements = settings.guardFirst(statements)
	if p.path == Pooled {
		if err := settings.describe(ctx, conn, statements); err != nil {
			return Preparing, p.failed(ctx, conn, settings, err)
		}
	}
	came, err := send(ctx, conn, statements)
	return came, p.failed(ctx, conn, settings, err)
}

// failed returns the error of an attempt on conn. It gives up all connections if the server takes
// no writes, or if the session has a setting that is wrong: sessions keep many of those for as long
// as they last.
func (p *Pools) failed(ctx context.Context, conn *pgx.Conn, settings *Settings, err error) error {
	switch Code(err) {
	case divisionByZero:
		if err = settings.explain(ctx, conn, err); !errors.As(err, new(*wrongSetting)) {
			return err
		}
	case readOnlyTransaction:
	default:
		return err
	}
	p.renewal.renew(conn.PgConn(), p.all[:]...)
	return err
}

// errDescribed stops a batch after its statements were described.
var errDescribed = errors.New("described")

// describeOnly is an argument that can't be sent.
type describeOnly struct{}

func (describeOnly) Value() (driver.Value, error) { return nil, errDescribed }

// describe has the server describe those of the statements that conn has not sent yet. pgx would do
// that in a transaction of its own, in which another client's search_path may lead elsewhere.
func (s *Settings) describe(ctx context.Context, conn *pgx.Conn, statements []Statement) error {
	mode := conn.Config().DefaultQueryExecMode
	if mode != pgx.QueryExecModeCacheDescribe && mode != pgx.QueryExecModeCacheStatement {
		return nil // nothing that would be kept
	}
	notes := notesOn(conn.PgConn())
	var batch pgx.Batch
	batch.Queue(`SELECT CAST($1 AS pg_catalog.text)`, describeOnly{})
	for _, t := range statements {
		if !notes.described[t.SQL] {
			batch.Queue(t.SQL)
		}
	}
	if batch.Len() == 1 {
		return nil
	}
	if _, err := conn.PgConn().Exec(ctx, `BEGIN; `+s.guarded("")).ReadAll(); err != nil {
		_, _ = conn.PgConn().Exec(ctx, `ROLLBACK`).ReadAll()
		return err
	}
	err := conn.SendBatch(ctx, &batch).Close()
	if _, endErr := conn.PgConn().Exec(ctx, `ROLLBACK`).ReadAll(); endErr != nil {
		return endErr
	}
	if !errors.Is(err, errDescribed) {
		return err
	}
	if notes.described == nil {
		notes.described = make(map[string]bool)
	}
	for _, t := range statements {
		notes.described[t.SQL] = true
	}
	return nil
}

// guardFirst returns the statements with a guard before them, or in the first.
func (s *Settings) guardFirst(statements []Statement) []Statement {
	all := make([]Statement, 0, 1+len(statements))
	for i, t := range statements {
		if t.guarded {
			t.SQL = s.guarded(t.SQL)
		} else if i == 0 {
			all = append(all, Exec(s.guarded("")))
		}
		all = append(all, t)
	}
	return all
}

// send makes the round trip of statements on conn.
func send(ctx context.Context, conn *pgx.Conn, statements []Statement) (Stage, error) {
	var batch pgx.Batch
	for _, s := range statements {
		batch.Queue(s.SQL, s.Args...)
	}
	results := conn.SendBatch(ctx, &batch)
	defer results.Close()
	for i, s := range statements {
		rows, err := results.Query()
		if err == nil && s.Read != nil {
			err = s.Read(rows)
		}
		rows.Close()
		if rows.Err() != nil {
			err = rows.Err()
		}
		if err != nil {
			if i == 0 && unsent(err) {
				return Preparing, err
			}
			return Executing, err
		}
	}
	notes := notesOn(conn.PgConn())
	notes.warned = false
	err := results.Close()
	if notes.warned {
		return Committing, errors.Join(refdbdriver.ErrUnconfirmed, errNotConfirmed, err)
	}
	return Committing, err
}

// hangUp closes a broken connection at once. pgx would wait 15 s for the server to close
// it, and keep the connection's place in the pool as long.
func hangUp(conn *pgconn.PgConn) {
	if !conn.IsClosed() {
		return
	}
	c := conn.Conn()
	for {
		outer, ok := c.(interface{ NetConn() net.Conn }) // TLS, which would write a last message, or a hiddenAddr
		if !ok {
			break
		}
		c = outer.NetConn()
	}
	c.Close()
}

// unsent reports whether a batch whose first result is err was certainly never sent for execution.
// Statements are prepared earlier, in a separate round trip, and an error that pgconn calls safe to
// retry occurred before the first byte was written. After that, the first error of a connection is
// never called safe, but later ones might be. A connection that breaks while statements are
// prepared may pass for one that broke later.
func unsent(err error) bool {
	var prepare pgx.ErrPreprocessingBatch
	return errors.As(err, &prepare) || pgconn.SafeToRetry(err)
}
