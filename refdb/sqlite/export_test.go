package sqlite

import (
	"context"
	"database/sql/driver"
	"time"

	refdbdriver "github.com/globalrefdb/globalrefdb/refdb/driver"
)

// SetClock replaces the machine's clock. It has to be called before d is used.
func (d *Driver) SetClock(clock func() time.Time) { d.clock = clock }

// SetPatience sets how long the driver waits for other processes.
func (d *Driver) SetPatience(p time.Duration) { d.patience = p }

// OpenWithin opens a file as Open does, with the given patience with other processes.
func OpenWithin(ctx context.Context, url string, patience time.Duration) (*Driver, error) {
	a, err := parse(url)
	if err != nil {
		return nil, err
	}
	return open(ctx, a, patience)
}

// LogStep is the size from which the log is truncated.
const LogStep = logStep

// Write runs do in a write transaction, which ends with do's error or a commit.
func (d *Driver) Write(ctx context.Context, do func(exec func(query string, args ...any) error) error) error {
	return d.write(ctx, "test", 1, func(t *tx) error {
		return do(func(query string, args ...any) error {
			_, err := t.exec(query, args...)
			return err
		})
	})
}

// Read runs do while a connection reads, like a listing that takes as long.
func (d *Driver) Read(ctx context.Context, do func()) error {
	return d.read(ctx, "test", func(c *conn) error {
		first := true
		return c.query(ctx, func(row) {
			if first {
				do()
			}
			first = false
		}, `SELECT ref FROM refs`)
	})
}

// Waiting returns how many requests wait for their turn to write.
func (d *Driver) Waiting() int {
	d.groups.mu.Lock()
	defer d.groups.mu.Unlock()
	return len(d.groups.waiting)
}

// Hook calls before in place of each later statement. If before returns an error, it is the
// statement's error; otherwise the statement runs.
func (d *Driver) Hook(before func(query string) error) {
	hook := func(c *conn) {
		_ = c.close()
		c.connector = hookedConnector{c.connector, before}
	}
	d.groups.wait(&request{ctx: context.Background(), alone: true}, nil)
	hook(d.writer)
	d.groups.passLead()
	for range readConns {
		c := <-d.readers
		hook(c)
		d.readers <- c
	}
}

type hookedConnector struct {
	driver.Connector
	before func(query string) error
}

func (c hookedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	raw, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return hookedConn{raw, c.before}, nil
}

type hookedConn struct {
	driver.Conn
	before func(query string) error
}

func (c hookedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return hookedStmt{s, func() error { return c.before(query) }}, nil
}

type hookedStmt struct {
	driver.Stmt
	before func() error
}

func (s hookedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.before(); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s hookedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.before(); err != nil {
		return nil, err
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

// Plans returns SQLite's plan for each statement that reads or writes more than one row.
func (d *Driver) Plans(ctx context.Context) (map[string]string, error) {
	plans := make(map[string]string)
	err := d.read(ctx, "explain", func(c *conn) error {
		for _, query := range []string{
			rowOfRef, rowsOfRefs, get, lostOf, takeLocks, deleteLocks, deleteUnqueued, setQueue, reserve, putRefs, renew, release, purge, abandon,
			projectLocks, removeRefs, removeLocks, findTombstones, purgeTombstones,
			insertIntents, deleteIntents, rowsAround, decideIntent, takeNew, deleteLock, forget, revokeIntents, revokeLocks, findRevocation,
			signRefs, newestChange, oneChange, past, firstLater, oldChanges, deleteChanges, removeFollower,
			changesPlan(refdbdriver.ChangesRequest{}), changesPlan(refdbdriver.ChangesRequest{Project: "p"}), changesPlan(refdbdriver.ChangesRequest{Project: "p", Prefix: "r"}),
			logPlan(refdbdriver.LogRequest{}), logPlan(refdbdriver.LogRequest{Before: refdbdriver.ChangeKey{Position: 1}}),
			logPlan(refdbdriver.LogRequest{Ref: "r"}), logPlan(refdbdriver.LogRequest{Ref: "r", Before: refdbdriver.ChangeKey{Position: 1}}),
		} {
			if err := c.query(ctx, func(r row) { plans[query] += r.text(3) + "\n" }, "EXPLAIN QUERY PLAN "+query, make([]any, 8)...); err != nil {
				return err
			}
		}
		return nil
	})
	return plans, err
}

func changesPlan(r refdbdriver.ChangesRequest) string { return changesSQL(changesWhere(r, 1)) }

func logPlan(r refdbdriver.LogRequest) string { return changesSQL(logWhere(r)) }
