package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// A certificate is read again when its files change, without a restart.
type certificate struct {
	certFile, keyFile string
	current           atomic.Pointer[tls.Certificate]
	cert, key         []byte // as they were read last, valid or not
}

func newCertificate(certFile, keyFile string) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile}
	if _, err := c.reload(); err != nil {
		return nil, fmt.Errorf("the certificate %s with the key %s: %w", certFile, keyFile, err)
	}
	return c, nil
}

// reload reads the files, and returns whether they have changed.
func (c *certificate) reload() (bool, error) {
	cert, err := os.ReadFile(c.certFile)
	key, keyErr := os.ReadFile(c.keyFile)
	if err := errors.Join(err, keyErr); err != nil {
		return false, err
	}
	if bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return false, nil
	}
	c.cert, c.key = cert, key
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return true, err
	}
	c.current.Store(&pair)
	return true, nil
}

// config returns the TLS of a server. With clients, it asks for certificates, which are verified for each
// request: by authorities that are removed later, or after its end, a certificate is not valid any more,
// also on connections that are open.
func (c *certificate) config(clients *authorities) *tls.Config {
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
	if clients == nil {
		return config
	}
	config.ClientAuth = tls.RequestClientCert
	config.VerifyConnection = checkSize // also of a session that goes on
	asking := config.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := asking.Clone()
		now.ClientCAs = clients.current.Load().pool // by which a client chooses among its certificates
		return now, nil
	}
	return config
}
