// Package issuers verifies JWTs of OIDC issuers: a client to which its platform gives such a JWT, such as
// a CI job or a pod, needs no secret of its own.
//
// The keys of the issuers are read in the background. A JWT is verified by keys in memory, so that an
// issuer that does not answer delays nobody.
package issuers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalrefdb/globalrefdb/service/access"
)

// maxText is the length of the longest JWT that is accepted.
const maxText = 8 << 10

// algorithms are the signatures that are accepted: those by which only the issuer can sign.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// A refusal says why a JWT is not valid. It names nothing that the caller has not sent.
type refusal string

func (r refusal) Error() string { return "the JWT is not valid: " + string(r) }

// Unwrap returns access.ErrUnauthenticated.
func (r refusal) Unwrap() error { return access.ErrUnauthenticated }

const (
	errMalformed refusal = "it is malformed, too large, or its signature is of a kind that is not accepted"
	errIssuer    refusal = "its issuer (iss) is not one of this server's"
	errAudience  refusal = "it is not for this server's audience (aud), or not valid yet (nbf)"
	errSignature refusal = "its signature is wrong"
	errExpired   refusal = "it has expired (exp)"
	errClaims    refusal = "a claim lacks the value that this server requires"
	errSubject   refusal = "the claim that names the subject is missing, too long, or has characters that no subject has"
)

// Issuers verify JWTs of several issuers.
type Issuers struct {
	byURL map[string]issuer
}

type issuer struct {
	Config
	keys *keys
}

// New returns issuers whose keys are unknown until Run has read them.
func New(configs []Config, log *slog.Logger) *Issuers {
	all := &Issuers{byURL: map[string]issuer{}}
	for _, c := range configs {
		all.byURL[c.URL] = issuer{c, newKeys(published(c), log.With("issuer", c.Name))}
	}
	return all
}

// Run keeps the keys current until ctx ends.
func (all *Issuers) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, i := range all.byURL {
		running.Go(func() { i.keys.run(ctx) })
	}
	running.Wait()
}

// Verify returns the subject that a JWT names, and what tells whether the JWT is still valid at a later
// time. All times are the database's. The error wraps access.ErrUnauthenticated, or wraps ErrNoKey.
func (all *Issuers) Verify(text string, now time.Time) (subject string, valid func(now time.Time) error, err error) {
	// The payload is not verified here: it only says whose keys are needed.
	url, ok := issuerOf(text)
	if !ok {
		return "", nil, errMalformed
	}
	i, ok := all.byURL[url]
	if !ok {
		return "", nil, errIssuer
	}
	return i.verify(text, now)
}

// Ready returns nil once each issuer was asked for its keys, whether or not it has answered: a server that
// has just started does not refuse JWTs that others accept.
func (all *Issuers) Ready() error {
	for _, i := range all.byURL {
		if !i.keys.asked.Load() {
			return fmt.Errorf("the keys of the issuer %s are being read", i.Name)
		}
	}
	return nil
}

var ages = prometheus.NewDesc("refdb_server_issuer_keys_age_seconds",
	"Time since the keys of an issuer of JWTs were last read, by the issuer's name; +Inf if they have not been read.", []string{"issuer"}, nil)

// Describe implements [prometheus.Collector].
func (all *Issuers) Describe(c chan<- *prometheus.Desc) { c <- ages }

// Collect implements [prometheus.Collector].
func (all *Issuers) Collect(c chan<- prometheus.Metric) {
	for _, i := range all.byURL {
		age := math.Inf(1)
		if set := i.keys.current.Load(); set != nil {
			age = access.Age(set.at).Seconds()
		}
		c <- prometheus.MustNewConstMetric(ages, prometheus.GaugeValue, age, i.Name)
	}
}

// issuerOf returns the issuer that a JWT claims to be from.
func issuerOf(text string) (string, bool) {
	parts := strings.Split(text, ".")
	if len(text) > maxText || len(parts) != 3 {
		return "", false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", false
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	return claims.Issuer, json.Unmarshal(payload, &claims) == nil
}

func (i issuer) verify(text string, now time.Time) (subject string, valid func(time.Time) error, err error) {
	config := &oidc.Config{ClientID: i.Audience, Now: func() time.Time { return now }}
	for _, a := range algorithms {
		config.SupportedSigningAlgs = append(config.SupportedSigningAlgs, string(a))
	}
	signature := &signature{keys: i.keys}
	token, err := oidc.NewVerifier(i.URL, signature, config).Verify(context.Background(), text)
	switch expired := (*oidc.TokenExpiredError)(nil); {
	case signature.err != nil:
		return "", nil, signature.err
	case errors.As(err, &expired):
		return "", nil, errExpired
	case err != nil && !signature.seen:
		return "", nil, errMalformed
	case err != nil:
		return "", nil, errAudience
	}
	valid = func(now time.Time) error {
		if !now.Before(token.Expiry) {
			return errExpired
		}
		return nil
	}
	claims := map[string]any{}
	if err := token.Claims(&claims); err != nil {
		return "", nil, errMalformed
	}
	for name, want := range i.Claims {
		if !has(claims[name], want) {
			return "", nil, errClaims
		}
	}
	value, _ := claims[i.Subject].(string)
	if subject, err = access.SubjectOfClaim(i.Name, value); err != nil {
		return "", nil, errSubject
	}
	if err := valid(now); err != nil {
		return "", nil, err
	}
	return subject, valid, nil
}

// A signature verifies one JWT, and keeps the error, which the verifier of package oidc does not wrap.
type signature struct {
	keys *keys
	seen bool
	err  error
}

// VerifySignature implements [oidc.KeySet].
func (s *signature) VerifySignature(_ context.Context, text string) (payload []byte, err error) {
	s.seen = true
	payload, s.err = s.keys.verify(text)
	return payload, s.err
}

// has reports whether a claim has that value, or is a list with it.
func has(claim any, value string) bool {
	if list, ok := claim.([]any); ok {
		return slices.Contains(list, any(value))
	}
	return claim == value
}
