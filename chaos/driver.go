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

// openDriver opens the database at url. A Spanner database is on the emulator at
// that address, and loss loses its messages.
func openDriver(ctx context.Context, url, emulator string, loss *messageLoss) (refdb.Driver, error) {
	if url != spannerURL {
		return drivers.Open(ctx, url)
	}
	d, err := spanner.Open(ctx, url, append(loss.options(), spanner.Emulator(emulator))...)
	if err != nil {
		return nil, err // not a nil *spanner.Driver in a Driver
	}
	return d, nil
}

// openForNemesis opens the database at url, without lost messages.
func openForNemesis(ctx context.Context, url, emulator string) (*refdb.DB, error) {
	d, err := openDriver(ctx, url, emulator, &messageLoss{})
	if err != nil {
		return nil, err
	}
	return refdb.New(d, refdb.Options{Site: "nemesis"})
}

// A messageLoss loses some of a Spanner client's requests, before they are sent,
// and as many replies to requests that were carried out.
type messageLoss struct {
	probability atomic.Uint64 // of each, as bits of a float64
}

func (l *messageLoss) lose(p float64) { l.probability.Store(math.Float64bits(p)) }

func (l *messageLoss) lost() bool {
	return rand.Float64() < math.Float64frombits(l.probability.Load())
}

func (l *messageLoss) options() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(l.unary)),
		option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(l.stream)),
	}
}

// errLost returns what a client sees when a connection or a stream breaks.
func errLost() error {
	return status.Error([]codes.Code{codes.Unavailable, codes.Internal}[rand.IntN(2)], "the connection was lost")
}

func (l *messageLoss) unary(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if l.lost() {
		return errLost()
	}
	err := invoke(ctx, method, request, reply, c, opts...)
	if err == nil && l.lost() {
		return errLost()
	}
	return err
}

func (l *messageLoss) stream(ctx context.Context, desc *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if l.lost() {
		return nil, errLost()
	}
	s, err := open(ctx, desc, c, method, opts...)
	if err != nil {
		return nil, err
	}
	return &lossyStream{s, l}, nil
}

type lossyStream struct {
	grpc.ClientStream
	loss *messageLoss
}

func (s *lossyStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if (err == nil || err == io.EOF) && s.loss.lost() {
		return errLost()
	}
	return err
}
