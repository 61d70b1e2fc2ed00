package spanner_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// An intruder is a driver that uses the first session of another driver. That happens with an
// emulator that lost its data and numbers its sessions from 0 again.
type intruder struct {
	*spanner.Driver
	session spannerpb.Session
}

// unary records the first session.
func (i *intruder) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if s, ok := reply.(*spannerpb.Session); ok && i.session.Name == "" {
		proto.Merge(&i.session, s)
	}
	return err
}

func newIntruder(t *testing.T, db *dbtest.Database) *intruder {
	t.Helper()
	i := &intruder{}
	var err error
	i.Driver, err = spanner.Open(t.Context(), db.URL(), option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(i.unary)))
	must(t, err)
	t.Cleanup(func() { i.Close() })
	return i
}

func TestADriverLeavesSessionsUsableForOthers(t *testing.T) {
	t.Parallel()
	db := dbtest.Spanner(t)
	other := newIntruder(t, db)
	var sessions, commits atomic.Int32
	d, err := spanner.Open(t.Context(), db.URL(), option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if s, ok := reply.(*spannerpb.Session); ok && sessions.Add(1) == 1 {
				proto.Merge(s, &other.session)
				return nil
			}
			if c, ok := req.(*spannerpb.CommitRequest); ok && c.Session == other.session.Name {
				// Another transaction in the session ends the one that is about to be committed.
				acquire(t, other, "other", fmt.Sprintf("refs/heads/other-%d", commits.Add(1)))
			}
			return invoke(ctx, method, req, reply, conn, opts...)
		})))
	must(t, err)
	defer d.Close()
	for n := range 3 {
		acquire(t, d, fmt.Sprint("n", n), fmt.Sprintf("refs/heads/own-%d", n))
	}
	if n := sessions.Load(); n != 2 {
		t.Errorf("%d sessions, want 2: the shared one and one of its own", n)
	}
}
