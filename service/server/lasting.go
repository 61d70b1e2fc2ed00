package server

import (
	"context"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

// exceeded returns the failure of a call that would exceed a limit.
func (l *limiter) exceeded(reason string) *connect.Error {
	what, advice, limits := "", "try again later, at another server if there is one", l.limits
	switch reason {
	case l.what.all:
		what = fmt.Sprintf("this server answers %d %s already", limits.Calls, l.what.noun)
	case rejectedLasting:
		what = fmt.Sprintf("this server answers %d acquisitions already", mayLast(limits.Calls))
	case rejectedLastingBytes:
		what = fmt.Sprintf("the requests of the acquisitions of this server have %d bytes already", mayLast(limits.Bodies))
	case l.what.bytes:
		what = fmt.Sprintf("the requests at this server have %d bytes already", limits.Bodies)
	case l.what.subject:
		what, advice = fmt.Sprintf("the subject has %d %s at this server already", limits.CallsPerSubject, l.what.noun), "make fewer at a time"
	case rejectedSubjectLasting:
		what = fmt.Sprintf("the subject has %d acquisitions at this server already", mayLast(limits.CallsPerSubject))
		advice = "let fewer wait at a time"
	case rejectedSubjectLastingBytes:
		what = fmt.Sprintf("the requests of the subject's acquisitions at this server have %d bytes already", mayLast(limits.BodiesPerSubject))
		advice = "let fewer wait at a time, or for fewer refs"
	case l.what.subjectBytes:
		what, advice = fmt.Sprintf("the requests of the subject at this server have %d bytes already", limits.BodiesPerSubject), "send fewer or smaller ones at a time"
	}
	return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%s: nothing was done; %s", what, advice))
}

type placeKey struct{}

func withPlace(ctx context.Context, p *place) context.Context {
	return context.WithValue(ctx, placeKey{}, p)
}

// limitLasting counts the calls that may wait for others: so a subject whose calls all wait can still
// extend and release its locks.
func limitLasting(c counts) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, call connect.AnyRequest) (connect.AnyResponse, error) {
			if p, ok := ctx.Value(placeKey{}).(*place); ok && waits(call.Any()) {
				if reason := p.last(); reason != "" {
					c.rejected.WithLabelValues(reason).Inc()
					return nil, p.of.exceeded(reason)
				}
			}
			return next(ctx, call)
		}
	}
}

// waits reports whether a request has a field wait: its call may last, for a turn and a slow answer if not
// for others.
func waits(request any) bool {
	m, ok := request.(proto.Message)
	return ok && m.ProtoReflect().Descriptor().Fields().ByName("wait") != nil
}
