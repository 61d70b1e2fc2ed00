// Package server serves the API of refdb-server over HTTP. It authenticates callers before it reads the
// bodies of their requests, limits the resources that callers can use, and ends without losing a lock.
package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/api"
	"github.com/globalrefdb/globalrefdb/service/issuers"
	"github.com/globalrefdb/globalrefdb/service/page"
)

const (
	headerLimit = 10 * time.Second // for the header of a request
	bodyLimit   = 15 * time.Second // for its body
	callLimit   = 2 * time.Minute  // for all of it, with the response
	idleLimit   = 2 * time.Minute
	headerBytes = 16 << 10
	atATime     = 100       // calls at a time on one connection of HTTP/2
	received    = 128 << 10 // bytes on one that no call has read yet

	// Requests for the metrics at a time, in all and of one subject.
	scrapes, scrapesPerSubject = 4, 2
)

// Options configure a server.
type Options struct {
	DB     *refdb.DB
	Rules  *refdb.DB // the same database, with connections that no call uses, for the tokens and rules
	Logger *slog.Logger
	Limits Limits
	// Issuers verify JWTs; nil if none are accepted.
	Issuers *issuers.Issuers
	// Collectors are the metrics of the process, such as those of DB.
	Collectors []prometheus.Collector
	// Page is the prefix of the paths of the page for people; "" for no page.
	Page string
	// UserHeader is the header in which a proxy names the visitors of the page; "" for none. It needs a page,
	// and a server that listens at a socket.
	UserHeader string
}

// A Server answers requests. Its Handler may be used once Run or RunCache runs.
type Server struct {
	o        Options
	api      *api.Service
	cache    *access.Cache
	clients  *authorities // of clients' certificates; nil if none are accepted
	limiter  *limiter     // of calls
	streams  *limiter
	counts   counts
	errors   *connect.ErrorWriter
	page     *page.Page // nil if there is none
	handler  http.Handler
	draining atomic.Bool
}

// New returns a server, or an error that wraps refdb.ErrInvalid if a limit can't work.
func New(o Options) (*Server, error) {
	if err := o.Limits.check(); err != nil {
		return nil, err
	}
	s := &Server{
		o: o, api: api.New(o.DB, o.Logger, o.Limits.Requests), cache: access.NewCache(o.Rules, o.Logger),
		limiter: newLimiter(o.Limits, ofCalls), streams: newLimiter(streamLimits(o.Limits), ofStreams), counts: newCounts(),
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector())
	registry.MustRegister(s.counts.collectors(s.limiter, s.streams)...)
	if o.Issuers != nil {
		registry.MustRegister(o.Issuers)
	}
	for _, c := range o.Collectors {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	options := []connect.HandlerOption{
		connect.WithCompression("gzip", nil, nil), // a small body must not become a large message
		connect.WithReadMaxBytes(int(o.Limits.Body)),
		connect.WithInterceptors(limitLasting(s.counts), s.counts.interceptor()),
	}
	options = append(options, codecs()...)
	s.errors = connect.NewErrorWriter(options...)
	mux := http.NewServeMux()
	path, answer := refdbv1connect.NewRefdbServiceHandler(s.api, options...)
	calls := s.authenticated(s.bounded(s.limiter, answer))
	streams := s.authenticated(s.bounded(s.streams, streamed(answer)))
	events := s.bounded(s.streams, streamed(http.HandlerFunc(s.events)))
	if err := s.addPage(events); err != nil {
		return nil, err
	}
	mux.Handle("GET "+watchPath, s.authenticated(events))
	mux.Handle("GET /metrics", s.authenticated(s.scraped(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method, ok := strings.CutPrefix(r.URL.Path, path)
		switch {
		case isStream(r.URL.Path):
			streams.ServeHTTP(w, r)
		case ok && !strings.Contains(method, "/"):
			calls.ServeHTTP(w, r)
		case s.page != nil && s.page.Serves(r.URL.Path):
			if s.page.ReadsBody(r) {
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyLimit)) // whoever reads it, the page or net/http
			} else {
				closeUnread(w, r)
			}
			s.page.ServeHTTP(w, r)
		default:
			closeUnread(w, r)
			mux.ServeHTTP(w, r)
		}
	})
	return s, nil
}

