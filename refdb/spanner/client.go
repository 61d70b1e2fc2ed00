package spanner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A client is a Google client with a count of its users. It keeps one session permanently, even
// after the server lost the session, for example because the database was dropped and restored. The
// driver then replaces the client. The users are the operations that began with the client and,
// until it is replaced, the driver.
type client struct {
	*spanner.Client
	users atomic.Int32
}

// countUsers returns a client with one user.
func countUsers(c *spanner.Client) *client {
	counted := &client{Client: c}
	counted.users.Store(1)
	return counted
}

// release ends the use of the client, and closes it after its last user.
func (c *client) release() {
	if c.users.Add(-1) == 0 {
		c.Close()
	}
}

// startWork registers work that Close waits for, and returns the client for it. The work ends with
// finishWork.
func (d *Driver) startWork() (*client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, driver.ErrClosed
	}
	d.work.Add(1)
	d.client.users.Add(1)
	return d.client, nil
}

func (d *Driver) finishWork(c *client) {
	c.release()
	d.work.Done()
}

// renewSession gives c a client with a new session if the server lost the session: nothing was done
// then, and c may retry. Otherwise it returns the error for c. With shared, it also renews the
// session if err may mean that another process uses the same session of an emulator. It renews once
// per call, so that a server that loses every session is not tried forever.
func (d *Driver) renewSession(c *call, err error, shared bool) error {
	if c.renewed || !sessionLost(err) && !(shared && d.emulatorForgot(err)) {
		return err
	}
	c.renewed = true
	next, err := d.replaceClient(c.client)
	if err != nil {
		return err
	}
	c.client.release()
	c.client = next
	return nil
}

// replaceClient returns the client that replaces lost, with its caller as a user. All callers get
// the same one.
func (d *Driver) replaceClient(lost *client) (*client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.client == lost {
		next, err := d.connect()
		if err != nil {
			return nil, err
		}
		lost.release()
		d.client = countUsers(next)
	}
	d.client.users.Add(1)
	return d.client, nil
}

// maxUnavailable is how long a request tries to reach the server. The client would try until the
// context ends. It is long enough to reestablish a dropped connection.
const maxUnavailable = 2 * time.Second

var errUnreachable = errors.New("the server can't be reached")

// A call is a method's request, which the interceptors of the client's connections find in the
// context. They count what the client hides: how often it actually sent a request, which decides
// what an error means.
type call struct {
	client  *client
	renewed bool // by [Driver.renewSession]
	caller  context.Context
	cancel  context.CancelCauseFunc
	end     func()
	commits atomic.Int32 // Commit requests in the present attempt
	// patience extends maxUnavailable: a test's emulator may take longer.
	patience time.Duration
	// unavailableSince is nil while the server answers.
	unavailableSince atomic.Pointer[time.Time]
}

type callKey struct{}

// observe records the end of a request, and ends the call if the server stays unavailable.
func (c *call) observe(err error) {
	if status.Code(err) != codes.Unavailable {
		c.unavailableSince.Store(nil)
		return
	}
	now := time.Now()
	if !c.unavailableSince.CompareAndSwap(nil, &now) && now.Sub(*c.unavailableSince.Load()) > maxUnavailable+c.patience {
		c.cancel(errUnreachable)
	}
}

func interceptUnary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return invoke(ctx, method, req, reply, conn, opts...)
	}
	if method == spannerpb.Spanner_Commit_FullMethodName {
		c.commits.Add(1)
	}
	err := invoke(ctx, method, req, reply, conn, opts...)
	c.observe(err)
	return err
}

func interceptStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, opts...)
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.observe(err)
	}
	return stream, err
}
