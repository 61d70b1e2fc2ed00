package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/globalrefdb/globalrefdb/internal/testissuer"
	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/issuers"
	"github.com/globalrefdb/globalrefdb/service/server"
)

const (
	getMain  = `{"project":"p","refs":["refs/heads/main"]}`
	pipeline = "gitlab:group/project"
	deployer = "spiffe://example.org/ci/deployer"
)

// trust makes the servers that are started later accept JWTs of an issuer.
func (r *rig) trust(i *testissuer.Issuer) {
	r.issuers = issuers.New([]issuers.Config{{
		Name: "gitlab", URL: i.URL, Audience: "refdb", Subject: "project_path", Claims: map[string]string{"ref_protected": "true"}, CA: i.CA,
	}}, slog.New(slog.DiscardHandler))
}

// jwt returns a JWT of [pipeline] that expires after a time.
func jwt(t *testing.T, i *testissuer.Issuer, life time.Duration) string {
	t.Helper()
	return i.Sign(t, map[string]any{
		"iss": i.URL, "aud": "refdb", "sub": "x", "project_path": "group/project", "ref_protected": "true", "exp": time.Now().Add(life).Unix(),
	})
}

func TestAJWTIsAsGoodAsATokenOfItsSubject(t *testing.T) {
	t.Parallel()
	r, i := inMemory(t), testissuer.New(t)
	r.trust(i)
	r.allow(t, pipeline, access.Lock, "p", "refs/heads/*")
	r.allow(t, "ci", access.Lock, "p", "refs/heads/*")
	s := r.serve(t, server.DefaultLimits, nil)
	text := jwt(t, i, time.Hour)
	eventually(t, "the keys are read", func() bool {
		status, _ := s.post(t, text, "Get", getMain)
		return status != http.StatusServiceUnavailable
	})
	if status, text := s.post(t, text, "Get", getMain); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	if status, text := s.post(t, text, "Get", `{"project":"q","refs":["HEAD"]}`); status != http.StatusForbidden || !strings.Contains(text, pipeline) {
		t.Errorf("in another project: %d %s", status, text)
	}
	if status, text := s.post(t, jwt(t, i, -time.Second), "Get", getMain); status != http.StatusUnauthorized || !strings.Contains(text, "expired") {
		t.Errorf("expired: %d %s", status, text)
	}
	r.tokens[pipeline] = text
	got := r.acquire(t, s.plain(pipeline), locking(mainRef)).GetAcquired()
	if got == nil {
		t.Fatal("no lock")
	}
	if held := r.acquire(t, s.plain("ci"), locking(mainRef)).GetLocked(); held == nil || held.Holders[0].Subject != pipeline {
		t.Errorf("%v", held)
	}
	if _, err := s.plain("ci").Extend(t.Context(), connect.NewRequest(&refdbv1.ExtendRequest{Lock: got.Lock})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("another subject: %v", err)
	}
	if e, err := s.plain(pipeline).Extend(t.Context(), connect.NewRequest(&refdbv1.ExtendRequest{Lock: got.Lock})); err != nil || e.Msg.GetExtended() == nil {
		t.Errorf("%v, %v", e, err)
	}
	if got := s.metric(t, pipeline, `refdb_server_issuer_keys_age_seconds{issuer="gitlab"}`); got == "" {
		t.Error("no metric")
	}
	text = jwt(t, i, 2*time.Second)
	r.tokens["short"] = text
	a := locking(mainRef)
	a.Wait = durationpb.New(30 * time.Second)
	if _, err := s.plain("short").Acquire(t.Context(), connect.NewRequest(a)); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a wait that lasts longer than its JWT: %v", err)
	}
}

