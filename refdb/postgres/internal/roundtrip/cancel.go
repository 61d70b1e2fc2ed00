package roundtrip

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// AnswerLimit is how long a request waits for the server's answer after its context
	// has ended.
	AnswerLimit = time.Second
	// LockTimeout is how long a statement waits for a lock until the server ends it. It is so much
	// shorter than AnswerLimit that the answer arrives in time. The request is then repeated until
	// its context ends.
	LockTimeout = AnswerLimit / 2
)

// The client never asks the server to cancel a request. The cancel signal is not bound to a
// request: it may arrive during the connection's next request, or when this request's commit waits
// for its standby, in which case the server makes a commit visible that the next failover may lose.
// The server's own lock_timeout applies only while a statement waits for a lock. It also ends
// requests whose client is gone.

// A lastWait ends the wait for a request whose context has ended. It gives the server a moment to
// answer, because the answer decides the outcome of the request, and then closes the connection.
// The server may still execute the statements in progress.
type lastWait struct{ conn *pgconn.PgConn }

func (w lastWait) HandleCancel(context.Context) {
	w.conn.Conn().SetDeadline(time.Now().Add(AnswerLimit))
}

func (w lastWait) HandleUnwatchAfterCancel() {
	w.conn.Conn().SetDeadline(time.Time{})
}

// NeverCancel keeps pgx from asking the server to cancel the statement in progress on a connection
// that broke. pgx would dial the address that the connection reports, so the connection reports an
// address that is refused here.
func NeverCancel(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if network == (nowhere{}).Network() {
			return nil, errors.ErrUnsupported
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return hiddenAddr{conn}, nil
	}
}

// A hiddenAddr is a connection that hides its remote address.
type hiddenAddr struct{ net.Conn }

func (c hiddenAddr) NetConn() net.Conn    { return c.Conn }
func (c hiddenAddr) RemoteAddr() net.Addr { return nowhere{} }

type nowhere struct{}

func (nowhere) Network() string { return "nowhere" }
func (nowhere) String() string  { return "" }
