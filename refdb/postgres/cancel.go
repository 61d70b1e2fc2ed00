package postgres

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

const (
	// cancelLimit is how long the server's answer is waited for after a request's
	// context ended.
	cancelLimit = time.Second
	// cancelPause is between two looks at what the request is doing.
	cancelPause = 100 * time.Millisecond
)

// cancelSQL cancels what waits for a lock, and so has not begun to commit. A
// request to cancel in the protocol's own way might meet a commit that waits
// for its standby: the server would then show to everybody what the next
// failover may lose.
const cancelSQL = `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'`

// A canceller ends the wait for a request whose context has ended. It gives the
// server a moment to answer, which says what became of the request, and hangs
// up. What is under way there then may still be carried out.
type canceller struct {
	conn *pgconn.PgConn
	// config is how to reach the server beside conn; nil where a pooler is in
	// between, behind which the request can't be found.
	config *pgx.ConnConfig

	stop context.CancelFunc
	done chan struct{} // closed when the server isn't asked any more
}

func (c *canceller) HandleCancel(context.Context) {
	limit := time.Now().Add(cancelLimit)
	c.conn.Conn().SetDeadline(limit)
	c.done = make(chan struct{})
	var ctx context.Context
	ctx, c.stop = context.WithDeadline(context.Background(), limit)
	go func() {
		defer close(c.done)
		if c.config != nil {
			_ = c.ask(ctx) // then it goes on until it's done
		}
	}()
}

func (c *canceller) HandleUnwatchAfterCancel() {
	c.stop()
	<-c.done
	c.conn.Conn().SetDeadline(time.Time{})
}

// ask has the request cancelled whenever it waits for a lock, until ctx ends. It
// uses a connection of its own: those of the pool may all be stuck.
func (c *canceller) ask(ctx context.Context) error {
	config := c.config.Copy()
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for {
		if _, err := conn.Exec(ctx, cancelSQL, pgx.QueryExecModeExec, c.conn.PID()); err != nil {
			return err
		}
		select {
		case <-time.After(cancelPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// neverCancel keeps pgx from asking the server to cancel what is under way on a
// connection that broke, for the same reason: it would dial the address that
// the connection gives.
func neverCancel(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if network == (nowhere{}).Network() {
			return nil, errors.ErrUnsupported
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return line{conn}, nil
	}
}

// A line is a connection that doesn't tell where it leads.
type line struct{ net.Conn }

func (l line) NetConn() net.Conn    { return l.Conn }
func (l line) RemoteAddr() net.Addr { return nowhere{} }

type nowhere struct{}

func (nowhere) Network() string { return "nowhere" }
func (nowhere) String() string  { return "" }
