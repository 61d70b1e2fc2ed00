package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	refdbv1 "github.com/globalrefdb/globalrefdb/proto/refdb/v1"
	"github.com/globalrefdb/globalrefdb/proto/refdb/v1/refdbv1connect"
	"github.com/globalrefdb/globalrefdb/service/access"
	"github.com/globalrefdb/globalrefdb/service/server"
)

// A certified client has a certificate, and counts its connections.
type certified struct {
	refdbv1connect.RefdbServiceClient
	connections, resumed atomic.Int64
}

// certify returns a client with a certificate, whose sessions may go on from those in a cache.
func certify(t *testing.T, address string, roots *x509.CertPool, cert tls.Certificate, sessions tls.ClientSessionCache) *certified {
	t.Helper()
	c := &certified{}
	config := &tls.Config{RootCAs: roots, ServerName: "localhost", ClientSessionCache: sessions, NextProtos: []string{"h2"}}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	transport := &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(ctx context.Context, network, to string) (net.Conn, error) {
		conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, network, to)
		if err != nil {
			return nil, err
		}
		c.connections.Add(1)
		if conn.(*tls.Conn).ConnectionState().DidResume {
			c.resumed.Add(1)
		}
		return conn, nil
	}}
	t.Cleanup(transport.CloseIdleConnections)
	c.RefdbServiceClient = refdbv1connect.NewRefdbServiceClient(patient(transport), "https://"+address, connect.WithGRPC())
	return c
}

// get returns the code of a call of Get; 0 for an answer.
func (c *certified) get(t *testing.T) connect.Code {
	t.Helper()
	_, err := c.Get(t.Context(), connect.NewRequest(&refdbv1.GetRequest{Project: "p", Refs: []string{mainRef}}))
	if err == nil {
		return 0
	}
	return connect.CodeOf(err)
}

func TestCertificatesOfARemovedAuthorityEndOnOpenConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a file that is read again after 10 seconds; make test-all runs it")
	}
	t.Parallel()
	r := inMemory(t)
	r.allow(t, deployer, access.Lock, "p", access.All)
	dir := t.TempDir()
	cert, key, file := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "clients.pem")
	roots := x509.NewCertPool()
	roots.AddCert(server.WritePair(t, cert, key))
	authority := server.NewTestAuthority(t, nil)
	authority.Write(t, file)
	running := r.run(t, server.Listen{Address: "127.0.0.1:0", CertificateFile: cert, PrivateKey: key, ClientCA: file}, server.DefaultLimits, server.Stop{Limit: patience})
	signed, sessions := authority.Issue(t, deployer, nil), tls.NewLRUClientSessionCache(10)
	client := func(cert tls.Certificate, sessions tls.ClientSessionCache) *certified {
		return certify(t, running.address.String(), roots, cert, sessions)
	}
	open := client(signed, sessions)
	eventually(t, "the rules are read", func() bool { return open.get(t) == 0 })
	if again := client(signed, sessions); again.get(t) != 0 || again.resumed.Load() != 1 {
		t.Error("a session that goes on has no certificate, or no session goes on")
	}

	// A certificate ends on an open connection; on a slow machine it may end before that is open.
	for life := 3 * time.Second; ; life *= 2 {
		short := client(authority.Issue(t, deployer, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(life) }), nil)
		if short.get(t) != 0 && life < patience {
			continue
		}
		eventually(t, "the certificate has expired", func() bool { return short.get(t) == connect.CodeUnauthenticated })
		if n := short.connections.Load(); n != 1 {
			t.Errorf("%d connections", n)
		}
		break
	}

	if a, err := open.Acquire(t.Context(), connect.NewRequest(locking(mainRef))); err != nil || a.Msg.GetAcquired() == nil {
		t.Fatal(a, err)
	}
	waited := make(chan error, 1)
	go func() {
		for {
			a := locking(mainRef)
			a.Wait = durationpb.New(30 * time.Second)
			if _, err := open.Acquire(t.Context(), connect.NewRequest(a)); err != nil {
				waited <- err
				return
			}
		}
	}()
	if err := os.WriteFile(file+".new", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-waited:
		if connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("a call that waits: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("a call that waits goes on")
	}
	if code := open.get(t); code != connect.CodeUnauthenticated || open.connections.Load() != 1 {
		t.Errorf("an open connection: %v, %d connections", code, open.connections.Load())
	}
	if again := client(signed, sessions); again.get(t) != connect.CodeUnauthenticated {
		t.Error("a session that goes on has the rights of its certificate")
	}
}
