package main

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
)

// openDriver opens the database at url. Spanner's is the emulator at that
// address, by way of wire.
func openDriver(ctx context.Context, url, emulator string, wire *lossyWire) (refdb.Driver, error) {
	if url != spannerURL {
		return drivers.Open(ctx, url)
	}
	d, err := spanner.Open(ctx, url, append(wire.options(), spanner.Emulator(emulator))...)
	if err != nil {
		return nil, err // not a nil *spanner.Driver in a Driver
	}
	return d, nil
}

// openForNemesis opens the database at url, with no faults in between.
func openForNemesis(ctx context.Context, url, emulator string) (*refdb.DB, error) {
	d, err := openDriver(ctx, url, emulator, &lossyWire{})
	if err != nil {
		return nil, err
	}
	return refdb.New(d, refdb.Options{Site: "nemesis"})
}

// A lossyWire loses some of a Spanner client's requests, before they are sent,
// and as many replies to requests that were carried out.
type lossyWire struct {
	probability atomic.Uint64 // of each, as bits of a float64
}

func (w *lossyWire) lose(p float64) { w.probability.Store(math.Float64bits(p)) }

func (w *lossyWire) lost() bool {
	return rand.Float64() < math.Float64frombits(w.probability.Load())
}

func (w *lossyWire) options() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(w.unary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(w.stream)),
	}
}

// errLost is what a client sees of a connection that broke, or of a stream on it that did.
func errLost() error {
	return status.Error([]codes.Code{codes.Unavailable, codes.Internal}[rand.IntN(2)], "the connection was lost")
}

func (w *lossyWire) unary(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if w.lost() {
		return errLost()
	}
	err := invoke(ctx, method, request, reply, c, opts...)
	if err == nil && w.lost() {
		return errLost()
	}
	return err
}

func (w *lossyWire) stream(ctx context.Context, desc *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if w.lost() {
		return nil, errLost()
	}
	s, err := open(ctx, desc, c, method, opts...)
	if err != nil {
		return nil, err
	}
	return &lossyStream{s, w}, nil
}

type lossyStream struct {
	grpc.ClientStream
	wire *lossyWire
}

func (s *lossyStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if (err == nil || err == io.EOF) && s.wire.lost() {
		return errLost()
	}
	return err
}
