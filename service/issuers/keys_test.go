package issuers

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"github.com/globalrefdb/globalrefdb/internal/testissuer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// signing returns a key, with a JWT that it has signed.
func signing(t *testing.T, id string) (public jose.JSONWebKey, text string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key.Public(), KeyID: id}, testissuer.Sign(t, jose.RS256, key, id, map[string]any{"iss": "x"})
}

func TestAnIssuerIsAskedSeldomWhateverItsCallersSend(t *testing.T) {
	t.Parallel()
	public, known := signing(t, "known")
	_, stranger := signing(t, "stranger")
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		k := newKeys(func(context.Context) ([]jose.JSONWebKey, error) {
			reads.Add(1)
			return []jose.JSONWebKey{public}, nil
		}, slog.New(slog.DiscardHandler))
		if _, err := k.verify(known); !errors.Is(err, errNotRead) {
			t.Errorf("before the first answer: %v", err)
		}
		go k.run(t.Context())
		synctest.Wait()
		for range 600 {
			if _, err := k.verify(stranger); !errors.Is(err, errUnknownKey) {
				t.Fatalf("an unknown key: %v", err)
			}
			if _, err := k.verify(known); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := reads.Load(); n > 21 { // in ten minutes, one in 30 seconds
			t.Errorf("the issuer was asked %d times", n)
		}
		time.Sleep(2 * readAgain) // the last request for the key
		reads.Store(0)
		time.Sleep(time.Hour)
		if n := reads.Load(); n < 11 || n > 12 {
			t.Errorf("without strangers, the issuer was asked %d times in an hour", n)
		}
	})
}

func TestANewKeyIsReadSoonAfterAJWTNamesIt(t *testing.T) {
	t.Parallel()
	first, _ := signing(t, "1")
	second, text := signing(t, "2")
	synctest.Test(t, func(t *testing.T) {
		var rotated atomic.Bool
		k := newKeys(func(context.Context) ([]jose.JSONWebKey, error) {
			if rotated.Load() {
				return []jose.JSONWebKey{first, second}, nil
			}
			return []jose.JSONWebKey{first}, nil
		}, slog.New(slog.DiscardHandler))
		go k.run(t.Context())
		synctest.Wait()
		time.Sleep(readAgain)
		rotated.Store(true)
		if _, err := k.verify(text); !errors.Is(err, errUnknownKey) {
			t.Fatalf("%v", err)
		}
		synctest.Wait()
		if _, err := k.verify(text); err != nil {
			t.Errorf("%v", err)
		}
	})
}

func TestKeysOutlastAnIssuerThatIsAwayForHours(t *testing.T) {
	t.Parallel()
	public, text := signing(t, "1")
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		k := newKeys(func(ctx context.Context) ([]jose.JSONWebKey, error) {
			if away.Load() {
				<-ctx.Done() // it does not answer
				return nil, ctx.Err()
			}
			return []jose.JSONWebKey{public}, nil
		}, slog.New(slog.DiscardHandler))
		go k.run(t.Context())
		synctest.Wait()
		away.Store(true)
		time.Sleep(validFor)
		if _, err := k.verify(text); err != nil {
			t.Errorf("after %s: %v", validFor, err)
		}
		time.Sleep(readEvery + time.Second)
		if _, err := k.verify(text); !errors.Is(err, errNotRead) {
			t.Errorf("later: %v", err)
		}
		away.Store(false)
		time.Sleep(readAgain + readLimit + time.Second)
		if _, err := k.verify(text); err != nil {
			t.Errorf("when it is back: %v", err)
		}
	})
}

// Until it has the keys, a server refuses the JWTs with which clients extend their locks.
func TestAServerThatStartsWhileAnIssuerIsAwaySoonHasItsKeys(t *testing.T) {
	t.Parallel()
	public, text := signing(t, "1")
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		var away atomic.Bool
		away.Store(true)
		k := newKeys(func(context.Context) ([]jose.JSONWebKey, error) {
			reads.Add(1)
			if away.Load() {
				time.Sleep(time.Second)
				return nil, errors.New("away")
			}
			return []jose.JSONWebKey{public}, nil
		}, slog.New(slog.DiscardHandler))
		all := &Issuers{byURL: map[string]issuer{"": {Config{Name: "ci"}, k}}}
		go all.Run(t.Context())
		synctest.Wait()
		if err := all.Ready(); err == nil {
			t.Error("ready before the issuer has answered")
		}
		time.Sleep(2 * time.Second)
		if err := all.Ready(); err != nil {
			t.Errorf("after the first attempt: %v", err)
		}
		time.Sleep(time.Second)
		away.Store(false)
		time.Sleep(5 * time.Second)
		if _, err := k.verify(text); err != nil {
			t.Errorf("soon after the issuer is back: %v", err)
		}
		away.Store(true)
		reads.Store(0)
		time.Sleep(time.Hour)
		if n := reads.Load(); n < 100 || n > 120 {
			t.Errorf("an issuer whose keys the server has was asked %d times in an hour", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		k := newKeys(func(context.Context) ([]jose.JSONWebKey, error) {
			reads.Add(1)
			return nil, errors.New("away")
		}, slog.New(slog.DiscardHandler))
		go k.run(t.Context())
		time.Sleep(time.Hour)
		if n := reads.Load(); n > 130 {
			t.Errorf("an issuer that is away was asked %d times in an hour", n)
		}
	})
}

func TestOnlyPublicKeysForSignaturesAreUsed(t *testing.T) {
	t.Parallel()
	public, _ := signing(t, "1")
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]any{"keys": []any{
		public, jose.JSONWebKey{Key: private, KeyID: "private"}, jose.JSONWebKey{Key: []byte("secret"), KeyID: "symmetric"},
		jose.JSONWebKey{Key: public.Key, KeyID: "encryption", Use: "enc"}, map[string]any{"kty": "new", "kid": "x"}, 1,
	}}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := parseKeys(text); err != nil || len(all) != 1 || all[0].KeyID != "1" {
		t.Errorf("%v, %v", all, err)
	}
	for _, text := range []string{``, `[]`, `{}`, `{"keys": []}`, `{"keys": [1]}`, `{"keys": {}}`} {
		if _, err := parseKeys([]byte(text)); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
