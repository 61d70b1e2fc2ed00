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
	// The issuer signs with a new key at once.
	i.Rotate(t)
	if status, text := s.post(t, jwt(t, i, time.Hour), "Get", getMain); status != http.StatusServiceUnavailable || !strings.Contains(text, "nothing was done") {
		t.Errorf("a JWT whose key the server has not read yet: %d %s", status, text)
	}
}

func TestAWaitEndsWithItsJWT(t *testing.T) {
	t.Parallel()
	r, i := inMemory(t), testissuer.New(t)
	r.trust(i)
	r.allow(t, pipeline, access.Lock, "p", access.All)
	r.allow(t, "ci", access.Lock, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	r.acquire(t, s.plain("ci"), locking(mainRef))
	a := locking(mainRef)
	a.Wait = durationpb.New(30 * time.Second)
	// On a slow machine a JWT expires before the call begins.
	for life := 2 * time.Second; life < a.Wait.AsDuration(); life *= 2 {
		r.tokens[pipeline] = jwt(t, i, life)
		ended := make(chan error, 1)
		go func() {
			_, err := s.plain(pipeline).Acquire(t.Context(), connect.NewRequest(a))
			ended <- err
		}()
		var err error
		has, began := false, false
		eventually(t, "the call waits, or has ended", func() bool {
			select {
			case err = <-ended:
				has = true
			default:
				began = began || s.metric(t, "ci", "refdb_server_calls") == "1"
			}
			return began || has
		})
		if !began {
			continue
		}
		if err = <-ended; connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("a wait that lasts longer than its JWT: %v", err)
		}
		return
	}
	t.Fatal("no call began before its JWT expired")
}

func TestAnIssuerThatDoesNotAnswerDelaysNobody(t *testing.T) {
	t.Parallel()
	r, i := inMemory(t), testissuer.New(t)
	hanging := make(chan struct{})
	t.Cleanup(func() { close(hanging) })
	i.Break(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	r.trust(i)
	r.allow(t, pipeline, access.Lock, "p", "refs/heads/*")
	r.allow(t, "ci", access.Read, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	i.Break(func(http.ResponseWriter, *http.Request) { <-hanging })
	began, asked := time.Now(), i.Requests()
	eventually(t, "the issuer is asked again", func() bool { return i.Requests() > asked })
	for range 100 {
		if status, text := s.post(t, jwt(t, i, time.Hour), "Get", getMain); status != http.StatusServiceUnavailable || !strings.Contains(text, "nothing was done") {
			t.Fatalf("%d %s", status, text)
		}
		if status, text := s.post(t, r.tokens["ci"], "Get", getMain); status != http.StatusOK {
			t.Fatalf("a token: %d %s", status, text)
		}
	}
	if n := i.Requests() - asked; n > 2+int64(time.Since(began)/(10*time.Second)) { // each request takes 10 seconds
		t.Errorf("the issuer was asked %d times in %s", n, time.Since(began))
	}
	if got := s.metric(t, "ci", `refdb_server_rejected_total{reason="key_unknown"}`); got != "100" {
		t.Errorf("%s were rejected", got)
	}
}

// A server that has just started must not refuse JWTs that the others accept.
func TestAServerIsReadyOnceItHasAskedItsIssuers(t *testing.T) {
	t.Parallel()
	r, i := inMemory(t), testissuer.New(t)
	answer := make(chan struct{})
	i.Break(func(w http.ResponseWriter, q *http.Request) {
		<-answer
		i.Publish(w, q)
	})
	r.trust(i)
	began := time.Now()
	running := r.run(t, server.Listen{Address: "127.0.0.1:0"}, server.DefaultLimits, server.Stop{Limit: patience})
	url := "http://" + running.address.String()
	eventually(t, "the server waits for the issuer, for some seconds", func() bool {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		status, text := do(t, q)
		if status == http.StatusOK && time.Since(began) < 10*time.Second {
			t.Fatal("ready before it has asked the issuer")
		}
		return status == http.StatusOK || strings.Contains(text, "issuer gitlab")
	})
	close(answer)
	eventually(t, "it is ready", func() bool { return balanced(url) })
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
			client := patient(roundTripper(func(q *http.Request) (*http.Response, error) {
				if row.token == "" {
					return transport.RoundTrip(q)
				}
				q = q.Clone(q.Context())
				q.Header.Set("Authorization", "Bearer "+row.token)
				return transport.RoundTrip(q)
			}))
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
