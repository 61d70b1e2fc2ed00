package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// recheck is how often the files of a certificate are read again.
const recheck = 10 * time.Second

// A certificate is read again when its files change, without a restart.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	current           atomic.Pointer[tls.Certificate]
	cert, key         []byte // as they were read last, valid or not
}

func newCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
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

// keep reads the files again until ctx ends. While the files can't be used, for example because only one
// of them has been replaced so far, the earlier certificate stays in use.
func (c *certificate) keep(ctx context.Context) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(recheck):
		}
		changed, err := c.reload()
		switch {
		case err != nil && (changed || !failing):
			c.log.WarnContext(ctx, "the files of the certificate can't be used: the earlier certificate serves on", "error", err)
		case err == nil && changed:
			c.log.InfoContext(ctx, "the certificate was read again")
		}
		failing = err != nil
	}
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}
