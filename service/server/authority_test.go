package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/service/access"
)

// A TestAuthority signs certificates of clients.
type TestAuthority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewTestAuthority returns an authority whose certificate is signed by another one, or by itself.
func NewTestAuthority(t *testing.T, by *TestAuthority) *TestAuthority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(t), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: rand.Text()},
	}
	parent := &TestAuthority{template, key}
	if by != nil {
		parent = by
	}
	return &TestAuthority{sign(t, template, parent, key), key}
}

// Issue returns the certificate of a client. The function change, unless nil, changes it before it is signed.
func (a *TestAuthority) Issue(t *testing.T, uri string, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(t), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, URIs: []*url.URL{u},
	}
	if change != nil {
		change(template)
	}
	cert := sign(t, template, a, key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw, a.cert.Raw}, PrivateKey: key, Leaf: cert}
}

// Write writes the authority's certificate.
func (a *TestAuthority) Write(t *testing.T, file string) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// within returns the authority with another certificate, for that time.
func (a *TestAuthority) within(t *testing.T, from, until time.Time) *TestAuthority {
	t.Helper()
	template := *a.cert
	template.SerialNumber, template.NotBefore, template.NotAfter = serial(t), from, until
	return &TestAuthority{sign(t, &template, &TestAuthority{&template, a.key}, a.key), a.key}
}

// trusting returns what a server makes of a file with authorities.
func trusting(t *testing.T, all ...*TestAuthority) *authorities {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	var content []byte
	for _, a := range all {
		content = append(content, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})...)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	trusted, err := newAuthorities(file)
	if err != nil {
		t.Fatal(err)
	}
	return trusted
}

