package server

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestACertificateThatCanNotBeUsedLeavesTheEarlierOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if _, err := newCertificate(cert, key); err == nil {
		t.Error("there are no files")
	}
	writeTestPair(t, cert, key)
	c, err := newCertificate(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	first := c.current.Load()
	if changed, err := c.reload(); changed || err != nil || c.current.Load() != first {
		t.Errorf("unchanged files: %v, %v", changed, err)
	}
	other := filepath.Join(dir, "other.pem")
	writeTestPair(t, cert, other) // so far, only the certificate is replaced
	if changed, err := c.reload(); !changed || err == nil || c.current.Load() != first {
		t.Errorf("half of a pair: %v, %v", changed, err)
	}
	if err := os.Rename(other, key); err != nil {
		t.Fatal(err)
	}
	if changed, err := c.reload(); !changed || err != nil || c.current.Load() == first {
		t.Errorf("another pair: %v, %v", changed, err)
	}
	second := c.current.Load()
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if _, err := c.reload(); err == nil || c.current.Load() != second {
		t.Errorf("without a key: %v", err)
	}
}

// A stranger's chain costs memory for as long as its connection, and the time to verify it.
func TestAConnectionWithALargeChainIsNotAccepted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, file := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")
	root := writeTestPair(t, cert, key)
	stranger := NewTestAuthority(t, nil)
	NewTestAuthority(t, nil).Write(t, file)
	a, err := newAuthorities(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newCertificate(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	chain := func(n int) tls.Certificate {
		all := stranger.Issue(t, deployer, nil)
		for len(all.Certificate) < n {
			all.Certificate = append(all.Certificate, stranger.cert.Raw)
		}
		return all
	}
	sized := func(bytes int) tls.Certificate {
		return stranger.Issue(t, deployer, func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Value: make([]byte, bytes)}}
		})
	}
	named := func(n int) tls.Certificate {
		return stranger.Issue(t, deployer, func(c *x509.Certificate) {
			for range n {
				c.URIs = append(c.URIs, c.URIs[0])
			}
		})
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	for what, row := range map[string]struct {
		cert     tls.Certificate
		accepted bool
	}{
		"none":                  {tls.Certificate{}, true},
		"few certificates":      {chain(maxChain), true},
		"one more":              {chain(maxChain + 1), false},
		"a large one":           {sized(maxChainBytes - 2048), true},
		"a larger one":          {sized(maxChainBytes), false},
		"as many as Go accepts": {sized(200 << 10), false},
		"many names":            {named(maxChainParts / 2), true},
		"more names":            {named(maxChainParts), false},
	} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			client := &tls.Config{RootCAs: roots, ServerName: "localhost", MaxVersion: version}
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &row.cert, nil }
			ours, theirs := net.Pipe()
			go func() {
				conn := tls.Client(theirs, client)
				_ = conn.Handshake() // the server decides
				_, _ = io.Copy(io.Discard, conn)
				theirs.Close()
			}()
			if err := tls.Server(ours, c.config(a)).HandshakeContext(t.Context()); (err == nil) != row.accepted {
				t.Errorf("%s with TLS %x: %v", what, version, err)
			}
			ours.Close()
		}
	}
}
