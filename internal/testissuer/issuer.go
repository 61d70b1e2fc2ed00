// Package testissuer is an OIDC issuer for tests.
package testissuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// An Issuer publishes a key, and signs JWTs with it.
type Issuer struct {
	URL string // of the issuer, the claim "iss"
	CA  string // the file of the authority that signed its certificate

	requests atomic.Int64
	mu       sync.Mutex
	id       int
	key      *ecdsa.PrivateKey
	broken   http.HandlerFunc
}

// New starts an issuer, which ends with the test.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{CA: filepath.Join(t.TempDir(), "ca.pem")}
	i.Rotate(t)
	s := httptest.NewTLSServer(i)
	t.Cleanup(s.Close)
	i.URL = s.URL
	if err := os.WriteFile(i.CA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

// Rotate replaces the key.
func (i *Issuer) Rotate(t testing.TB) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.id++
	i.key = key
}

// Break makes the issuer answer with what answer writes; nil repairs it.
func (i *Issuer) Break(answer http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.broken = answer
}

// Requests returns how many requests there were for the keys and for where they are.
func (i *Issuer) Requests() int64 { return i.requests.Load() }

// Key returns the key and its ID.
func (i *Issuer) Key() (*ecdsa.PrivateKey, string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.key, fmt.Sprint(i.id)
}

// ServeHTTP publishes the key, unless the issuer is broken.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.requests.Add(1)
	i.mu.Lock()
	broken := i.broken
	i.mu.Unlock()
	if broken != nil {
		broken(w, r)
		return
	}
	i.Publish(w, r)
}

// Publish answers a request for the key or for where it is.
func (i *Issuer) Publish(w http.ResponseWriter, r *http.Request) {
	key, id := i.Key()
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	case "/keys":
		json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: id, Algorithm: "ES256", Use: "sig"}}})
	default:
		http.NotFound(w, r)
	}
}

// Sign returns a JWT with those claims.
func (i *Issuer) Sign(t testing.TB, claims map[string]any) string {
	t.Helper()
	key, id := i.Key()
	return Sign(t, jose.ES256, key, id, claims)
}

// Sign returns a JWT with those claims that is signed with a key.
func Sign(t testing.TB, a jose.SignatureAlgorithm, key crypto.PrivateKey, id string, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: a, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return SignWith(t, signer, claims)
}

// SignWith returns a JWT with those claims.
func SignWith(t testing.TB, signer jose.Signer, claims map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