// addPage makes the page, if there is to be one.
func (s *Server) addPage(events http.Handler) (err error) {
	switch {
	case s.o.Page == "" && s.o.UserHeader != "":
		return fmt.Errorf("%w header of users: there is no page", refdb.ErrInvalid)
	case s.o.Page == "":
		return nil
	}
	s.page, err = page.New(page.Options{
		DB: s.o.DB, API: s.api, Cache: s.cache, Prefix: s.o.Page, UserHeader: s.o.UserHeader,
		Calls:   func(next http.Handler) http.Handler { return s.bounded(s.limiter, next) },
		Events:  events,
		Refused: func(err error) { s.counts.rejected.WithLabelValues(reasonOf(err)).Inc() },
	})
	return err
}

// reasonOf is the reason for which a request with a credential is rejected.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, access.ErrStale):
		return rejectedStale
	case errors.Is(err, issuers.ErrNoKey):
		return rejectedNoKey
	case errors.Is(err, access.ErrDenied):
		return rejectedNoRule
	}
	return rejectedUnauthenticated
}

// Handler returns the handler of all requests.
func (s *Server) Handler() http.Handler { return s.handler }

// RunCache keeps the rules current until ctx ends.
func (s *Server) RunCache(ctx context.Context) { s.cache.Run(ctx) }

// Drain ends waits and streams, and reports that the server is not ready any more.
func (s *Server) Drain() {
	s.draining.Store(true)
	s.api.Drain()
}

func (s *Server) ready() error {
	if s.draining.Load() {
		return errors.New("the server stops")
	}
	if err := s.cache.Ready(); err != nil || s.o.Issuers == nil {
		return err
	}
	return s.o.Issuers.Ready()
}

// authenticated passes on requests with a valid credential of a subject that has a rule: whoever has an
// account at an issuer has a valid JWT. Other requests cost no request to the database and don't count
// towards the limits of calls, and their bodies are not read.
func (s *Server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := s.identify(r)
		if err == nil {
			err = caller.HasRules()
		}
		if err == nil {
			next.ServeHTTP(w, r.WithContext(api.WithCaller(r.Context(), caller)))
			return
		}
		reason := reasonOf(err)
		switch reason {
		case rejectedStale, rejectedNoKey:
			s.reject(w, r, reason, unavailable(err))
		case rejectedNoRule:
			s.reject(w, r, reason, connect.NewError(connect.CodePermissionDenied, err))
		default:
			w.Header().Set("WWW-Authenticate", "Bearer")
			s.reject(w, r, reason, connect.NewError(connect.CodeUnauthenticated, err))
		}
	})
}

func unavailable(err error) *connect.Error {
	return connect.NewError(connect.CodeUnavailable, fmt.Errorf("%w: nothing was done; try again", err))
}

// bounded passes on requests of authenticated callers, within the limits and with their bodies read.
func (s *Server) bounded(l *limiter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, _ := api.Caller(r.Context())
		if r.ContentLength > l.limits.Body {
			s.reject(w, r, rejectedTooLarge, l.tooLarge())
			return
		}
		p, reason := l.enter(caller.Subject)
		if p == nil {
			s.reject(w, r, reason, l.exceeded(reason))
			return
		}
		defer p.leave()
		body, reason, err := readBody(w, r, p)
		switch {
		case reason != "":
			s.reject(w, r, reason, l.exceeded(reason))
			return
		case errors.Is(err, errTooLarge):
			s.reject(w, r, rejectedTooLarge, l.tooLarge())
			return
		case err != nil:
			s.reject(w, r, rejectedBroken, connect.NewError(connect.CodeDeadlineExceeded, errors.New("the request did not arrive in time: nothing was done")))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r.WithContext(api.WithKeep(withPlace(r.Context(), p), p.keep)))
	})
}

