package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// cancelLimit is how long the server's answer is waited for after a request's
// context ended.
const cancelLimit = time.Second

// A canceller asks the server to cancel a request whose context has ended, and
// waits a little for its answer, which says what became of the request. pgx's
// own hangs up on the server before that has heard it out when the answer is
// there first, which PgBouncer 1.18 does not survive.
type canceller struct {
	conn *pgconn.PgConn
	done chan struct{} // closed when the server has been asked
}

func (c *canceller) HandleCancel(context.Context) {
	limit := time.Now().Add(cancelLimit)
	c.conn.Conn().SetDeadline(limit)
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		ctx, cancel := context.WithDeadline(context.Background(), limit)
		defer cancel()
		_ = c.conn.CancelRequest(ctx)
	}()
}

func (c *canceller) HandleUnwatchAfterCancel() {
	<-c.done
	c.conn.Conn().SetDeadline(time.Time{})
}
