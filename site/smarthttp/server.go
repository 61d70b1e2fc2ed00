// Package smarthttp serves a site's guarded repositories over Git's smart HTTP protocol, in front
// of git http-backend. A read returns everything that was acknowledged at any site before the read
// began, unless [Options].StaleReads allows older responses while the database is unavailable.
// Lists of refs come from a cache; one request to the database shows that a cached list is current.
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
	// waitLimit is how long a reader waits for changes of other sites to arrive in the repository.
	waitLimit = time.Second
	// compareLimit bounds a comparison of the repository with the database.
	compareLimit = 30 * time.Second
	// queueLimit is how long a request waits while the server serves as many requests as it can.
	queueLimit = 30 * time.Second
	// retryAfter is the Retry-After header, in seconds, of requests that are refused for now.
	retryAfter = "1"
	// maxReaders is the maximum number of concurrent git http-backend processes for readers. Of
	// these, at most maxLarge have a request that is not wholly in memory, and may wait for their
	// client to send the rest; and at most maxMakers make answers for the cache. Such an answer is
	// held in memory, and has at most 1/maxShare of the cache's size.
	maxReaders = 256
	maxLarge   = 16
	maxMakers  = 4
	maxShare   = 8
	// maxPushes is the maximum number of concurrent git http-backend processes for pushes.
	maxPushes = 64
)

// Options configure a [Server].
type Options struct {
	Config *config.Config
	DB     *refdb.DB
	// Logger receives messages for operators, which contain digests of names only. Default: nothing
	// is logged.
	Logger    *slog.Logger
	DigestKey []byte
	// UserHeader is the header in which the web server in front names the authenticated user. If
	// UserHeader is "", all clients are anonymous, and git refuses their pushes by default.
	UserHeader string
	// CacheBytes is the maximum size of the cache. Default: 256 MiB.
	CacheBytes int64
	// StaleReads bounds the age of stale responses: while the database is unavailable, reads are
	// served from a local copy that was complete less than this long ago, with a [StaleHeader].
	// Default: they are refused.
	StaleReads time.Duration
}

// A Server is an [http.Handler] that serves the guarded repositories of a site.
type Server struct {
	o       Options
	backend backend
	cache   *cache
	counts  counts
	answers callGroup[answerKey, *answer]
	waits   callGroup[waitKey, struct{}]
	readers semaphore
	large   semaphore
	makers  semaphore
	pushes  semaphore
	memory  bodyMemory // of readers' requests

	ids      projects.RepositoryIDs
	staleLog staleLog

	readiness readiness

	mu       sync.Mutex
	projects map[string]knownProject

	limits limits
}

// limits are the time limits of a request. Tests set their own.
type limits struct{ wait, compare, daemon, settle, queue, chunk time.Duration }

// An answerKey identifies an answer that is being made from a state.
type answerKey struct {
	key  cacheKey
	from state
}

// A waitKey identifies a comparison of a repository with the database. Its fingerprint differs if
// refs of the repository may have moved past the hooks meanwhile.
type waitKey struct {
	key         refdb.StateKey
	fingerprint string
}

// New returns a server. It fails if git http-backend is not installed.
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
		projects: map[string]knownProject{},
		limits:   limits{waitLimit, compareLimit, daemonLimit, settlePatience, queueLimit, chunkLimit},
	}, nil
}

