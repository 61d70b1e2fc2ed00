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

// maxUnavailable is how long a request tries to reach the server. The
// client would try until the context ends. It leaves time to make a dropped
// connection anew.
const maxUnavailable = 2 * time.Second

var errUnreachable = errors.New("the server can't be reached")

// A call is a method's request, as the interceptors of the client's
// connections find it in the context. They count what the client hides: how often it
// really sent a request, which decides what an error means.
type call struct {
	client  *client
	renewed bool // by [Driver.renewSession]
	caller  context.Context
	cancel  context.CancelCauseFunc
	end     func()
	commits atomic.Int32 // Commit requests made in the present attempt
	// unavailableSince is nil while the server answers.
	unavailableSince atomic.Pointer[time.Time]
}

type callKey struct{}

// observe notes how a request ended, and ends the call if the server stays unavailable.
func (c *call) observe(err error) {
	if status.Code(err) != codes.Unavailable {
		c.unavailableSince.Store(nil)
		return
	}
	now := time.Now()
	if !c.unavailableSince.CompareAndSwap(nil, &now) && now.Sub(*c.unavailableSince.Load()) > maxUnavailable {
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
