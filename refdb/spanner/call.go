package spanner

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// outage is for how long a request may find nobody at the server's address: the
// client would go on until the context ends. It covers a connection that was
// dropped and is made anew.
const outage = 2 * time.Second

var errUnreachable = errors.New("the server can't be reached")

// A call is a method's request, as the interceptors of the client's
// connections find it in its context. The client hides how often it really
// asked, which decides what an error means.
type call struct {
	client  *client
	renewed bool // by [Driver.renew]
	caller  context.Context
	cancel  context.CancelCauseFunc
	end     func()
	commits atomic.Int32              // Commit requests made in the present attempt
	lost    atomic.Pointer[time.Time] // since when the server was unavailable
}

type callKey struct{}

// asked learns how a request ended, and ends the call if the server stays away.
func (c *call) asked(err error) {
	if status.Code(err) != codes.Unavailable {
		c.lost.Store(nil)
		return
	}
	now := time.Now()
	if !c.lost.CompareAndSwap(nil, &now) && now.Sub(*c.lost.Load()) > outage {
		c.cancel(errUnreachable)
	}
}

func watchUnary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return invoke(ctx, method, req, reply, conn, opts...)
	}
	if method == spannerpb.Spanner_Commit_FullMethodName {
		c.commits.Add(1)
	}
	err := invoke(ctx, method, req, reply, conn, opts...)
	c.asked(err)
	return err
}

func watchStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, conn, method, opts...)
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.asked(err)
	}
	return stream, err
}
