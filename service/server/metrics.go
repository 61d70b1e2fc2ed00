package server

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
)

// The reasons for which requests are rejected before they become calls.
const (
	rejectedUnauthenticated = "unauthenticated"
	rejectedStale           = "rules_unknown"
	rejectedNoKey           = "key_unknown"
	rejectedCalls           = "calls"
	rejectedLasting         = "lasting_calls"
	rejectedBytes           = "bytes"
	rejectedLastingBytes    = "lasting_bytes"
	rejectedSubjectCalls    = "subject_calls"
	rejectedSubjectLasting  = "subject_lasting_calls"
	rejectedSubjectBytes    = "subject_bytes"

	rejectedSubjectLastingBytes = "subject_lasting_bytes"

	rejectedStreams            = "streams"
	rejectedStreamBytes        = "stream_bytes"
	rejectedSubjectStreams     = "subject_streams"
	rejectedSubjectStreamBytes = "subject_stream_bytes"

	rejectedScrapes        = "scrapes"
	rejectedSubjectScrapes = "subject_scrapes"

	rejectedTooLarge = "too_large"
	rejectedBroken   = "broken"
	rejectedNoRule   = "no_rule"
)

// counts are a server's metrics. They name no subject, project or ref.
type counts struct {
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	rejected *prometheus.CounterVec
	expiry   *expiry
}

// failures are the results that alerts are about. A counter that begins with its first failure would hide
// that one from the alert.
var failures = []string{connect.CodeInternal.String(), connect.CodeUnavailable.String(), "unknown"}

func newCounts() counts {
	c := counts{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refdb_server_calls_total",
			Help: "Calls by method and result: the result in the response, such as acquired, locked or unknown; ok for a response without one; or the code of a failure.",
		}, []string{"method", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "refdb_server_call_seconds", Help: "Time from reading a call to its result, including the wait for locks.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"method"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refdb_server_rejected_total",
			Help: "Requests that were rejected before they were calls: without a valid credential (unauthenticated), because the rules can't be read (rules_unknown), " +
				"because the key of a JWT is not among those of its issuer that could be read (key_unknown), " +
				"of a subject without any rule (no_rule), because of too many calls, calls that last, bytes or bytes of calls that last at a time, in all or of one subject " +
				"(calls, lasting_calls, bytes, lasting_bytes, subject_calls, subject_lasting_calls, subject_bytes, subject_lasting_bytes), too many streams or bytes of their requests " +
				"(streams, stream_bytes, subject_streams, subject_stream_bytes), too many requests for the metrics (scrapes, subject_scrapes), too large, or not received in time (broken).",
		}, []string{"reason"}),
		expiry: &expiry{},
	}
	services := refdbv1.File_refdb_v1_refdb_proto.Services()
	for i := range services.Len() {
		for methods, j := services.Get(i).Methods(), 0; j < methods.Len(); j++ {
			for _, result := range failures {
				c.calls.WithLabelValues("/"+string(services.Get(i).FullName())+"/"+string(methods.Get(j).Name()), result)
			}
		}
	}
	for _, reason := range []string{
		rejectedUnauthenticated, rejectedStale, rejectedNoKey, rejectedNoRule, rejectedTooLarge, rejectedBroken,
		rejectedCalls, rejectedLasting, rejectedBytes, rejectedLastingBytes,
		rejectedSubjectCalls, rejectedSubjectLasting, rejectedSubjectBytes, rejectedSubjectLastingBytes,
		rejectedStreams, rejectedStreamBytes, rejectedSubjectStreams, rejectedSubjectStreamBytes, rejectedScrapes, rejectedSubjectScrapes,
	} {
		c.rejected.WithLabelValues(reason)
	}
	return c
}

func (c counts) collectors(calls, streams *limiter) []prometheus.Collector {
	current := func(name, help string, l *limiter) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(l.now()) })
	}
	return []prometheus.Collector{
		c.calls, c.seconds, c.rejected, c.expiry,
		current("refdb_server_calls", "Calls in progress, without streams.", calls),
		current("refdb_server_streams", "Streams of changes that are open.", streams),
	}
}

func (c counts) interceptor() connect.Interceptor { return interceptor{c} }

// An interceptor counts calls and streams.
type interceptor struct{ counts }

func (c interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, call connect.AnyRequest) (connect.AnyResponse, error) {
		method := call.Spec().Procedure
		began := time.Now()
		response, err := next(ctx, call)
		c.seconds.WithLabelValues(method).Observe(time.Since(began).Seconds())
		c.calls.WithLabelValues(method, resultOf(response, err)).Inc()
		return response, err
	}
}

func (c interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (c interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, stream connect.StreamingHandlerConn) error {
		return c.watched(ctx, func(ctx context.Context) error { return next(ctx, stream) })
	}
}

// watched counts a stream by the reason of its end.
func (c counts) watched(ctx context.Context, stream func(context.Context) error) error {
	err := stream(ctx)
	result := "ok"
	if err != nil {
		result = connect.CodeOf(err).String()
	}
	c.calls.WithLabelValues(refdbv1connect.RefdbServiceWatchProcedure, result).Inc()
	return err
}

// resultOf names the result of a call.
func resultOf(response connect.AnyResponse, err error) string {
	if err != nil {
		return connect.CodeOf(err).String()
	}
	if m, ok := response.Any().(proto.Message); ok {
		r := m.ProtoReflect()
		if result := r.Descriptor().Oneofs().ByName("result"); result != nil {
			if field := r.WhichOneof(result); field != nil {
				return string(field.Name())
			}
		}
	}
	return "ok"
}
