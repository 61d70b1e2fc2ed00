package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

// A run is a server that listens.
type run struct {
	address net.Addr
	log     *bytes.Buffer // once it has ended
	stop    func() error
}

func (r *rig) run(t *testing.T, at server.Listen, limits server.Limits, stop server.Stop) *run {
	t.Helper()
	log := &bytes.Buffer{}
	s, err := server.New(server.Options{DB: r.process(t, r.open(), "server"), Rules: r.process(t, r.open(), "server"), Logger: slog.New(slog.NewTextHandler(log, nil)), Limits: limits, Issuers: r.issuers, Page: r.page, UserHeader: r.userHeader})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	addresses, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() { ended <- s.Run(ctx, at, stop, func(a net.Addr) { addresses <- a }) }()
	stopped := false
	running := &run{log: log, stop: func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}}
	t.Cleanup(func() { running.stop() })
	select {
	case running.address = <-addresses:
	case err := <-ended:
		t.Fatal(err)
	}
	return running
}

func TestTokensDoNotCrossANetworkInPlainText(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:9480": true, "localhost:9480": true, "/run/refdb/socket": true,
		":9480": false, "0.0.0.0:9480": false, "192.0.2.1:9480": false, "refdb.example.com:9480": false, "localhost.example.com:1": false, "x": false, "": false,
	} {
		if err := (server.Listen{Address: address}).Check(); (err == nil) != ok || err != nil && !errors.Is(err, refdb.ErrInvalid) {
			t.Errorf("%q: %v", address, err)
		}
		if address != "x" && address != "" {
			if err := (server.Listen{Address: address, CertificateFile: "a", PrivateKey: "b"}).Check(); err != nil {
				t.Errorf("%q with a certificate: %v", address, err)
			}
		}
	}
	if err := (server.Listen{Address: "localhost:1", CertificateFile: "a"}).Check(); !errors.Is(err, refdb.ErrInvalid) {
		t.Errorf("a certificate without a key: %v", err)
	}
	if err := (server.Listen{Address: "localhost:1", ClientCA: "a"}).Check(); !errors.Is(err, refdb.ErrInvalid) {
		t.Errorf("authorities of clients without a certificate: %v", err)
	}
}

