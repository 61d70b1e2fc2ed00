// Package roundtrip makes round trips to a PostgreSQL server: it manages the connections, sends
// statements in one pipeline, and determines the outcome when that fails.
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

// A Pipeline is a list of statements that are sent together, with one Sync at their end: one round
// trip. The server executes them in one implicit transaction, each with its own snapshot, and
// commits. The first statement is the guard of Settings, or contains it.
type Pipeline struct {
	What              string // describes the operation, for errors
	writes            bool
	failAtLockTimeout bool
	pool              Pool
	statements        []Statement
	// Late, unless nil, returns the statements, possibly none, once a connection is available.
	Late func() []Statement
}

// Read returns an empty read-only pipeline: it is sent again if its answer was lost.
func Read(what string) Pipeline { return Pipeline{What: what} }

// Write returns an empty pipeline that writes: a lost answer is an unknown outcome.
func Write(what string) Pipeline { return Pipeline{What: what, writes: true} }

// On returns p with a pool on whose connections it is sent.
func (p Pipeline) On(pool Pool) Pipeline {
	p.pool = pool
	return p
}

// FailAtLockTimeout returns p, to fail when a statement has waited for lock_timeout. Otherwise p is
// sent again until its context ends.
func (p Pipeline) FailAtLockTimeout() Pipeline {
	p.failAtLockTimeout = true
	return p
}

// Then returns p with more statements.
func (p Pipeline) Then(more ...Statement) Pipeline {
	p.statements = append(p.statements, more...)
	return p
}

// Query returns p with one more statement, whose rows read takes.
func (p Pipeline) Query(sql string, read func(pgx.Rows) error, args ...any) Pipeline {
	return p.Then(Query(sql, read, args...))
}

// Exec returns p with one more statement, whose rows are ignored.
func (p Pipeline) Exec(sql string, args ...any) Pipeline { return p.Then(Exec(sql, args...)) }

// A Statement is one statement of a pipeline.
type Statement struct {
	SQL  string
	Args []any
	// Read takes all of the rows, anew in each attempt. If it is nil, they are ignored.
	Read func(pgx.Rows) error

	guarded bool // SQL is the columns of a SELECT that begins with the guard
}

// Query returns a statement whose rows read takes.
func Query(sql string, read func(pgx.Rows) error, args ...any) Statement {
	return Statement{SQL: sql, Args: args, Read: read}
}

// Exec returns a statement whose rows are ignored.
func Exec(sql string, args ...any) Statement { return Statement{SQL: sql, Args: args} }

// Guarded returns a statement that selects columns and contains the guard of its pipeline. All
// names in it are qualified, and belong to pg_catalog: see Settings.
func Guarded(columns string, args ...any) Statement {
	return Statement{SQL: columns, Args: args, guarded: true}
}

// A round trip that certainly changed nothing is repeated, up to tries attempts in all.
const (
	tries    = 4
	tryPause = 5 * time.Millisecond
)

// Do makes the round trip of a pipeline, and returns the error that driver.Driver requires.
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
			// The refusal ends once the server and the file agree, which may have happened between
			// two attempts.
			v.again, v.err = try == 1, fmt.Errorf("%w: %w", refdbdriver.ErrUnavailable, v.err)
		}
		if v.waited && !work.failAtLockTimeout {
			pause(ctx, 1) // if ctx ends the pause, the next attempt reports that
			try--
			continue
		}
		if !v.again || try == tries || !pause(ctx, try) {
			return v.err
		}
	}
}

// pause waits before the next attempt, longer each time, and reports whether ctx has not ended.
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

// A Stage is how far a round trip got.
type Stage int

const (
	Connecting Stage = iota // there is no connection
	Preparing               // no statement was sent for execution
	Executing               // the last answer has not arrived
	Committing              // the last answer has arrived, but not the answer to the Sync
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

// failed returns the error of an attempt on conn. It closes all connections if the server accepts
// no writes, or if the session has a wrong setting: sessions keep many settings as long as they
// last.
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

// errDescribed stops a batch after the server has described its statements.
var errDescribed = errors.New("described")

// describeOnly is an argument that can't be sent.
type describeOnly struct{}

func (describeOnly) Value() (driver.Value, error) { return nil, errDescribed }

// describe makes the server describe the statements that conn has not sent yet. pgx would do that
// in a separate transaction, in which another client's search_path may lead elsewhere.
func (s *Settings) describe(ctx context.Context, conn *pgx.Conn, statements []Statement) error {
	mode := conn.Config().DefaultQueryExecMode
	if mode != pgx.QueryExecModeCacheDescribe && mode != pgx.QueryExecModeCacheStatement {
		return nil // pgx keeps no descriptions
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

// guardFirst returns the statements with a guard before the first, or in it.
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

// hangUp closes a broken connection at once. pgx would wait 15 s for the server to close it, and
// keep its place in the pool until then.
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