// Wait waits for work that requests have shared and no request waits for any more. Call it after
// the last request.
func (s *Server) Wait() {
	s.answers.wait()
	s.waits.wait()
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	incoming := newBody(w, r, s.limits.chunk)
	answer := &pacedWriter{w, incoming, s.limits.chunk}
	w = answer
	// After this handler has returned, net/http reads the rest of the body and writes the end of
	// the response.
	defer answer.renew()
	defer incoming.linger()
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
	q := request{http: r, service: service, user: user, body: incoming, encoding: r.Header.Get("Content-Encoding"), incoming: incoming}
	defer func() {
		if incoming.broken() {
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

// user returns the name of the authenticated user, or "" if the client is anonymous.
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

// push passes a request of a push on to git.
func (s *Server) push(w http.ResponseWriter, name string, q request) error {
	p, _, err := s.find(q.http.Context(), name)
	if err != nil {
		return err
	}
	release, err := s.pushes.acquire(q.http.Context(), s.limits.queue)
	if err != nil {
		return err
	}
	defer release()
	s.counts.pushes.Inc()
	q.dir = p.repository.Path
	// The server unpacks the request itself: git http-backend would kill git receive-pack, whatever
	// it is doing, if the end of the request could not be unpacked.
	if isGzip(q.encoding) {
		q.body, q.encoding = &gzipBody{from: q.body}, ""
	}
	// A git that moves refs must not be killed.
	return s.pass(context.WithoutCancel(q.http.Context()), q, w)
}

// read answers a read, from the cache if possible. It buffers the request before it starts git, so
// that a client that sends slowly does not occupy a process.
func (s *Server) read(w http.ResponseWriter, project string, q request) error {
	request, err := s.memory.buffer(q.body)
	if err != nil {
		return q.incoming.reason(err)
	}
	defer request.release()
	asked := time.Now()
	p, now, err := s.find(q.http.Context(), project)
	if err != nil {
		return s.readStale(w, project, q, request, err)
	}
	head := request.head
	name := listName(q, request)
	q.dir, q.body = p.repository.Path, request
	key := cacheKey{p.repository.Project, name}
	if name != "" && now.cacheable() {
		if a := s.cache.get(key, now); a != nil && !a.tooLarge {
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
		return s.passRead(q, request.whole, w, s.limits.queue, s.counts.passed)
	}
	a, err := s.answers.do(q.http.Context(), answerKey{key, now}, func(ctx context.Context) (*answer, error) {
		return s.make(ctx, p, key, now, q, head)
	})
	if err != nil {
		return err
	}
	if a.tooLarge {
		return s.passRead(q, request.whole, w, s.limits.queue, s.counts.passed)
	}
	a.write(w)
	return nil
}

// listName returns a name for the list of refs that q requests, or "" if q requests anything else.
// Together with the project, the name is a key of the cache.
func listName(q request, body *buffered) (name string) {
	protocol := q.http.Header.Get("Git-Protocol")
	switch protocol {
	case "", "version=1", "version=2":
	default:
		return "" // clients may send anything, and must not fill the cache with it
	}
	if q.service == advertiseRefs {
		return "advertisement " + protocol
	}
	if protocol != "version=2" || !body.whole || len(body.head) > maxListRequest || q.http.Header.Get("Content-Type") != "application/x-git-upload-pack-request" {
		return ""
	}
	if list, ok := lsRefsName(body.head, q.encoding); ok {
		return "list " + list
	}
	return ""
}

// make has git make an answer, and caches the answer if the state has not changed meanwhile.
func (s *Server) make(ctx context.Context, p knownProject, key cacheKey, from state, q request, head []byte) (*answer, error) {
	if a := s.cache.get(key, from); a != nil {
		return a, nil // another request has made it meanwhile
	}
	release, err := s.makers.acquire(ctx, s.limits.queue)
	if err != nil {
		return nil, err
	}
	defer release()
	releaseReader, err := s.readers.acquire(ctx, s.limits.queue)
	if err != nil {
		return nil, err
	}
	defer releaseReader()
	s.counts.made.Inc()
	q.http = q.http.Clone(ctx) // q's own context may end while other requests wait for the answer
	q.body, q.incoming = bytes.NewReader(head), nil
	a, err := s.backend.answer(ctx, q, s.o.CacheBytes/maxShare)
	if err != nil || a.status != http.StatusOK || a.truncated {
		return a, err
	}
	if after, err := s.state(ctx, p.repository); err == nil && after == from {
		s.cache.put(key, from, a)
	}
	return a, nil
}

// passRead passes a read on to git, and increments count. It waits for capacity for at most limit.
// whole says whether the whole request is in memory, or only its beginning.
func (s *Server) passRead(q request, whole bool, w http.ResponseWriter, limit time.Duration, count prometheus.Counter) error {
	if !whole {
		release, err := s.large.acquire(q.http.Context(), limit)
		if err != nil {
			return err
		}
		defer release()
	}
	release, err := s.readers.acquire(q.http.Context(), limit)
	if err != nil {
		return err
	}
	defer release()
	count.Inc()
	return s.pass(q.http.Context(), q, w)
}

// pass passes a request on to git, and git's answer on to the client. If pass returns an error, the
// answer has not begun. An answer that breaks off ends the connection.
func (s *Server) pass(ctx context.Context, q request, w http.ResponseWriter) error {
	began, err := s.backend.pass(ctx, q, w)
	if began && err != nil {
		s.o.Logger.DebugContext(ctx, "git http-backend failed, or the client did not read the answer", "class", refdb.ClassOf(err).String())
		panic(http.ErrAbortHandler) // the client must not mistake the answer for a complete one
	}
	return err
}

// refuse answers a request with a line of text, which git shows to its user.
func (s *Server) refuse(w http.ResponseWriter, status int, text string) {
	s.counts.refused.Inc()
	http.Error(w, "refdb: "+text, status)
}

// fail answers a request that could not be served, and logs the reason if an operator should know
// it.
func (s *Server) fail(w http.ResponseWriter, q request, project string, err error) {
	ctx := q.http.Context()
	switch {
	case errors.Is(err, errSlow):
		http.Error(w, "refdb: "+err.Error(), http.StatusRequestTimeout)
		return
	case errors.Is(err, errBroken):
		http.Error(w, "refdb: "+err.Error(), http.StatusBadRequest)
		return
	case ctx.Err() != nil && !q.incoming.interrupted(): // interrupting the body ends the context, too
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

// explain returns a line for the client. It does not quote the errors of the database and of git,
// which may contain addresses and paths.
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
