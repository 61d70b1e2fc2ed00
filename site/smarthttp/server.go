// Package smarthttp serves a site's guarded repositories over Git's smart HTTP, in front of git http-backend. Whoever reads gets what was
// acknowledged at any site before. Lists of refs come from a cache that one request to the database proves right.
package smarthttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

const (
	// waitLimit is how long a reader waits for what was pushed elsewhere to come here.
	waitLimit = time.Second
	// askLimit is how long the database and the repository may take to be compared.
	askLimit = 30 * time.Second
	// retryAfter is when a client that was told to come again should do so, in seconds.
	retryAfter = "1"
	// maxReaders is how many processes of git http-backend may run for readers at a time, and maxMakers how many of them for the cache.
	// The latter's answers are held in memory: each has at most a maxShare of the cache's size.
	maxReaders = 256
	maxMakers  = 4
	maxShare   = 8
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
	makers  semaphore

	ids projects.RepositoryIDs

	mu       sync.Mutex
	projects map[string]known

	limits limits
}

// limits are how long a request waits for what. Tests have others.
type limits struct{ wait, ask, daemon, settle time.Duration }

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
		o: o, backend: b, cache: newCache(o.CacheBytes), counts: newCounts(), readers: make(semaphore, maxReaders), makers: make(semaphore, maxMakers),
		projects: map[string]known{},
		limits:   limits{waitLimit, askLimit, daemonLimit, settlePatience},
	}, nil
}

// Wait waits until no git runs for anybody. It is called after the last request.
func (s *Server) Wait() {
	s.answers.wait()
	s.waits.wait()
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	p, now, err := s.find(r.Context(), name)
	if err == nil {
		q := request{dir: p.repository.Path, http: r, service: service, user: user, body: r.Body}
		if service.reads() {
			err = s.read(w, p, now, q)
		} else {
			s.counts.pushes.Inc()
			err = s.pass(context.WithoutCancel(r.Context()), q, w) // a git that is moving refs is not killed
		}
	}
	if err != nil {
		s.fail(w, r, name, err)
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
	errBusy    = errors.New("this site serves as many readers as it can")
)

// read answers a request that reads, from the cache if that can be.
func (s *Server) read(w http.ResponseWriter, p known, now state, q request) error {
	name, head, err := s.listed(&q)
	if err != nil {
		return err
	}
	at := slot{p.repository.Project, name}
	if name != "" && now.cacheable() {
		if a := s.cache.get(at, now); a != nil && !a.endless {
			s.counts.hits.Inc()
			a.write(w)
			return nil
		} else if a != nil {
			name = ""
		}
	}
	if now, err = s.fresh(q.http.Context(), p, now); err != nil {
		return err
	}
	if name == "" || !now.cacheable() {
		return s.passRead(q, w)
	}
	a, err := s.answers.do(q.http.Context(), flightKey{at, now}, func(ctx context.Context) (*answer, error) {
		return s.make(ctx, p, at, now, q, head)
	})
	if err != nil {
		return err
	}
	if a.endless {
		return s.passRead(q, w)
	}
	a.write(w)
	return nil
}

// listed names what q asks for, if that is a list of refs; the name is "" for anything else. The head is the body of such a request. q can still
// be passed on.
func (s *Server) listed(q *request) (name string, head []byte, err error) {
	protocol := q.http.Header.Get("Git-Protocol")
	switch protocol {
	case "", "version=1", "version=2":
	default:
		return "", nil, nil // clients may say anything
	}
	if q.service == advertiseRefs {
		return "advertisement " + protocol, nil, nil
	}
	if protocol != "version=2" || q.http.ContentLength > maxLook || q.http.Header.Get("Content-Type") != "application/x-git-upload-pack-request" {
		return "", nil, nil
	}
	head, whole, err := look(q.body)
	if err != nil {
		return "", nil, fmt.Errorf("reading the request: %w", err)
	}
	q.body = again(head, q.body)
	if list, ok := listing(head, q.http.Header.Get("Content-Encoding")); whole && ok {
		return "list " + list, head, nil
	}
	return "", nil, nil
}

// make has git make an answer, and keeps it if nothing has changed meanwhile.
func (s *Server) make(ctx context.Context, p known, at slot, from state, q request, head []byte) (*answer, error) {
	if a := s.cache.get(at, from); a != nil {
		return a, nil // it was made since this request looked
	}
	leave, err := s.makers.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	end, err := s.readers.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	s.counts.made.Inc()
	q.http = q.http.Clone(ctx) // the request that asked may be over first
	q.body = again(head, nil)
	a, err := s.backend.answer(ctx, q, s.o.CacheBytes/maxShare)
	if err != nil || a.status != http.StatusOK || a.cut {
		return a, err
	}
	if after, err := s.state(ctx, p.repository); err == nil && after == from {
		s.cache.put(at, from, a)
	}
	return a, nil
}

// passRead has git answer a reader.
func (s *Server) passRead(q request, w http.ResponseWriter) error {
	leave, err := s.readers.enter(q.http.Context())
	if err != nil {
		return err
	}
	defer leave()
	s.counts.passed.Inc()
	return s.pass(q.http.Context(), q, w)
}

// pass has git answer. An error says that the answer has not begun. One that is cut off ends the connection.
func (s *Server) pass(ctx context.Context, q request, w http.ResponseWriter) error {
	began, err := s.backend.pass(ctx, q, w)
	if began && err != nil {
		s.o.Logger.DebugContext(ctx, "git http-backend failed, or nobody read its answer", "class", refdb.ClassOf(err).String())
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
func (s *Server) fail(w http.ResponseWriter, r *http.Request, project string, err error) {
	switch {
	case r.Context().Err() != nil:
		return // nobody listens
	case errors.Is(err, errUnknown):
		s.refuse(w, http.StatusNotFound, err.Error())
		return
	}
	if errors.Is(err, errBehind) {
		s.counts.behind.Inc()
	} else {
		s.counts.failed.Inc()
	}
	s.o.Logger.WarnContext(r.Context(), "a request was not served", "project", refdb.Digest(s.o.DigestKey, project, ""), "behind", errors.Is(err, errBehind),
		"class", refdb.ClassOf(err).String())
	w.Header().Set("Retry-After", retryAfter)
	http.Error(w, "refdb: "+explain(err), http.StatusServiceUnavailable)
}

// explain returns a line for a client. What the database or git says may have addresses and paths in it.
func explain(err error) string {
	switch {
	case errors.Is(err, errBehind), errors.Is(err, errBusy):
		return err.Error() + ": try again in a moment"
	case errors.Is(err, refdb.ErrLostChanges), errors.Is(err, refdb.ErrNotAdmitted), errors.Is(err, refdb.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return "the database does not answer, or not yet again: this site can't tell whether it has all that was pushed; try again in a moment"
	}
	return "this site could not read the repository: its operator should see its log"
}
