package spanner_test

import (
	"context"
	"path"
	"slices"
	"sync"
	"testing"

	"google.golang.org/api/option"
	"google.golang.org/grpc"

	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A wire is between a driver and the server. It records every request, and may change the request's
// outcome.
type wire struct {
	mu    sync.Mutex
	calls []string // names of the RPCs, in order
	// around, unless nil, is called in place of a unary RPC; send sends the RPC.
	around func(name string, send func() error) error
	// before, unless nil, is called before a streaming RPC is opened.
	before func(ctx context.Context, name string) error
	// sent, unless nil, is called with every message that begins a stream.
	sent func(ctx context.Context, name string, request any) error
}

// openWire opens a patient driver that connects through w.
func openWire(tb testing.TB, db *dbtest.Database, w *wire) *spanner.Driver {
	tb.Helper()
	d := openWireWithLimits(tb, db, w)
	d.BePatient()
	return d
}

// openWireWithLimits is openWire for the tests of the time limits.
func openWireWithLimits(tb testing.TB, db *dbtest.Database, w *wire) *spanner.Driver {
	tb.Helper()
	d, err := spanner.Open(tb.Context(), db.URL(),
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(w.unary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(w.stream)))
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return d
}

// set changes the behaviour of the wire.
func (w *wire) set(f func(*wire)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w)
}

// take returns the RPCs since the last call of take.
func (w *wire) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	return calls
}

func (w *wire) note(method string) (name string, now wire) {
	name = path.Base(method)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, name)
	return name, wire{around: w.around, before: w.before, sent: w.sent}
}

func (w *wire) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	name, now := w.note(method)
	send := func() error { return invoke(ctx, method, req, reply, conn, opts...) }
	if now.around != nil {
		return now.around(name, send)
	}
	return send()
}

func (w *wire) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	name, now := w.note(method)
	if now.before != nil {
		if err := now.before(ctx, name); err != nil {
			return nil, err
		}
	}
	s, err := open(ctx, desc, conn, method, opts...)
	if err != nil || now.sent == nil {
		return s, err
	}
	return &wiredStream{s, func(m any) error { return now.sent(ctx, name, m) }}, nil
}

type wiredStream struct {
	grpc.ClientStream
	sent func(m any) error
}

func (s *wiredStream) SendMsg(m any) error {
	if err := s.sent(m); err != nil {
		return err
	}
	return s.ClientStream.SendMsg(m)
}

func wantCalls(tb testing.TB, what string, got []string, want ...string) {
	tb.Helper()
	if !slices.Equal(got, want) {
		tb.Errorf("%s: the requests were %v, want %v", what, got, want)
	}
}
