package server_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/issuers"
	"github.com/globalrefdb/globalrefdb/service/server"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

func TestMain(m *testing.M) { local.Main(m) }

const (
	patience = 2 * time.Minute // only a test that fails reaches it
	mainRef  = "refs/heads/main"
	nextRef  = "refs/heads/next"
	one      = "1111111111111111111111111111111111111111"
	two      = "2222222222222222222222222222222222222222"
	three    = "3333333333333333333333333333333333333333"
)

// A rig is a database with tokens, rules and servers.
type rig struct {
	name   string              // of the database
	open   func() refdb.Driver // as a process of its own
	db     *refdb.DB           // an operator's
	tokens map[string]string   // of subjects
	// issuers verify JWTs at servers that are started later.
	issuers *issuers.Issuers
	// page is the prefix of the page of servers that are started later; "" for none. The page's key is a change.
	page string
	// userHeader is the header in which a proxy names visitors of the page.
	userHeader string
}

// onEach runs a test on each database.
func onEach(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Run(inMemoryName, func(t *testing.T) {
		t.Parallel()
		test(t, inMemory(t))
	})
	for name, kind := range map[string]local.Kind{"SQLite": local.SQLiteKind(), "PostgreSQL": local.PostgresKind()} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "PostgreSQL" {
				t.Skip("left out by -short: the same on PostgreSQL; make test-all runs it")
			}
			t.Parallel()
			test(t, at(t, name, kind, kind.New(t).URL()))
		})
	}
}

// at returns a rig with the database of that name at a URL.
func at(t *testing.T, name string, kind local.Kind, url string) *rig {
	return newRig(t, name, func() refdb.Driver {
		d, err := kind.Driver(context.WithoutCancel(t.Context()), url)
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}

// inMemory returns a rig for tests that do not depend on the database.
func inMemory(t testing.TB) *rig { return newRig(t, inMemoryName, memory.New().Open) }

const inMemoryName = "memory"

func newRig(t testing.TB, name string, open func() refdb.Driver) *rig {
	t.Helper()
	r := &rig{name: name, open: open, tokens: map[string]string{}}
	r.db = r.process(t, open(), "operator")
	return r
}

func (r *rig) process(t testing.TB, d refdb.Driver, site string) *refdb.DB {
	t.Helper()
	db, err := refdb.New(d, refdb.Options{Site: site})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// allow gives a subject, with a token, a right on all refs of a project.
func (r *rig) allow(t testing.TB, subject string, right access.Right, projects, refs access.Pattern) {
	t.Helper()
	if r.tokens[subject] == "" && access.CheckTokenSubject(subject) == nil {
		text, _, err := access.CreateToken(t.Context(), r.db, subject, time.Hour, "")
		if err != nil {
			t.Fatal(err)
		}
		r.tokens[subject] = text
	}
	if _, _, err := access.AddRule(t.Context(), r.db, access.Rule{Subject: subject, Projects: projects, Refs: refs, Right: right}); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) put(t testing.TB, project, ref string, v refdb.Value) {
	t.Helper()
	if _, err := r.db.Put(t.Context(), project, ref, v); err != nil {
		t.Fatal(err)
	}
}

// A serving is a server, and how it is reached.
type serving struct {
	*server.Server
	rig *rig
	url string
}

// serve starts a server that has read the rules, on a driver of its own unless one is given.
func (r *rig) serve(t testing.TB, limits server.Limits, d refdb.Driver) *serving {
	t.Helper()
	if d == nil {
		d = r.open()
	}
	s := r.start(t, limits, r.process(t, d, "server"), r.process(t, r.open(), "server"))
	eventually(t, "the server is ready", func() bool {
		status, _ := s.readiness(t)
		return status == http.StatusOK
	})
	return s
}

// start starts a server, which reads the rules from a database of its own.
func (r *rig) start(t testing.TB, limits server.Limits, db, rules *refdb.DB) *serving {
	t.Helper()
	s, err := server.New(server.Options{DB: db, Rules: rules, Logger: slog.New(slog.DiscardHandler), Limits: limits, Issuers: r.issuers, Page: r.page, UserHeader: r.userHeader})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.RunCache(ctx) })
	if r.issuers != nil {
		running.Go(func() { r.issuers.Run(ctx) })
	}
	h := httptest.NewUnstartedServer(s.Handler())
	h.Config.Protocols = new(http.Protocols)
	h.Config.Protocols.SetHTTP1(true)
	h.Config.Protocols.SetUnencryptedHTTP2(true)
	h.Start()
	t.Cleanup(func() {
		unencrypted.CloseIdleConnections()
		h.Close()
		cancel()
		running.Wait()
	})
	return &serving{s, r, h.URL}
}

// readiness returns what the server says about it.
func (s *serving) readiness(t testing.TB) (status int, text string) {
	t.Helper()
	response, err := patient(http.DefaultTransport).Get(s.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(all)
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// patient returns a client whose requests fail after patience, responses included: a server that does not answer must
// not hang the test. The server learns of no deadline.
func patient(transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: transport, Timeout: patience}
}

// bearing adds a token to requests.
type bearing string

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// zipped returns a client that compresses what it sends.
func (s *serving) zipped(subject string) refdbv1connect.RefdbServiceClient {
	return refdbv1connect.NewRefdbServiceClient(patient(bearing(s.rig.tokens[subject])), s.url, connect.WithProtoJSON(), connect.WithSendGzip())
}

// plain returns a client of a subject, which compresses nothing.
func (s *serving) plain(subject string) refdbv1connect.RefdbServiceClient {
	return refdbv1connect.NewRefdbServiceClient(patient(bearing(s.rig.tokens[subject])), s.url, connect.WithProtoJSON())
}

// unencrypted speaks HTTP/2 without TLS.
var unencrypted = func() *http.Transport {
	t := &http.Transport{Protocols: new(http.Protocols)}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}()

// grpc returns a client of a subject that speaks gRPC. All of them share a connection.
func (s *serving) grpc(subject string) refdbv1connect.RefdbServiceClient {
	return refdbv1connect.NewRefdbServiceClient(patient(roundTripper(func(q *http.Request) (*http.Response, error) {
		q = q.Clone(q.Context())
		q.Header.Set("Authorization", "Bearer "+s.rig.tokens[subject])
		q.ContentLength = -1 // as other implementations of gRPC send it
		return unencrypted.RoundTrip(q)
	})), s.url, connect.WithGRPC())
}

// post sends JSON, and returns the status and the response.
func (s *serving) post(t *testing.T, token, method, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/refdb.v1.RefdbService/"+method, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return do(t, r)
}

func (r *rig) acquire(t *testing.T, c refdbv1connect.RefdbServiceClient, a *refdbv1.AcquireRequest) *refdbv1.AcquireResponse {
	t.Helper()
	response, err := c.Acquire(t.Context(), connect.NewRequest(a))
	if err != nil {
		t.Fatal(err)
	}
	return response.Msg
}