// scraped passes on requests for the metrics within their limits.
func (s *Server) scraped(next http.Handler) http.Handler {
	l := newLimiter(Limits{Calls: scrapes, CallsPerSubject: scrapesPerSubject}, ofScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, _ := api.Caller(r.Context())
		p, reason := l.enter(caller.Subject)
		if p == nil {
			s.reject(w, r, reason, l.exceeded(reason))
			return
		}
		defer p.leave()
		next.ServeHTTP(w, r)
	})
}

var errTooLarge = errors.New("the request is too large")

// firstRead is the size of the buffer with which reading a body begins.
const firstRead = 4 << 10

// readBody reads a body within bodyLimit. A call may last longer, and must not end when the limit
// passes, so the limit is lifted again. The call is charged for what has arrived, and not for what its
// header announces: gRPC announces nothing. A reason says which limit the body would exceed.
func readBody(w http.ResponseWriter, r *http.Request, p *place) (body []byte, reason string, err error) {
	c := http.NewResponseController(w)
	if err := c.SetReadDeadline(time.Now().Add(bodyLimit)); err != nil {
		return nil, "", err
	}
	most := int(p.of.limits.Body)
	for size := min(firstRead, most); ; size = min(2*size, most) {
		if reason := p.charge(int64(size)); reason != "" {
			return nil, reason, nil
		}
		body = append(make([]byte, 0, size+1), body...) // one byte more shows that the body is larger
		for len(body) <= size {
			n, err := r.Body.Read(body[len(body) : size+1])
			body = body[:len(body)+n]
			switch {
			case len(body) > most:
				return nil, "", errTooLarge
			case errors.Is(err, io.EOF):
				body = bytes.Clone(body)
				p.charge(int64(len(body))) // less than before
				return body, "", c.SetReadDeadline(time.Time{})
			case err != nil:
				return nil, "", err
			}
		}
	}
}

func (l *limiter) tooLarge() *connect.Error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("the request is too large: at most %d bytes are allowed", l.limits.Body))
}

// closeUnread makes the server close a connection whose request has a body that is not read. Otherwise
// net/http would wait for the body, without a time limit, to keep the connection. A connection of HTTP/2
// stays: it has other calls, and the body's stream ends with the response.
func closeUnread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 || r.ProtoMajor != 1 {
		return
	}
	w.Header().Set("Connection", "close")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // all connections of net/http have one
}

// reject answers a request in the protocol of its caller, without reading its body.
func (s *Server) reject(w http.ResponseWriter, r *http.Request, reason string, err *connect.Error) {
	s.counts.rejected.WithLabelValues(reason).Inc()
	closeUnread(w, r)
	s.fail(w, r, err)
}

// fail answers a request with a failure, in the protocol of its caller.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err *connect.Error) {
	if s.errors.IsSupported(r) {
		_ = s.errors.Write(w, r, err) // an error of writing is the caller's connection's
		return
	}
	status := http.StatusServiceUnavailable
	switch err.Code() {
	case connect.CodeUnauthenticated:
		status = http.StatusUnauthorized
	case connect.CodePermissionDenied:
		status = http.StatusForbidden
	case connect.CodeResourceExhausted:
		status = http.StatusTooManyRequests
	case connect.CodeInvalidArgument, connect.CodeFailedPrecondition, connect.CodeOutOfRange:
		status = http.StatusBadRequest
	case connect.CodeDeadlineExceeded:
		status = http.StatusRequestTimeout
	case connect.CodeInternal:
		status = http.StatusInternalServerError
	}
	http.Error(w, err.Message(), status)
}