func TestAnIssuerThatDoesNotAnswerDelaysNobody(t *testing.T) {
	t.Parallel()
	r, i := inMemory(t), testissuer.New(t)
	hanging := make(chan struct{})
	t.Cleanup(func() { close(hanging) })
	i.Break(func(http.ResponseWriter) { <-hanging })
	r.trust(i)
	r.allow(t, pipeline, access.Lock, "p", "refs/heads/*")
	r.allow(t, "ci", access.Read, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	began := time.Now()
	eventually(t, "the issuer is asked", func() bool { return i.Requests() > 0 })
	for range 100 {
		if status, text := s.post(t, jwt(t, i, time.Hour), "Get", getMain); status != http.StatusServiceUnavailable || !strings.Contains(text, "nothing was done") {
			t.Fatalf("%d %s", status, text)
		}
		if status, text := s.post(t, r.tokens["ci"], "Get", getMain); status != http.StatusOK {
			t.Fatalf("a token: %d %s", status, text)
		}
	}
	if n := i.Requests(); n > 1+int64(time.Since(began)/(30*time.Second)) {
		t.Errorf("the issuer was asked %d times in %s", n, time.Since(began))
	}
	if got := s.metric(t, "ci", `refdb_server_rejected_total{reason="keys_unknown"}`); got != "100" {
		t.Errorf("%s were rejected", got)
	}
}

func TestWithoutIssuersAJWTIsNoToken(t *testing.T) {
	t.Parallel()
	r, i := inMemory(t), testissuer.New(t)
	r.allow(t, pipeline, access.Lock, "p", "refs/heads/*")
	s := r.serve(t, server.DefaultLimits, nil)
	if status, text := s.post(t, jwt(t, i, time.Hour), "Get", getMain); status != http.StatusUnauthorized {
		t.Errorf("%d %s", status, text)
	}
}

func TestACertificateIdentifiesAClientThatSendsNoToken(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.put(t, "p", mainRef, one)
	r.put(t, "q", mainRef, two)
	r.allow(t, deployer, access.Read, "p", access.All)
	r.allow(t, "ci", access.Read, "q", access.All)
	dir := t.TempDir()
	cert, key, file := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "clients.pem")
	root := server.WritePair(t, cert, key)
	authority, stranger := server.NewTestAuthority(t, nil), server.NewTestAuthority(t, nil)
	authority.Write(t, file)
	running := r.run(t, server.Listen{Address: "127.0.0.1:0", CertificateFile: cert, PrivateKey: key, ClientCA: file}, server.DefaultLimits, server.Stop{Limit: patience})
	roots := x509.NewCertPool()
	roots.AddCert(root)
	signed := authority.Issue(t, deployer, nil)
	unsigned := stranger.Issue(t, deployer, nil)
	for _, row := range []struct {
		what  string
		cert  *tls.Certificate
		token string
		p, q  connect.Code // 0 for an answer
	}{
		{"a certificate", &signed, "", 0, connect.CodePermissionDenied},
		{"a certificate of a stranger", &unsigned, "", connect.CodeUnauthenticated, connect.CodeUnauthenticated},
		{"nothing", nil, "", connect.CodeUnauthenticated, connect.CodeUnauthenticated},
		{"a token", nil, r.tokens["ci"], connect.CodePermissionDenied, 0},
		{"a token, and the certificate of another subject", &signed, r.tokens["ci"], connect.CodePermissionDenied, 0},
		{"a wrong token, and a certificate", &signed, "refdb_" + strings.Repeat("A", 43), connect.CodeUnauthenticated, connect.CodeUnauthenticated},
		{"a token, and a certificate of a stranger", &unsigned, r.tokens["ci"], connect.CodePermissionDenied, 0},
	} {
		for name, option := range map[string]connect.ClientOption{"JSON": connect.WithProtoJSON(), "gRPC": connect.WithGRPC()} {
			config := &tls.Config{RootCAs: roots, ServerName: "localhost"}
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if row.cert == nil {
					return &tls.Certificate{}, nil
				}
				return row.cert, nil // also if the server does not ask for one of its authority
			}
			transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
			client := &http.Client{Transport: roundTripper(func(q *http.Request) (*http.Response, error) {
				if row.token == "" {
					return transport.RoundTrip(q)
				}
				q = q.Clone(q.Context())
				q.Header.Set("Authorization", "Bearer "+row.token)
				return transport.RoundTrip(q)
			})}
			c := refdbv1connect.NewRefdbServiceClient(client, "https://"+running.address.String(), option)
			get := func(project string) (code connect.Code) {
				eventually(t, "the rules are read", func() bool {
					_, err := c.Get(context.WithoutCancel(t.Context()), connect.NewRequest(&refdbv1.GetRequest{Project: project, Refs: []string{mainRef}}))
					if code = 0; err != nil {
						code = connect.CodeOf(err)
					}
					return code != connect.CodeUnavailable
				})
				return code
			}
			if p, q := get("p"), get("q"); p != row.p || q != row.q {
				t.Errorf("%s, %s: %v and %v", row.what, name, p, q)
			}
			transport.CloseIdleConnections()
		}
	}
}
