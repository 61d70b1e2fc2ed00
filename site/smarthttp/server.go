// Package smarthttp serves a site's guarded repositories over Git's smart HTTP, in front of git http-backend. Whoever reads gets what was
// acknowledged at any site before, unless [Options].StaleReads allows less while the database is unavailable. Lists of refs come from a
// cache that one request to the database proves right.
package smarthttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

const (
	// waitLimit is how long a reader waits for what was pushed elsewhere to come here.
	waitLimit = time.Second
	// askLimit is how long the database and the repository may take to be compared.
	askLimit = 30 * time.Second
	// roomLimit is how long a client waits for others to end.
	roomLimit = 30 * time.Second
	// retryAfter is when a client that was told to come again should do so, in seconds.
	retryAfter = "1"
	// maxReaders is how many processes of git http-backend may run for readers at a time, maxLarge how many of them may wait for the rest of
	// a request that is not held in memory, and maxMakers how many of them may run for the cache. The latter's answers are held in
	// memory: each has at most a maxShare of the cache's size.
	maxReaders = 256
	maxLarge   = 16
	maxMakers  = 4
	maxShare   = 8
	// maxPushes is how many processes of git http-backend may run for pushes at a time.
	maxPushes = 64
)

// Options configure a [Server].
type Options struct {
	Config *config.Config
	DB     *refdb.DB
	// Logger gets what an operator should know, with digests of names only. Default: nothing is logged.
	Logger    *slog.Logger
	DigestKey []byte
	// UserHeader is the header in which the web server in front says who asks. Without it everybody is nobody, who may not push.
	UserHeader string
	// CacheBytes limits the cache. Default: 256 MiB.
	CacheBytes int64
	// StaleReads bounds the age of stale responses: while the database is unavailable, reads are
	// served from a local copy that was complete less than this long ago, with a [StaleHeader].
	// Default: they are refused.
	StaleReads time.Duration
}

// A Server is an [http.Handler].
type Server struct {
	o       Options
	backend backend
	cache   *cache
	counts  counts
	answers flights[flightKey, *answer]
	waits   flights[waitKey, struct{}]
	readers semaphore
	large   semaphore
	makers  semaphore
	pushes  semaphore
	memory  bodyMemory // of readers

	ids      projects.RepositoryIDs
	staleLog staleLog

	readiness readiness

	mu       sync.Mutex
	projects map[string]known

	limits limits
}

// limits are how long a request waits for what. Tests have others.
type limits struct{ wait, ask, daemon, settle, room, chunk time.Duration }

// A flightKey is a slot whose answer is being made from a state.
type flightKey struct {
	slot slot
	from state
}

// A waitKey is what a repository is compared with, and what shows that it may have changed meanwhile.
type waitKey struct {
	key  refdb.StateKey
	past string
}

// New returns a server. It looks for git http-backend.
func New(ctx context.Context, o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 256 << 20
	}
	b, err := findBackend(ctx)
	if err != nil {
		return nil, err
	}
	return &Server{
		o: o, backend: b, cache: newCache(o.CacheBytes), counts: newCounts(),
		readers: make(semaphore, maxReaders), large: make(semaphore, maxLarge), makers: make(semaphore, maxMakers), pushes: make(semaphore, maxPushes),
		memory:   bodyMemory{limit: maxMemory},
		projects: map[string]known{},
		limits:   limits{waitLimit, askLimit, daemonLimit, settlePatience, roomLimit, chunkLimit},
	}, nil
}

