package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"time"
)

// conn is one connection to the file, used by one goroutine at a time. It uses SQLite's driver
// without database/sql: a pool that replaces connections on its own can't tell whether a
// transaction has ended.
type conn struct {
	connector driver.Connector
	raw       driver.Conn // nil before the first use, and after close
	stmts     map[string]driver.Stmt
}

// exec runs a statement and returns how many rows it changed.
func (c *conn) exec(ctx context.Context, query string, args ...any) (int64, error) {
	s, err := c.prepare(ctx, query)
	if err != nil {
		return 0, err
	}
	result, err := s.(driver.StmtExecContext).ExecContext(ctx, ordinals(args))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// query runs a statement and calls each for every row of its result.
func (c *conn) query(ctx context.Context, each func(row), query string, args ...any) (err error) {
	s, err := c.prepare(ctx, query)
	if err != nil {
		return err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(ctx, ordinals(args))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	r := make(row, len(rows.Columns()))
	for {
		// SQLite's driver checks ctx only until the first row is available.
		if err := ctx.Err(); err != nil {
			return err
		}
		switch err := rows.Next(r); err {
		case nil:
			each(r)
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// prepare connects if necessary. A statement stays prepared: there are a few dozen.
func (c *conn) prepare(ctx context.Context, query string) (driver.Stmt, error) {
	if c.raw == nil {
		raw, err := c.connector.Connect(ctx)
		if err != nil {
			return nil, err
		}
		c.raw, c.stmts = raw, make(map[string]driver.Stmt)
	}
	if s, ok := c.stmts[query]; ok {
		return s, nil
	}
	s, err := c.raw.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.stmts[query] = s
	return s, nil
}

// rollback ends the transaction, if there is one. SQLite ends a transaction by itself after some
// errors, such as a full disk, and ROLLBACK then fails. A new connection is certainly in no
// transaction.
func (c *conn) rollback() {
	if c.raw == nil {
		return
	}
	if _, err := c.exec(context.Background(), "ROLLBACK"); err != nil {
		_ = c.close()
	}
}

// close closes the connection. The next use opens a new one.
func (c *conn) close() error {
	if c.raw == nil {
		return nil
	}
	for _, s := range c.stmts {
		// Close repeats the error of the statement's last execution.
		_ = s.Close()
	}
	err := c.raw.Close()
	c.raw, c.stmts = nil, nil
	return err
}

// ordinals numbers the arguments, as SQLite's driver requires.
func ordinals(args []any) []driver.NamedValue {
	values := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
	}
	return values
}

// row is a row of a result. The tables are STRICT, so a column holds its type or NULL.
type row []driver.Value

func (r row) null(i int) bool { return r[i] == nil }

// text returns "" for NULL.
func (r row) text(i int) string {
	s, _ := r[i].(string)
	return s
}

// int returns 0 for NULL.
func (r row) int(i int) int64 {
	n, _ := r[i].(int64)
	return n
}

// time returns zero for NULL.
func (r row) time(i int) time.Time {
	if r.null(i) {
		return time.Time{}
	}
	return timeOf(r.int(i))
}

// bytes returns nil for NULL.
func (r row) bytes(i int) []byte {
	b, _ := r[i].([]byte)
	return b
}
