package server

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
)

const (
	// maxKnown is how many verdicts about chains are remembered.
	maxKnown = 4096
	// The chain that a client sends has at most so many certificates, and so many bytes and parts in all.
	maxChain, maxChainBytes, maxChainParts = 5, 16 << 10, 250
)

// authorities sign the certificates of clients. Their file is read again when it changes.
type authorities struct {
	file    string
	content []byte // as it was read last, valid or not
	current atomic.Pointer[signers]
}

// signers are the authorities in one version of the file. A chain is verified once until a certificate begins or ends,
// whatever the verdict and however many requests there are: a stranger chooses what its verification costs.
type signers struct {
	all  []*x509.Certificate
	pool *x509.CertPool // has all

	mu    sync.Mutex
	known map[question]func() error
}

// A question is whether a chain is valid at a time, which counts only by how many of its certificates and of the
// signers' have begun, and how many have ended: as time passes the sum grows, and the verdict depends on nothing else.
type question struct {
	chain [sha256.Size]byte
	past  int
}

// past returns how many of the certificates have begun at a time, and ended, in all.
func past(all []*x509.Certificate, now time.Time) (n int) {
	for _, c := range all {
		if !now.Before(c.NotBefore) {
			n++
		}
		if now.After(c.NotAfter) {
			n++
		}
	}
	return n
}

// A refusal says why a certificate is not accepted.
type refusal string

func (r refusal) Error() string { return "the client's certificate is not valid: " + string(r) }

// Unwrap returns access.ErrUnauthenticated.
func (r refusal) Unwrap() error { return access.ErrUnauthenticated }

const (
	errNotSigned refusal = "no authority of this server has signed it for clients, or it has expired"
	errNotClient refusal = "it must have the extended key usage clientAuth, and not be an authority's"
	errNoURI     refusal = "it must have one URI, SCHEME://NAME/PATH, as subject alternative name"
)

func newAuthorities(file string) (*authorities, error) {
	a := &authorities{file: file}
	if _, err := a.reload(); err != nil {
		return nil, fmt.Errorf("the authorities of clients: %w", err)
	}
	return a, nil
}

// reload reads the file, and returns whether it has changed. A file without certificates is valid: then no
// certificate of a client is.
func (a *authorities) reload() (bool, error) {
	content, err := os.ReadFile(a.file)
	if err != nil || a.content != nil && bytes.Equal(content, a.content) {
		return false, err
	}
	a.content = append([]byte{}, content...) // not nil
	all, err := parseCertificates(content)
	if err != nil {
		return true, fmt.Errorf("%w file %s: %w", refdb.ErrInvalid, a.file, err)
	}
	pool := x509.NewCertPool()
	for _, c := range all {
		pool.AddCert(c)
	}
	a.current.Store(&signers{all: all, pool: pool, known: map[question]func() error{}})
	return true, nil
}

// parseCertificates returns the certificates of a file in PEM form. Unlike x509.CertPool.AppendCertsFromPEM, it skips
// nothing but text before a certificate: a file that is half written must not remove an authority.
func parseCertificates(content []byte) (all []*x509.Certificate, err error) {
	for begun := bytes.Count(content, []byte("-----BEGIN")); ; begun-- {
		block, rest := pem.Decode(content)
		switch {
		case block == nil && begun == 0 && len(bytes.TrimSpace(content)) == 0:
			return all, nil
		case block == nil || bytes.Count(rest, []byte("-----BEGIN")) != begun-1:
			return nil, errors.New("it has text that is no certificate in PEM form, or only a part of one")
		case block.Type != "CERTIFICATE":
			return nil, fmt.Errorf("it has a %.50q: only certificates are expected", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
		content = rest
	}
}

// checkSize returns an error if a connection must not be accepted: its chain stays in memory as long as the
// connection, and is verified before the client is known.
func checkSize(c tls.ConnectionState) error {
	size, parts := 0, 0
	for _, cert := range c.PeerCertificates {
		size += len(cert.Raw)
		parts += partsOf(cert)
	}
	if len(c.PeerCertificates) > maxChain || size > maxChainBytes || parts > maxChainParts {
		return fmt.Errorf("the client's chain has %d certificates with %d bytes, and %d names, usages and extensions: "+
			"at most %d with %d and %d are accepted", len(c.PeerCertificates), size, parts, maxChain, maxChainBytes, maxChainParts)
	}
	return nil
}

// partsOf returns how many parts a certificate has that take far more memory than bytes, up to 160 for five.
func partsOf(c *x509.Certificate) int {
	return len(c.URIs) + len(c.DNSNames) + len(c.IPAddresses) + len(c.EmailAddresses) + len(c.UnknownExtKeyUsage) +
		len(c.PolicyIdentifiers) + len(c.Extensions) + len(c.Subject.Names) + len(c.Issuer.Names)
}

// identify returns the subject that a client's certificate names, and what tells whether the certificate
// is valid at a time, by the authorities as they are then. The chain starts with the certificate. The
// error wraps access.ErrUnauthenticated.
func (a *authorities) identify(chain []*x509.Certificate) (subject string, valid func(now time.Time) error, err error) {
	// Verify alone would accept a certificate without any extended key usage, and that of an authority.
	if !slices.Contains(chain[0].ExtKeyUsage, x509.ExtKeyUsageClientAuth) || chain[0].IsCA {
		return "", nil, errNotClient
	}
	if len(chain[0].URIs) != 1 {
		return "", nil, errNoURI
	}
	if subject, err = access.SubjectOfURI(chain[0].URIs[0].String()); err != nil {
		return "", nil, errNoURI
	}
	all := sha256.New()
	for _, c := range chain {
		all.Write(c.Raw)
	}
	id := [sha256.Size]byte(all.Sum(nil))
	return subject, func(now time.Time) error { return a.current.Load().verify(id, chain, now) }, nil
}

// verify returns errNotSigned unless the chain with that digest is valid.
func (s *signers) verify(id [sha256.Size]byte, chain []*x509.Certificate, now time.Time) error {
	q := question{id, past(chain, now) + past(s.all, now)}
	s.mu.Lock()
	answer, ok := s.known[q]
	if !ok {
		if len(s.known) >= maxKnown {
			clear(s.known)
		}
		answer = sync.OnceValue(func() error { return s.check(chain, now) })
		s.known[q] = answer
	}
	s.mu.Unlock()
	return answer()
}

func (s *signers) check(chain []*x509.Certificate, now time.Time) error {
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: s.pool, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return errNotSigned
	}
	return nil
}
