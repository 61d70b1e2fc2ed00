package server

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// exceeded returns the failure of a call that would exceed a limit.
func (l Limits) exceeded(reason string) *connect.Error {
	what, advice := "", "try again later, at another server if there is one"
	switch reason {
	case rejectedCalls:
		what = fmt.Sprintf("this server answers %d calls already", l.Calls)
	case rejectedLasting:
		what = fmt.Sprintf("%d calls of this server wait for locks or are streams already", mayLast(l.Calls))
	case rejectedBytes:
		what = fmt.Sprintf("the requests at this server have %d bytes already", l.Bodies)
	case rejectedSubjectCalls:
		what, advice = fmt.Sprintf("the subject has %d calls at this server already", l.CallsPerSubject), "make fewer at a time"
	case rejectedSubjectLasting:
		what = fmt.Sprintf("%d calls of the subject wait for locks at this server or are streams already", mayLast(l.CallsPerSubject))
		advice = "let fewer wait at a time"
	case rejectedSubjectBytes:
		what, advice = fmt.Sprintf("the requests of the subject at this server have %d bytes already", l.BodiesPerSubject), "send fewer or smaller ones at a time"
	}
	return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%s: nothing was done; %s", what, advice))
}

type placeKey struct{}

func withPlace(ctx context.Context, p *place) context.Context {
	return context.WithValue(ctx, placeKey{}, p)
}

// lastingCalls counts calls that last: streams, and calls that may wait for others. So a subject whose
// calls all wait can still extend and release its locks.
type lastingCalls struct{ counts counts }

func (c lastingCalls) begin(ctx context.Context) error {
	p, ok := ctx.Value(placeKey{}).(*place)
	if !ok {
		return nil
	}
	if reason := p.last(); reason != "" {
		c.counts.rejected.WithLabelValues(reason).Inc()
		return p.of.limits.exceeded(reason)
	}
	return nil
}

// WrapUnary implements [connect.Interceptor].
func (c lastingCalls) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, call connect.AnyRequest) (connect.AnyResponse, error) {
		if waits(call.Any()) {
			if err := c.begin(ctx); err != nil {
				return nil, err
			}
		}
		return next(ctx, call)
	}
}

// waits reports whether a request has a wait, for which its call may last.
func waits(request any) bool {
	m, ok := request.(proto.Message)
	if !ok {
		return false
	}
	r := m.ProtoReflect()
	field := r.Descriptor().Fields().ByName("wait")
	if field == nil || field.Message() == nil || !r.Has(field) {
		return false
	}
	d, ok := r.Get(field).Message().Interface().(*durationpb.Duration)
	return ok && d.AsDuration() > 0
}

// WrapStreamingHandler implements [connect.Interceptor].
func (c lastingCalls) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, stream connect.StreamingHandlerConn) error {
		if err := c.begin(ctx); err != nil {
			return err
		}
		return next(ctx, stream)
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (c lastingCalls) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}
