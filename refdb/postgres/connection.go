package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// A connection is what is known of one of the pool's.
type connection struct {
	// statements that are prepared on it, by their text.
	statements map[string]*pgconn.StatementDescription
	names      int                      // given to statements so far
	watcher    *ctxwatch.ContextWatcher // of the contexts of exchanges
	builder    pgx.ExtendedQueryBuilder
	buffer     []byte // for what is sent
	warned     bool   // a warning came
}

const connectionKey = "refdb.connection"

// connectionOf returns what is known of conn: the same each time.
func connectionOf(conn *pgconn.PgConn) *connection {
	data := conn.CustomData()
	c, ok := data[connectionKey].(*connection)
	if !ok {
		c = &connection{statements: make(map[string]*pgconn.StatementDescription)}
		data[connectionKey] = c
	}
	return c
}

// prepare prepares those of the trip's statements that are not, in one round
// trip. Those that a failure leaves behind on the server are in nobody's way.
func (c *connection) prepare(ctx context.Context, conn *pgx.Conn, t trip) error {
	var missing []string
	for _, s := range t.statements {
		if c.statements[s.sql] == nil && !slices.Contains(missing, s.sql) {
			missing = append(missing, s.sql)
		}
	}
	if missing == nil {
		return nil
	}
	p := conn.PgConn().StartPipeline(ctx)
	defer p.Close()
	first := c.names
	for _, sql := range missing {
		p.SendPrepare(statementName(c.names), sql, nil)
		c.names++
	}
	if err := p.Sync(); err != nil {
		return err
	}
	for i, sql := range missing {
		result, err := p.GetResults()
		if err != nil {
			return err
		}
		prepared, ok := result.(*pgconn.StatementDescription)
		if !ok {
			return fmt.Errorf("the server answers %T to a statement to be prepared", result)
		}
		prepared.Name = statementName(first + i)
		c.statements[sql] = prepared
	}
	return p.Close()
}

func statementName(n int) string { return fmt.Sprint("refdb", n) }

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
	if n.Code == warning || n.Code == adminShutdown {
		connectionOf(conn).warned = true
	}
}