// Wait waits until no git runs for anybody. It is called after the last request.
func (s *Server) Wait() {
	s.answers.wait()
	s.waits.wait()
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sent := newBody(w, r, s.limits.chunk)
	answer := &paced{w, sent, s.limits.chunk}
	w = answer
	// After this handler, net/http reads the rest of the body and writes the end of the response.
	defer answer.renew()
	defer sent.linger()
	if !r.ProtoAtLeast(1, 1) {
		s.refuse(w, http.StatusHTTPVersionNotSupported, "HTTP/1.0 does not show when an answer breaks off: the web server in front must use HTTP/1.1 (nginx: proxy_http_version 1.1)")
		return
	}
	name, service, status := route(r)
	if status != 0 {
		s.refuse(w, status, "this is not a request of git's smart HTTP protocol")
		return
	}
	user, err := s.user(r)
	if err != nil {
		s.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	q := request{http: r, service: service, user: user, body: sent, encoding: r.Header.Get("Content-Encoding"), sent: sent}
	defer func() {
		if sent.broken() {
			s.counts.broken.Inc()
		}
	}()
	if service.reads() {
		err = s.read(w, name, q)
	} else {
		err = s.push(w, name, q)
	}
	if err != nil {
		s.fail(w, q, name, err)
	}
}

// user returns who asks.
func (s *Server) user(r *http.Request) (string, error) {
	if s.o.UserHeader == "" {
		return "", nil
	}
	values := r.Header.Values(s.o.UserHeader)
	if len(values) > 1 {
		return "", fmt.Errorf("there is more than one %s header: the web server in front must replace what clients send", s.o.UserHeader)
	}
	return strings.Join(values, ""), nil
}

// Errors of a request.
var (
	errUnknown = errors.New("there is no such repository")
	errBehind  = errors.New("this site is behind")
	errBusy    = errors.New("this site serves as many clients as it can")
	errSlow    = errors.New("the request did not come in time")
	errBroken  = errors.New("the request ended early")
)

// push has git answer a request of somebody who pushes.
func (s *Server) push(w http.ResponseWriter, name string, q request) error {
	p, _, err := s.find(q.http.Context(), name)
	if err != nil {
		return err
	}
	leave, err := s.pushes.enter(q.http.Context(), s.limits.room)
	if err != nil {
		return err
	}
	defer leave()
	s.counts.pushes.Inc()
	q.dir = p.repository.Path
	// git http-backend would end git receive-pack, whatever it does, if it could not unpack the end of the request.
	if packed(q.encoding) {
		q.body, q.encoding = &unpacked{from: q.body}, ""
	}
	return s.pass(context.WithoutCancel(q.http.Context()), q, w) // a git that is moving refs is not killed
}

// read answers a request that reads, from the cache if that can be. A client that is slow to ask takes no process from the others.
func (s *Server) read(w http.ResponseWriter, project string, q request) error {
	request, err := s.memory.buffer(q.body)
	if err != nil {
		return q.sent.reason(err)
	}
	defer request.release()
	asked := time.Now()
	p, now, err := s.find(q.http.Context(), project)
	if err != nil {
		return s.readStale(w, project, q, request, err)
	}
	head := request.head
	name := listed(q, request)
	q.dir, q.body = p.repository.Path, request
	at := slot{p.repository.Project, name}
	if name != "" && now.cacheable() {
		if a := s.cache.get(at, now); a != nil && !a.endless {
			s.counts.hits.Inc()
			s.setComplete(p, asked)
			a.write(w)
			return nil
		} else if a != nil {
			name = ""
		}
	}
	now, err = s.fresh(q.http.Context(), p, now)
	switch {
	case errors.Is(err, errBehind):
		s.setComplete(p, time.Time{})
		return err
	case err != nil:
		return s.readStale(w, project, q, request, err)
	}
	s.setComplete(p, asked)
	if name == "" || !now.cacheable() {
		return s.passRead(q, request.whole, w, s.limits.room, s.counts.passed)
	}
	a, err := s.answers.do(q.http.Context(), flightKey{at, now}, func(ctx context.Context) (*answer, error) {
		return s.make(ctx, p, at, now, q, head)
	})
	if err != nil {
		return err
	}
	if a.endless {
		return s.passRead(q, request.whole, w, s.limits.room, s.counts.passed)
	}
	a.write(w)
	return nil
}

// listed names what q asks for, if that is a list of refs; the name is "" for anything else.
func listed(q request, body *buffered) (name string) {
	protocol := q.http.Header.Get("Git-Protocol")
	switch protocol {
	case "", "version=1", "version=2":
	default:
		return "" // clients may say anything
	}
	if q.service == advertiseRefs {
		return "advertisement " + protocol
	}
	if protocol != "version=2" || !body.whole || len(body.head) > maxLook || q.http.Header.Get("Content-Type") != "application/x-git-upload-pack-request" {
		return ""
	}
	if list, ok := listing(body.head, q.encoding); ok {
		return "list " + list
	}
	return ""
}

// make has git make an answer, and keeps it if nothing has changed meanwhile.
func (s *Server) make(ctx context.Context, p known, at slot, from state, q request, head []byte) (*answer, error) {
	if a := s.cache.get(at, from); a != nil {
		return a, nil // it was made since this request looked
	}
	leave, err := s.makers.enter(ctx, s.limits.room)
	if err != nil {
		return nil, err
	}
	defer leave()
	end, err := s.readers.enter(ctx, s.limits.room)
	if err != nil {
		return nil, err
	}
	defer end()
	s.counts.made.Inc()
	q.http = q.http.Clone(ctx) // the request that asked may be over first
	q.body, q.sent = bytes.NewReader(head), nil
	a, err := s.backend.answer(ctx, q, s.o.CacheBytes/maxShare)
	if err != nil || a.status != http.StatusOK || a.cut {
		return a, err
	}
	if after, err := s.state(ctx, p.repository); err == nil && after == from {
		s.cache.put(at, from, a)
	}
	return a, nil
}

// passRead passes a read on to git, and counts it. The whole request is there, or only its
// beginning. It waits for room, up to a limit.
func (s *Server) passRead(q request, whole bool, w http.ResponseWriter, limit time.Duration, count prometheus.Counter) error {
	if !whole {
		leave, err := s.large.enter(q.http.Context(), limit)
		if err != nil {
			return err
		}
		defer leave()
	}
	leave, err := s.readers.enter(q.http.Context(), limit)
	if err != nil {
		return err
	}
	defer leave()
	count.Inc()
	return s.pass(q.http.Context(), q, w)
}

// pass has git answer. An error says that the answer has not begun. One that is cut off ends the connection.
func (s *Server) pass(ctx context.Context, q request, w http.ResponseWriter) error {
	began, err := s.backend.pass(ctx, q, w)
	if began && err != nil {
		s.o.Logger.DebugContext(ctx, "git http-backend failed, or the client did not read its answer", "class", refdb.ClassOf(err).String())
		panic(http.ErrAbortHandler) // the client must not take it for a whole one
	}
	return err
}

// refuse answers with a line of text, which git shows.
func (s *Server) refuse(w http.ResponseWriter, status int, text string) {
	s.counts.refused.Inc()
	http.Error(w, "refdb: "+text, status)
}

// fail says why a request was not served.
func (s *Server) fail(w http.ResponseWriter, q request, project string, err error) {
	ctx := q.http.Context()
	switch {
	case errors.Is(err, errSlow):
		http.Error(w, "refdb: "+err.Error(), http.StatusRequestTimeout)
		return
	case errors.Is(err, errBroken):
		http.Error(w, "refdb: "+err.Error(), http.StatusBadRequest)
		return
	case ctx.Err() != nil && !q.sent.interrupted(): // interrupting the body ends the context, too
		panic(http.ErrAbortHandler) // the client has gone, and an empty 200 would look like a response
	case errors.Is(err, errUnknown):
		s.refuse(w, http.StatusNotFound, err.Error())
		return
	}
	switch {
	case errors.Is(err, errBehind):
		s.counts.behind.Inc()
	case errors.Is(err, errBusy):
		s.counts.busy.Inc()
	default:
		s.counts.failed.Inc()
	}
	s.o.Logger.WarnContext(ctx, "a request was not served", "project", driver.Digest(s.o.DigestKey, project, ""), "behind", errors.Is(err, errBehind),
		"class", refdb.ClassOf(err).String())
	w.Header().Set("Retry-After", retryAfter)
	w.Header().Del(StaleHeader)
	http.Error(w, "refdb: "+explain(err), http.StatusServiceUnavailable)
}

// explain returns a line for a client. What the database or git says may have addresses and paths in it.
func explain(err error) string {
	switch {
	case errors.Is(err, errBehind):
		return err.Error() + ": try again in a moment; if it stays, the site's operator runs `refdbctl site status`"
	case errors.Is(err, errBusy):
		return err.Error() + ": try again in a moment"
	case errors.Is(err, refdb.ErrLostChanges), errors.Is(err, refdb.ErrNotAdmitted), errors.Is(err, refdb.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return "the database does not answer, or not yet again: this site can't determine whether it has all pushes; try again in a moment"
	}
	return "this site could not read the repository: its operator should see its log"
}
