package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
)

const (
	// A client that does not take a response within writeLimit is cut off: the server holds only that
	// response for it, and it can go on from its last cursor.
	writeLimit = 10 * time.Second

	// Bytes of the requests for streams.
	maxStreamBody, streamBodies, streamBodiesPerSubject = 16 << 10, 16 << 20, 4 << 20

	watchPath = "/v1/watch"
)

// streamLimits are the limits of streams, which don't count as calls.
func streamLimits(l Limits) Limits {
	return Limits{Calls: l.Streams, CallsPerSubject: l.StreamsPerSubject, Body: maxStreamBody, Bodies: streamBodies, BodiesPerSubject: streamBodiesPerSubject}
}

// A streamBody is the body of a request for a stream. Once it was read to its end, it is neither kept nor charged: a
// stream lasts.
type streamBody struct {
	io.ReadCloser
	place *place
}

func (b *streamBody) Read(data []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(data)
	if errors.Is(err, io.EOF) {
		b.ReadCloser = http.NoBody
		b.place.charge(0)
	}
	return n, err
}

// streamed limits how long a client may take for each write of a response, instead of for all of it.
func streamed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := c.SetWriteDeadline(time.Time{}); err != nil {
			http.Error(w, "this connection can't stream", http.StatusInternalServerError)
			return
		}
		if p, ok := r.Context().Value(placeKey{}).(*place); ok {
			r.Body = &streamBody{r.Body, p}
		}
		next.ServeHTTP(&streamWriter{ResponseWriter: w, controller: c}, r)
	})
}

// A streamWriter has a time limit for each write.
type streamWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
	failed     error // of Flush
}

func (w *streamWriter) Write(data []byte) (n int, err error) {
	if w.failed != nil {
		return 0, w.failed
	}
	err = w.within(func() error {
		n, err = w.ResponseWriter.Write(data)
		return err
	})
	return n, err
}

// Flush implements http.Flusher, which has no error: the next write returns it.
func (w *streamWriter) Flush() {
	if err := w.FlushError(); w.failed == nil {
		w.failed = err
	}
}

func (w *streamWriter) FlushError() error { return w.within(w.controller.Flush) }

func (w *streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// within calls do, with a deadline that does not outlast it: on HTTP/2 a deadline ends a stream that
// writes nothing, too.
func (w *streamWriter) within(do func() error) error {
	if err := w.controller.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return err
	}
	return errors.Join(do(), w.controller.SetWriteDeadline(time.Time{}))
}

// events serves Watch as server-sent events.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet { // a response to HEAD would never end
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "watch with GET", http.StatusMethodNotAllowed)
		return
	}
	request, err := watchRequest(r)
	if err != nil {
		s.fail(w, r, connect.NewError(connect.CodeInvalidArgument, err))
		return
	}
	e := &eventWriter{w: w}
	failure := s.counts.watched(r.Context(), func(ctx context.Context) error {
		return s.api.Stream(ctx, request, e.send)
	})
	var reason *connect.Error
	switch {
	case !errors.As(failure, &reason):
	case !e.begun:
		s.fail(w, r, reason)
	default:
		// The client may be gone.
		_ = e.end(reason)
	}
}

// watchRequest returns the request in a URL. A client of server-sent events that connects again names its cursor
// in a header.
func watchRequest(r *http.Request) (*refdbv1.WatchRequest, error) {
	q := r.URL.Query()
	for name, values := range q {
		if name != "project" && name != "prefix" && name != "cursor" || len(values) > 1 {
			return nil, fmt.Errorf("unknown or repeated parameter %.50q: give project, prefix and cursor", name)
		}
	}
	request := &refdbv1.WatchRequest{Project: q.Get("project"), Prefix: q.Get("prefix"), Cursor: q.Get("cursor")}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		request.Cursor = last
	}
	return request, nil
}

// An eventWriter writes server-sent events.
type eventWriter struct {
	w     http.ResponseWriter
	begun bool
}

// send writes a response as an event whose ID is the cursor.
func (e *eventWriter) send(m *refdbv1.WatchResponse) error {
	if !e.begun {
		e.begun = true
		h := e.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no") // some proxies would collect responses
		e.w.WriteHeader(http.StatusOK)
	}
	data, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	kind := "changes"
	if len(m.Changes) == 0 {
		kind = "heartbeat"
	}
	return e.event(kind, m.Cursor, data)
}

// end writes the reason why the stream ends, as in the failures of the Connect protocol.
func (e *eventWriter) end(reason *connect.Error) error {
	data, err := json.Marshal(map[string]string{"code": reason.Code().String(), "message": reason.Message()})
	if err != nil {
		return err
	}
	return e.event("end", "", data)
}

// event writes an event. The data are JSON, in which line breaks are escaped.
func (e *eventWriter) event(kind, id string, data []byte) error {
	text := fmt.Appendf(nil, "event: %s\n", kind)
	if id != "" {
		text = fmt.Appendf(text, "id: %s\n", id)
	}
	if _, err := e.w.Write(fmt.Appendf(text, "data: %s\n\n", data)); err != nil {
		return err
	}
	return http.NewResponseController(e.w).Flush()
}

// isStream reports whether a method's response is a stream.
func isStream(path string) bool { return path == refdbv1connect.RefdbServiceWatchProcedure }
