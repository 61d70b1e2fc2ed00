package postgres

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// cancelLimit is how long the server's answer is waited for after a request's
	// context ended.
	cancelLimit = time.Second
	// lockTimeout is how long a statement waits for a lock until the server ends
	// it: so long before cancelLimit that the answer is in time. The request is
	// then made again, for as long as its context goes on.
	lockTimeout = cancelLimit / 2
)

// Nothing is ever cancelled from outside. Such a signal is not bound to a
// request: it may arrive when the connection's next one is under way, or when
// this one's commit waits for its standby, and then the server shows to
// everybody what the next failover may lose. The server's own lock_timeout
// strikes only while a statement waits for a lock. It also ends requests whose
// client has gone.

// A lastWait ends the wait for a request whose context has ended. It gives the
// server a moment to answer, which says what became of the request, and hangs
// up. What is under way there then may still be carried out.
type lastWait struct{ conn *pgconn.PgConn }

func (w lastWait) HandleCancel(context.Context) {
	w.conn.Conn().SetDeadline(time.Now().Add(cancelLimit))
}

func (w lastWait) HandleUnwatchAfterCancel() {
	w.conn.Conn().SetDeadline(time.Time{})
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
