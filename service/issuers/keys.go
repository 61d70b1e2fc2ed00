package issuers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/globalrefdb/globalrefdb/service/access"
)

const (
	// The keys are read again after readEvery, and earlier if a JWT names a key that is not among them,
	// but never sooner than readAgain after the last time. Until they were read once, JWTs are of no use: the
	// pauses between attempts grow from firstPause to readAgain.
	readEvery  = 5 * time.Minute
	readAgain  = 30 * time.Second
	firstPause = time.Second
	// validFor is how long the keys are used while they can't be read again.
	validFor = 12 * time.Hour

	readLimit   = 10 * time.Second // for reading the keys once
	maxResponse = 1 << 20
	maxKeys     = 100
	maxReason   = 300 // bytes of an error in the log: an error of package oidc has the issuer's whole response
)

// ErrNoKey: a JWT can't be verified, because its issuer's keys could not be read, or were read too long ago,
// or before its key was published.
var ErrNoKey = errors.New("the server does not have the key of the JWT")

var (
	errNotRead    = fmt.Errorf("%w: the keys of its issuer can't be read", ErrNoKey)
	errUnknownKey = fmt.Errorf("%w: its issuer had not published the key (kid) when it was last asked", ErrNoKey)
)

// keys are the public keys of one issuer, read in the background. No request waits for the issuer, and
// no stranger makes the server ask it more often than every readAgain.
type keys struct {
	read    func(context.Context) ([]jose.JSONWebKey, error)
	log     *slog.Logger
	current atomic.Pointer[keySet]
	asked   atomic.Bool   // an attempt to read the keys has ended
	wanted  chan struct{} // a JWT names a key that is not known
}

// A keySet has the keys as of one moment.
type keySet struct {
	at  time.Time
	all []jose.JSONWebKey
}

func newKeys(read func(context.Context) ([]jose.JSONWebKey, error), log *slog.Logger) *keys {
	return &keys{read: read, log: log, wanted: make(chan struct{}, 1)}
}

// run keeps the keys current until ctx ends.
func (k *keys) run(ctx context.Context) {
	failing, pause := false, firstPause
	for {
		err := k.refresh(ctx)
		k.asked.Store(true)
		if err != nil && ctx.Err() == nil && !failing {
			k.log.WarnContext(ctx, "the keys of an issuer of JWTs can't be read: the ones that were read earlier are used",
				"error", fmt.Sprintf("%.*s", maxReason, err.Error()), "for", validFor)
		} else if err == nil && failing {
			k.log.InfoContext(ctx, "the keys of an issuer of JWTs were read again")
		}
		failing = err != nil
		if k.current.Load() != nil {
			pause = readAgain
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, readAgain)
		if failing {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-k.wanted:
		case <-time.After(readEvery - readAgain):
		}
	}
}

func (k *keys) refresh(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	at := time.Now()
	all, err := k.read(limited)
	if err == nil {
		k.current.Store(&keySet{at, all})
	}
	return err
}

// verify returns the payload of a JWT that is signed with one of the keys as they are now.
func (k *keys) verify(text string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(text, algorithms)
	if err != nil || len(jws.Signatures) != 1 {
		return nil, errMalformed
	}
	set := k.current.Load()
	if set == nil || access.Age(set.at) > validFor {
		return nil, errNotRead
	}
	head, known := jws.Signatures[0].Header, false
	for _, key := range set.all {
		if key.KeyID != head.KeyID {
			continue
		}
		known = true
		if key.Algorithm != "" && key.Algorithm != head.Algorithm {
			continue
		}
		if payload, err := jws.Verify(key.Key); err == nil {
			return payload, nil
		}
	}
	if known {
		return nil, errSignature
	}
	select {
	case k.wanted <- struct{}{}:
	default:
	}
	return nil, errUnknownKey
}

// published returns what reads the keys that an issuer publishes.
func published(c Config) func(context.Context) ([]jose.JSONWebKey, error) {
	return func(ctx context.Context) ([]jose.JSONWebKey, error) {
		client, err := c.client()
		if err != nil {
			return nil, err
		}
		defer client.CloseIdleConnections()
		ctx = oidc.ClientContext(ctx, client)
		provider, err := oidc.NewProvider(ctx, c.URL)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		var found struct {
			Keys string `json:"jwks_uri"`
		}
		if err := provider.Claims(&found); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		if !strings.HasPrefix(found.Keys, "https://") {
			return nil, fmt.Errorf("%s: its jwks_uri does not start with https", c.Name)
		}
		return readKeys(ctx, client, found.Keys)
	}
}

func readKeys(ctx context.Context, client *http.Client, url string) ([]jose.JSONWebKey, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return parseKeys(content)
}

// parseKeys returns the keys of a JWK set that can verify a JWT. Others are left out: a key that this
// version does not know must not keep the rest from being used, and a symmetric one verifies nothing that
// its readers could not have signed.
func parseKeys(content []byte) (all []jose.JSONWebKey, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(content, &set); err != nil {
		return nil, fmt.Errorf("the keys: %w", err)
	}
	for _, one := range set.Keys {
		var key jose.JSONWebKey
		if err := key.UnmarshalJSON(one); err != nil || !key.IsPublic() || !key.Valid() || key.Use != "" && key.Use != "sig" {
			continue
		}
		all = append(all, key)
	}
	if len(all) == 0 || len(all) > maxKeys {
		return nil, fmt.Errorf("the issuer publishes %d keys for signatures: 1 to %d are expected", len(all), maxKeys)
	}
	return all, nil
}

// client returns a client for requests to the issuer. The file with its authorities may have changed.
func (c Config) client() (*http.Client, error) {
	var roots *x509.CertPool
	if c.CA != "" {
		content, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, err
		}
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("%s has no certificate in PEM form", c.CA)
		}
	}
	return &http.Client{
		Transport:     limited{&http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// limited limits the bodies of responses.
type limited struct{ *http.Transport }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.Transport.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxResponse)
	}
	return response, err
}
