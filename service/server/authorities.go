package server

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/service/access"
)

// maxSigned is how many certificates are known to be signed, so that each is verified once.
const maxSigned = 4096

// authorities sign the certificates of clients. Their file is read again when it changes.
type authorities struct {
	file    string
	content []byte // as it was read last, valid or not
	current atomic.Pointer[signers]
}

// signers are the authorities in one version of the file.
type signers struct {
	pool *x509.CertPool

	mu     sync.Mutex
	signed map[[sha256.Size]byte]period // by the certificate
}

// A period is the time in which all certificates of a chain are valid.
type period struct{ from, until time.Time }

// A refusal says why a certificate is not accepted.
type refusal string

func (r refusal) Error() string { return "the client's certificate is not valid: " + string(r) }

// Unwrap returns access.ErrUnauthenticated.
func (r refusal) Unwrap() error { return access.ErrUnauthenticated }

const (
	errNotSigned refusal = "no authority of this server has signed it for clients, or it has expired"
	errNoURI     refusal = "it must have one URI, SCHEME://NAME/PATH, as subject alternative name"
)

func newAuthorities(file string) (*authorities, error) {
	a := &authorities{file: file}
	if _, err := a.reload(); err != nil {
		return nil, fmt.Errorf("the authorities of clients: %w", err)
	}
	return a, nil
}

// reload reads the file, and returns whether it has changed.
func (a *authorities) reload() (bool, error) {
	content, err := os.ReadFile(a.file)
	if err != nil || bytes.Equal(content, a.content) {
		return false, err
	}
	a.content = content
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return true, fmt.Errorf("%w file %s: it has no certificate in PEM form", refdb.ErrInvalid, a.file)
	}
	a.current.Store(&signers{pool: pool, signed: map[[sha256.Size]byte]period{}})
	return true, nil
}

// identify returns the subject that a client's certificate names, and what tells whether the certificate
// is valid at a time, by the authorities as they are then. The chain starts with the certificate. The
// error wraps access.ErrUnauthenticated.
func (a *authorities) identify(chain []*x509.Certificate) (subject string, valid func(now time.Time) error, err error) {
	if len(chain[0].URIs) != 1 {
		return "", nil, errNoURI
	}
	if subject, err = access.SubjectOfURI(chain[0].URIs[0].String()); err != nil {
		return "", nil, errNoURI
	}
	return subject, func(now time.Time) error { return a.current.Load().verify(chain, now) }, nil
}

func (s *signers) verify(chain []*x509.Certificate, now time.Time) error {
	id := sha256.Sum256(chain[0].Raw)
	s.mu.Lock()
	valid, known := s.signed[id]
	s.mu.Unlock()
	if known && !now.Before(valid.from) && !now.After(valid.until) {
		return nil
	}
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	found, err := chain[0].Verify(x509.VerifyOptions{
		Roots: s.pool, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return errNotSigned
	}
	valid = period{found[0][0].NotBefore, found[0][0].NotAfter}
	for _, c := range found[0] {
		if c.NotBefore.After(valid.from) {
			valid.from = c.NotBefore
		}
		if c.NotAfter.Before(valid.until) {
			valid.until = c.NotAfter
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.signed) >= maxSigned {
		clear(s.signed)
	}
	s.signed[id] = valid
	return nil
}