func TestGRPCAndJSONShareAPortWithTLS(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Read, "p", access.All)
	r.put(t, "p", mainRef, one)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	authority := server.WritePair(t, cert, key)
	running := r.run(t, server.Listen{Address: "127.0.0.1:0", CertificateFile: cert, PrivateKey: key}, server.DefaultLimits, server.Stop{Limit: time.Minute})
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost"}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := patient(roundTripper(func(q *http.Request) (*http.Response, error) {
		q = q.Clone(q.Context())
		q.Header.Set("Authorization", "Bearer "+r.tokens["ci"])
		return transport.RoundTrip(q)
	}))
	url := "https://" + running.address.String()
	for name, option := range map[string]connect.ClientOption{"JSON": connect.WithProtoJSON(), "gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb()} {
		c := refdbv1connect.NewRefdbServiceClient(client, url, option)
		eventually(t, name+" is answered", func() bool {
			response, err := c.Get(t.Context(), connect.NewRequest(&refdbv1.GetRequest{Project: "p", Refs: []string{mainRef}}))
			if connect.CodeOf(err) == connect.CodeUnavailable {
				return false // the rules were not read yet
			}
			return err == nil && response.Msg.Refs[0].Value == one
		})
		_, err := c.Get(t.Context(), connect.NewRequest(&refdbv1.GetRequest{Project: "q", Refs: []string{mainRef}}))
		if connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	scraped, err := client.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(scraped.Body)
	scraped.Body.Close()
	if want := fmt.Sprintf("\nrefdb_server_certificate_expiry_seconds %v\n", float64(authority.NotAfter.Unix())); err != nil || !strings.Contains(string(text), want) {
		t.Errorf("the metrics lack %q: %v, %s", want, err, text)
	}
	if want := `refdb_server_calls_total{method="/refdb.v1.RefdbService/Update",result="internal"} 0`; !strings.Contains(string(text), want) {
		t.Errorf("the metrics lack %s, before the first failure", want)
	}
	stranger := refdbv1connect.NewRefdbServiceClient(patient(transport), url, connect.WithGRPC())
	if _, err := stranger.Get(t.Context(), connect.NewRequest(&refdbv1.GetRequest{Project: "p", Refs: []string{mainRef}})); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("gRPC without a token: %v", err)
	}
	if err := running.stop(); err != nil {
		t.Error(err)
	}
	for _, secret := range []string{r.tokens["ci"], mainRef, `"p"`} {
		if strings.Contains(running.log.String(), secret) {
			t.Errorf("the log has %s", secret)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAServerThatStopsEndsWaitsAndFinishesCalls(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Lock, "p", access.All)
	socket := filepath.Join(t.TempDir(), "socket")
	running := r.run(t, server.Listen{Address: socket}, server.DefaultLimits, server.Stop{Limit: patience})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	c := refdbv1connect.NewRefdbServiceClient(patient(roundTripper(func(q *http.Request) (*http.Response, error) {
		q = q.Clone(q.Context())
		q.Header.Set("Authorization", "Bearer "+r.tokens["ci"])
		return transport.RoundTrip(q)
	})), "http://refdb", connect.WithProtoJSON())
	eventually(t, "the lock is taken", func() bool {
		response, err := c.Acquire(t.Context(), connect.NewRequest(locking(mainRef)))
		return err == nil && response.Msg.GetAcquired() != nil
	})
	type answer struct {
		response *connect.Response[refdbv1.AcquireResponse]
		err      error
	}
	waited := make(chan answer, 1)
	go func() {
		a := locking(mainRef, nextRef)
		a.Wait = durationpb.New(30 * time.Second)
		response, err := c.Acquire(context.WithoutCancel(t.Context()), connect.NewRequest(a))
		waited <- answer{response, err}
	}()
	// The call has begun when the database has seen a request of it: a second one waits for the first.
	eventually(t, "the call waits", func() bool {
		_, text := get(t, transport, r.tokens["ci"])
		return strings.Contains(text, "refdb_server_calls 1\n")
	})
	if err := running.stop(); err != nil {
		t.Error(err)
	}
	if got := <-waited; got.err != nil || got.response.Msg.GetLocked() == nil {
		t.Errorf("%v, %v", got.response, got.err)
	}
	if all := locks(t, r); len(all) != 1 || all[0].Stale() {
		t.Errorf("the lock that a client has: %+v", all)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket: %v", err)
	}
}

// get returns the metrics.
func get(t *testing.T, transport http.RoundTripper, token string) (int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://refdb/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+token)
	response, err := transport.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, text.String()
}

// balanced reports whether a load balancer would send requests.
func balanced(url string) bool {
	response, err := patient(&http.Transport{DisableKeepAlives: true}).Get(url + "/readyz")
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func TestAServerThatStopsFailsItsReadinessFirst(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Read, "p", access.All)
	running := r.run(t, server.Listen{Address: "127.0.0.1:0"}, server.DefaultLimits, server.Stop{Delay: 2 * time.Second, Limit: patience})
	url := "http://" + running.address.String()
	eventually(t, "it is ready", func() bool { return balanced(url) })
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- running.stop() }()
	eventually(t, "it is not ready", func() bool { return !balanced(url) })
	c := refdbv1connect.NewRefdbServiceClient(patient(bearing(r.tokens["ci"])), url, connect.WithProtoJSON())
	if _, err := c.Get(t.Context(), connect.NewRequest(&refdbv1.GetRequest{Project: "p", Refs: []string{mainRef}})); err != nil && time.Since(began) < 2*time.Second {
		t.Errorf("it does not serve any more: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := <-ended; err != nil || time.Since(began) < 2*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

func TestConnectionsBeyondTheLimitWait(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	limits := server.DefaultLimits
	limits.Connections = 2
	running := r.run(t, server.Listen{Address: "127.0.0.1:0"}, limits, server.Stop{Limit: patience})
	url := "http://" + running.address.String()
	eventually(t, "it is ready", func() bool { return balanced(url) })
	idle := make([]net.Conn, 2)
	for i := range idle {
		c, err := net.Dial("tcp", running.address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle[i] = c
		// Once it is answered, it was accepted.
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil || statusOf(t, c) != http.StatusOK {
			t.Fatal(err)
		}
	}
	third, err := net.Dial("tcp", running.address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	if _, err := io.WriteString(third, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	third.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := third.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a third connection is answered: %v", err)
	}
	idle[0].Close()
	if status := statusOf(t, third); status != http.StatusOK {
		t.Errorf("%d", status)
	}
}

// On a connection of HTTP/2 one call is refused, and the others go on.
func TestARefusalLeavesAConnectionOfHTTP2(t *testing.T) {
	t.Parallel()
	r := inMemory(t)
	r.allow(t, "ci", access.Read, "p", access.All)
	s := r.serve(t, server.DefaultLimits, nil)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	dialed := 0
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed++
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	for i := range 6 {
		token := r.tokens["ci"]
		if i%2 == 0 {
			token = "refdb_" + strings.Repeat("A", 43)
		}
		c := refdbv1connect.NewRefdbServiceClient(patient(roundTripper(func(q *http.Request) (*http.Response, error) {
			q = q.Clone(q.Context())
			q.ContentLength = -1
			q.Header.Set("Authorization", "Bearer "+token)
			return transport.RoundTrip(q)
		})), s.url, connect.WithGRPC())
		_, err := c.Get(t.Context(), connect.NewRequest(&refdbv1.GetRequest{Project: "p", Refs: []string{mainRef}}))
		if want := i%2 == 0; (connect.CodeOf(err) == connect.CodeUnauthenticated) != want {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if dialed != 1 {
		t.Errorf("there were %d connections", dialed)
	}
}