func sign(t *testing.T, template *x509.Certificate, by *TestAuthority, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func serial(t *testing.T) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const deployer = "spiffe://example.org/ci/deployer"

func TestACertificateNamesItsSubjectWhileAnAuthorityHasSignedIt(t *testing.T) {
	t.Parallel()
	first, second := NewTestAuthority(t, nil), NewTestAuthority(t, nil)
	file := filepath.Join(t.TempDir(), "ca.pem")
	first.Write(t, file)
	a, err := newAuthorities(file)
	if err != nil {
		t.Fatal(err)
	}
	cert := first.Issue(t, deployer, nil)
	subject, valid, err := a.identify(chainOf(t, cert))
	if err != nil || subject != deployer {
		t.Fatalf("%q, %v", subject, err)
	}
	now := time.Now()
	check := func(what string, at time.Time, ok bool) {
		t.Helper()
		for range 2 { // the second time, it is known
			if err := valid(at); (err == nil) != ok || err != nil && !errors.Is(err, access.ErrUnauthenticated) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	check("now", now, true)
	check("after its end", now.Add(2*time.Hour), false)
	check("before its beginning", now.Add(-2*time.Hour), false)
	check("now, again", now, true)
	if changed, err := a.reload(); changed || err != nil {
		t.Errorf("an unchanged file: %v, %v", changed, err)
	}
	second.Write(t, file)
	if changed, err := a.reload(); !changed || err != nil {
		t.Errorf("%v, %v", changed, err)
	}
	check("when the authority was removed", now, false)
}

func TestAnAuthorityIsTrustedUntilAWholeFileLacksIt(t *testing.T) {
	t.Parallel()
	first, second := NewTestAuthority(t, nil), NewTestAuthority(t, nil)
	file := filepath.Join(t.TempDir(), "ca.pem")
	first.Write(t, file)
	a, err := newAuthorities(file)
	if err != nil {
		t.Fatal(err)
	}
	_, valid, err := a.identify(chainOf(t, first.Issue(t, deployer, nil)))
	if err != nil {
		t.Fatal(err)
	}
	inPEM := func(a *TestAuthority) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	}
	broken := strings.Replace(inPEM(second), "MII", "!!!", 1)
	for _, row := range []struct {
		what, content string
		read, trusted bool
	}{
		{"another authority", inPEM(second), true, false},
		{"both, with comments before them", "# one\n" + inPEM(second) + "\n# two\n" + inPEM(first) + "\n", true, true},
		{"a file that ends within a certificate", inPEM(second) + inPEM(first)[:200], false, true},
		{"a file that ends within a line", inPEM(second) + "-----BEG", false, true},
		{"text without a certificate", "no certificate", false, true},
		{"a part that is no certificate", inPEM(second) + broken, false, true},
		{"the same before another one", broken + inPEM(second), false, true},
		{"a block with other bytes", inPEM(second) + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", false, true},
		{"a key", inPEM(second) + "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", false, true},
		{"no authority", "", true, false},
		{"the first one again", inPEM(first), true, true},
		{"no authority, but a line", "\n", true, false},
	} {
		if err := os.WriteFile(file, []byte(row.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if changed, err := a.reload(); !changed || (err == nil) != row.read {
			t.Errorf("%s: %v, %v", row.what, changed, err)
		}
		if err := valid(time.Now()); (err == nil) != row.trusted {
			t.Errorf("%s: the client's certificate: %v", row.what, err)
		}
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if a, err := newAuthorities(file); err != nil || a.current.Load() == nil {
		t.Errorf("a server that starts without authorities: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := newAuthorities(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
}

func TestCertificatesThatAreNotForClientsAreRefused(t *testing.T) {
	t.Parallel()
	authority, stranger := NewTestAuthority(t, nil), NewTestAuthority(t, nil)
	between := NewTestAuthority(t, authority)
	file := filepath.Join(t.TempDir(), "ca.pem")
	authority.Write(t, file)
	a, err := newAuthorities(file)
	if err != nil {
		t.Fatal(err)
	}
	for what, row := range map[string]struct {
		cert tls.Certificate
		ok   bool
	}{
		"signed":               {authority.Issue(t, deployer, nil), true},
		"signed by another":    {stranger.Issue(t, deployer, nil), false},
		"through another":      {between.Issue(t, deployer, nil), true},
		"of another form":      {authority.Issue(t, "mailto:ci@example.org", nil), false},
		"of a server":          {authority.Issue(t, deployer, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), false},
		"of anything":          {authority.Issue(t, deployer, func(c *x509.Certificate) { c.ExtKeyUsage = nil }), false},
		"of any usage":         {authority.Issue(t, deployer, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} }), false},
		"of an authority":      {authority.Issue(t, deployer, func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }), false},
		"expired":              {authority.Issue(t, deployer, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), false},
		"without a URI":        {authority.Issue(t, deployer, func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"ci"} }), false},
		"with two URIs":        {authority.Issue(t, deployer, func(c *x509.Certificate) { c.URIs = append(c.URIs, c.URIs[0]) }), false},
		"with a common name":   {authority.Issue(t, deployer, func(c *x509.Certificate) { c.URIs = nil; c.Subject.CommonName = deployer }), false},
		"with another payload": {tampered(t, authority.Issue(t, deployer, nil)), false},
	} {
		subject, valid, err := a.identify(chainOf(t, row.cert))
		if err == nil {
			err = valid(time.Now())
		}
		if (err == nil) != row.ok || row.ok && subject != deployer || err != nil && !errors.Is(err, access.ErrUnauthenticated) {
			t.Errorf("%s: %q, %v", what, subject, err)
		}
	}
}

// tampered returns a certificate whose signature is wrong.
func tampered(t *testing.T, cert tls.Certificate) tls.Certificate {
	t.Helper()
	raw := append([]byte{}, cert.Certificate[0]...)
	raw[len(raw)-1] ^= 1
	cert.Certificate = [][]byte{raw}
	return cert
}

func TestAChainIsVerifiedOnceUntilACertificateBeginsOrEndsWhateverTheVerdict(t *testing.T) {
	t.Parallel()
	authority, stranger := NewTestAuthority(t, nil), NewTestAuthority(t, nil)
	now := time.Now()
	later := NewTestAuthority(t, nil).within(t, now.Add(time.Minute), now.Add(time.Hour))
	a := trusting(t, authority, later)
	for what, row := range map[string]struct {
		cert  tls.Certificate
		first bool // the verdict
	}{"signed": {authority.Issue(t, deployer, nil), true}, "by a stranger": {stranger.Issue(t, deployer, nil), false}} {
		// Each request parses nothing and verifies nothing: the chain is another object, as on another connection.
		verdict := func(at time.Time) bool {
			_, valid, err := a.identify(chainOf(t, row.cert))
			if err != nil {
				t.Fatal(err)
			}
			return valid(at) == nil
		}
		known := a.current.Load()
		trusted := known.pool
		if verdict(now) != row.first {
			t.Errorf("%s: not %v", what, row.first)
		}
		// A change that no reload makes shows when the chain is verified.
		known.pool = x509.NewCertPool()
		known.pool.AddCert(stranger.cert)
		if verdict(now.Add(50*time.Second)) != row.first {
			t.Errorf("%s: verified again, though no certificate has begun or ended", what)
		}
		if verdict(now.Add(2*time.Minute)) == row.first {
			t.Errorf("%s: not verified again when another authority begins", what)
		}
		known.pool = trusted
	}
}

// A verdict is remembered no longer than it is right, to the second.
func TestACertificateIsAcceptedFromItsBeginningToItsEnd(t *testing.T) {
	t.Parallel()
	minute := time.Now().Truncate(time.Minute)
	at := func(second int) time.Time { return minute.Add(time.Duration(second) * time.Second) }
	always, other := NewTestAuthority(t, nil), NewTestAuthority(t, nil)
	within := func(from, until int) *TestAuthority { return always.within(t, at(from), at(until)) }
	lasting := func(from, until int) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = at(from), at(until) }
	}
	const long = 3600
	for what, row := range map[string]struct {
		trusted []*TestAuthority
		cert    tls.Certificate
	}{
		"a client's":                     {[]*TestAuthority{always}, always.Issue(t, deployer, lasting(30, 40))},
		"an authority's":                 {[]*TestAuthority{within(30, 40)}, always.Issue(t, deployer, lasting(-long, long))},
		"an authority's, and its client": {[]*TestAuthority{within(-long, 40)}, always.Issue(t, deployer, lasting(30, long))},
		"one of two of an authority":     {[]*TestAuthority{within(30, 40), within(35, 38), other}, always.Issue(t, deployer, lasting(-long, long))},
	} {
		a := trusting(t, row.trusted...)
		_, valid, err := a.identify(chainOf(t, row.cert))
		if err != nil {
			t.Fatal(err)
		}
		for _, second := range []int{29, 30, 35, 38, 39, 40, 41, 30, 29, 41, 40} {
			if err := valid(at(second)); (err == nil) != (30 <= second && second <= 40) {
				t.Errorf("%s, from second 30 to 40: in second %d: %v", what, second, err)
			}
		}
	}
}

func TestFewVerdictsAreRemembered(t *testing.T) {
	t.Parallel()
	authority := NewTestAuthority(t, nil)
	file := filepath.Join(t.TempDir(), "ca.pem")
	authority.Write(t, file)
	a, err := newAuthorities(file)
	if err != nil {
		t.Fatal(err)
	}
	known := a.current.Load()
	for i := range maxKnown {
		known.known[question{past: -i}] = nil
	}
	_, valid, err := a.identify(chainOf(t, authority.Issue(t, deployer, nil)))
	if err == nil {
		err = valid(time.Now())
	}
	if err != nil || len(known.known) != 1 {
		t.Errorf("%v, %d are remembered", err, len(known.known))
	}
}

func chainOf(t *testing.T, cert tls.Certificate) (chain []*x509.Certificate) {
	t.Helper()
	for _, raw := range cert.Certificate {
		c, err := x509.ParseCertificate(raw)
		if err != nil {
			t.Fatal(err)
		}
		chain = append(chain, c)
	}
	return chain
}
