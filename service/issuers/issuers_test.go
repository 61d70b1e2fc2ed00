package issuers

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/globalrefdb/globalrefdb/internal/testissuer"
	"github.com/globalrefdb/globalrefdb/service/access"
)

// now is the database's time in these tests: no clock of this machine.
var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// accepting returns issuers of which one is i.
func accepting(t *testing.T, i *testissuer.Issuer, change func(*Config)) *Issuers {
	t.Helper()
	c := Config{Name: "ci", URL: i.URL, Audience: "refdb", Subject: "sub", CA: i.CA}
	if change != nil {
		change(&c)
	}
	all := New([]Config{c}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { all.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return all
}

// ready waits until the keys were read.
func ready(t *testing.T, all *Issuers, text string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, _, err := all.Verify(text, now); !errors.Is(err, errNotRead) {
			return
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatal("the keys are not read")
		}
	}
}

func claims(i *testissuer.Issuer, change func(map[string]any)) map[string]any {
	c := map[string]any{
		"iss": i.URL, "aud": "refdb", "sub": "repo:org/repo:ref:refs/heads/main", "exp": now.Add(time.Minute).Unix(), "nbf": now.Add(-time.Minute).Unix(),
		"ref_protected": "true", "groups": []string{"a", "deployers"},
	}
	if change != nil {
		change(c)
	}
	return c
}

func TestAJWTNamesItsSubjectUntilItExpires(t *testing.T) {
	t.Parallel()
	i := testissuer.New(t)
	all := accepting(t, i, func(c *Config) { c.Claims = map[string]string{"ref_protected": "true", "groups": "deployers"} })
	text := i.Sign(t, claims(i, nil))
	ready(t, all, text)
	subject, valid, err := all.Verify(text, now)
	if err != nil || subject != "ci:repo:org/repo:ref:refs/heads/main" {
		t.Fatalf("%q, %v", subject, err)
	}
	for after, ok := range map[time.Duration]bool{0: true, time.Minute - time.Second: true, time.Minute: false, time.Hour: false} {
		if err := valid(now.Add(after)); (err == nil) != ok || err != nil && !errors.Is(err, access.ErrUnauthenticated) {
			t.Errorf("after %s: %v", after, err)
		}
		if _, _, err := all.Verify(text, now.Add(after)); (err == nil) != ok || err != nil && !errors.Is(err, access.ErrUnauthenticated) {
			t.Errorf("verified after %s: %v", after, err)
		}
	}
	if got, _, err := all.Verify(i.Sign(t, claims(i, func(c map[string]any) { c["aud"] = []string{"other", "refdb"} })), now); err != nil || got != subject {
		t.Errorf("with several audiences: %q, %v", got, err)
	}
}

func TestJWTsThatAreNotValidAreRefused(t *testing.T) {
	t.Parallel()
	i, other := testissuer.New(t), testissuer.New(t)
	all := accepting(t, i, func(c *Config) { c.Claims = map[string]string{"ref_protected": "true", "groups": "deployers"} })
	valid := i.Sign(t, claims(i, nil))
	ready(t, all, valid)
	for what, change := range map[string]func(map[string]any){
		"another audience":       func(c map[string]any) { c["aud"] = "other" },
		"other audiences":        func(c map[string]any) { c["aud"] = []string{"a", "b"} },
		"no audience":            func(c map[string]any) { delete(c, "aud") },
		"part of the audience":   func(c map[string]any) { c["aud"] = "ref" },
		"expired":                func(c map[string]any) { c["exp"] = now.Unix() },
		"no expiry":              func(c map[string]any) { delete(c, "exp") },
		"an expiry that is text": func(c map[string]any) { c["exp"] = "tomorrow" },
		"not valid yet":          func(c map[string]any) { c["nbf"] = now.Add(10 * time.Minute).Unix() },
		"another issuer":         func(c map[string]any) { c["iss"] = other.URL },
		"no issuer":              func(c map[string]any) { delete(c, "iss") },
		"the issuer with a path": func(c map[string]any) { c["iss"] = i.URL + "/" },
		"another claim":          func(c map[string]any) { c["ref_protected"] = "false" },
		"a claim of a kind":      func(c map[string]any) { c["ref_protected"] = true },
		"no claim":               func(c map[string]any) { delete(c, "ref_protected") },
		"a list without it":      func(c map[string]any) { c["groups"] = []any{"a", 1, nil} },
		"no subject":             func(c map[string]any) { delete(c, "sub") },
		"an empty subject":       func(c map[string]any) { c["sub"] = "" },
		"a subject of a kind":    func(c map[string]any) { c["sub"] = 1 },
		"a hostile subject":      func(c map[string]any) { c["sub"] = "a\nb" },
		"a URI":                  func(c map[string]any) { c["sub"] = "//example.org/a" },
		"a long subject":         func(c map[string]any) { c["sub"] = strings.Repeat("a", 300) },
		"a large token":          func(c map[string]any) { c["more"] = strings.Repeat("a", maxText) },
	} {
		refused(t, all, what, i.Sign(t, claims(i, change)))
	}
	parts := strings.Split(valid, ".")
	key, id := i.Key()
	wrong, _ := other.Key()
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	inPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"alg none":                         unsigned(t, `{"alg":"none"}`, parts[1]) + ".",
		"alg none with a signature":        unsigned(t, `{"alg":"none","kid":"`+id+`"}`, parts[1]) + "." + parts[2],
		"no alg":                           unsigned(t, `{"kid":"`+id+`"}`, parts[1]) + "." + parts[2],
		"HS256 with the public key":        testissuer.Sign(t, jose.HS256, public, id, claims(i, nil)),
		"HS256 with the public key as PEM": testissuer.Sign(t, jose.HS256, inPEM, id, claims(i, nil)),
		"RS256 with the ID of another key": testissuer.Sign(t, jose.RS256, rsaKey, id, claims(i, nil)),
		"another key":                      testissuer.Sign(t, jose.ES256, wrong, id, claims(i, nil)),
		"another payload":                  parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"`+i.URL+`","aud":"refdb","sub":"root"}`)) + "." + parts[2],
		"no signature":                     parts[0] + "." + parts[1] + ".",
		"two parts":                        parts[0] + "." + parts[1],
		"four parts":                       valid + ".x",
		"dots":                             "..",
		"nothing":                          "",
		"a JSON serialization":             fmt.Sprintf(`{"payload":%q,"protected":%q,"signature":%q}`, parts[1], parts[0], parts[2]),
		"a critical header":                unsigned(t, `{"alg":"ES256","kid":"`+id+`","crit":["x"],"x":1}`, parts[1]) + "." + parts[2],
	} {
		refused(t, all, what, text)
	}
	// The issuer may have published the key meanwhile.
	for what, text := range map[string]string{
		"a key that is not published": testissuer.Sign(t, jose.ES256, wrong, "new", claims(i, nil)),
		"no key's ID":                 testissuer.Sign(t, jose.ES256, key, "", claims(i, nil)),
		"a key in its own header":     embedding(t, claims(i, nil)),
	} {
		if subject, _, err := all.Verify(text, now); !errors.Is(err, ErrNoKey) || errors.Is(err, access.ErrUnauthenticated) || subject != "" {
			t.Errorf("%s: %q, %v", what, subject, err)
		}
	}
	if _, _, err := all.Verify(valid, now); err != nil {
		t.Errorf("the valid one: %v", err)
	}
}

func refused(t *testing.T, all *Issuers, what, text string) {
	t.Helper()
	if subject, _, err := all.Verify(text, now); !errors.Is(err, access.ErrUnauthenticated) || subject != "" {
		t.Errorf("%s: %q, %v", what, subject, err)
	}
}

func unsigned(t *testing.T, header, payload string) string {
	t.Helper()
	if !json.Valid([]byte(header)) {
		t.Fatal(header)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + payload
}

// embedding returns a JWT that brings its own key.
func embedding(t *testing.T, claims map[string]any) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, &jose.SignerOptions{EmbedJWK: true})
	if err != nil {
		t.Fatal(err)
	}
	return testissuer.SignWith(t, signer, claims)
}

func TestAnIssuerThatMisbehavesHasNoKeys(t *testing.T) {
	t.Parallel()
	i := testissuer.New(t)
	// The document and the keys are valid but for one thing, so that only that can be the reason for a failure.
	document := func(w http.ResponseWriter, change map[string]any) {
		all := map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"}
		maps.Copy(all, change)
		json.NewEncoder(w).Encode(all)
	}
	var asked atomic.Int64 // for the keys without TLS
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		i.Publish(w, r)
	}))
	t.Cleanup(plain.Close)
	const discovery = "/.well-known/openid-configuration"
	for what, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"an error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway); document(w, nil) },
		"no JSON":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"a large answer": func(w http.ResponseWriter, _ *http.Request) {
			document(w, map[string]any{"x": strings.Repeat("a", maxResponse)})
		},
		"another issuer": func(w http.ResponseWriter, _ *http.Request) {
			document(w, map[string]any{"issuer": "https://example.com"})
		},
		"keys without TLS": func(w http.ResponseWriter, _ *http.Request) {
			document(w, map[string]any{"jwks_uri": plain.URL + "/keys"})
		},
		"another place of the document": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == discovery {
				http.Redirect(w, r, "/elsewhere", http.StatusFound)
				return
			}
			document(w, nil)
		},
		"another place of the keys": func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case discovery:
				document(w, map[string]any{"jwks_uri": i.URL + "/old"})
			case "/old":
				http.Redirect(w, r, "/keys", http.StatusFound)
			}
		},
		"large keys": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/keys" {
				fmt.Fprint(w, strings.Repeat(" ", maxResponse))
			}
			i.Publish(w, r)
		},
	} {
		i.Break(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/keys" && what != "large keys" {
				i.Publish(w, r)
				return
			}
			answer(w, r)
		})
		if all, err := published(Config{Name: "ci", URL: i.URL, CA: i.CA})(t.Context()); err == nil {
			t.Errorf("%s: %v", what, all)
		}
		i.Break(nil)
		if all, err := published(Config{Name: "ci", URL: i.URL, CA: i.CA})(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("%s: afterwards: %v, %v", what, all, err)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("%d requests without TLS", n)
	}
	if _, err := published(Config{Name: "ci", URL: i.URL})(t.Context()); err == nil {
		t.Error("an issuer whose certificate nobody has signed")
	}
}

func TestTheLogHasLittleOfWhatAnIssuerAnswers(t *testing.T) {
	t.Parallel()
	i := testissuer.New(t)
	i.Break(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, strings.Repeat("a", maxResponse/2), http.StatusBadGateway)
	})
	ctx, cancel := context.WithCancel(t.Context())
	var log strings.Builder
	all := New([]Config{{Name: "ci", URL: i.URL, CA: i.CA}}, slog.New(slog.NewTextHandler(&log, nil)))
	var running sync.WaitGroup
	running.Go(func() { all.Run(ctx) })
	for all.Ready() != nil {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	running.Wait()
	if text := log.String(); !strings.Contains(text, "502") || len(text) > 1000 {
		t.Errorf("%d bytes: %.1000s", len(text), text)
	}
}
