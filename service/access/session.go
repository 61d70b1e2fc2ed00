package access

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// SessionLife is how long a session stands.
	SessionLife = time.Hour

	sealVersion = "refdb-server session 1" // what a sealed text is for; no other text has it
	maxSealed   = 512                      // bytes of a sealed text
	sealAgain   = 3 * time.Second
	endRounded  = time.Minute // for servers that have read the clock of the database at different times
	sealBytes   = 32
)

// ErrNoKey: the database has no key for sessions yet, or one that this version can't read.
var ErrNoKey = fmt.Errorf("%w: the key of sessions is missing, or of a later version", ErrStale)

// Sessions are those of people who have shown a token to a server's page. A session is a text, which the
// browser keeps: the ID of the token and the end, sealed with a key that all servers of a database
// share. Whoever can read the key can read everything that a session gives access to.
type Sessions struct{ cache *Cache }

// A session is what a text holds.
type session struct {
	Token string `json:"token"` // the ID
	End   int64  `json:"end"`   // in seconds since 1970, by the database's clock
}

// A sealKey is a key as the database has it.
type sealKey struct {
	Key []byte `json:"key"`
}

// Sessions returns the sessions of c's database. [Cache.Run] then creates the key if there is none, so
// Sessions must be called before it.
func (c *Cache) Sessions() Sessions {
	c.keyless = make(chan struct{}, 1)
	return Sessions{c}
}

// Begin begins a session of the token with that text, and returns the session's text. The error is as
// from [Cache.Authenticate], ErrDenied if the subject has no rule, or ErrNoKey.
func (s Sessions) Begin(token string) (string, Identity, error) {
	i, err := s.cache.Authenticate(token)
	if err == nil {
		err = i.HasRules()
	}
	if err != nil {
		return "", Identity{}, err
	}
	now, err := i.snapshot()
	if err != nil {
		return "", Identity{}, err
	}
	if now.seal == nil {
		return "", Identity{}, ErrNoKey
	}
	id, _ := idOf(token)
	plain, err := json.Marshal(session{id, now.time().Add(SessionLife).Unix()})
	if err != nil {
		return "", Identity{}, err
	}
	return base64.RawURLEncoding.EncodeToString(now.seal.Seal(nil, nil, plain, []byte(sealVersion))), i, nil
}

// Resume returns the identity of the session with that text. It stands until the session ends, and no
// longer than the token. The error is ErrUnauthenticated, ErrStale or ErrNoKey.
func (s Sessions) Resume(text string) (Identity, error) {
	now, err := s.cache.fresh()
	switch {
	case err != nil:
		return Identity{}, err
	case now.seal == nil:
		return Identity{}, ErrNoKey
	case len(text) > maxSealed:
		return Identity{}, ErrUnauthenticated
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return Identity{}, ErrUnauthenticated
	}
	plain, err := now.seal.Open(nil, nil, sealed, []byte(sealVersion))
	var held session
	if err != nil || decode(string(plain), &held) != nil {
		return Identity{}, ErrUnauthenticated
	}
	end, stands, key := time.Unix(held.End, 0), standing(held.Token), now.seal.key
	if end.After(now.time().Add(SessionLife + endRounded)) {
		return Identity{}, ErrUnauthenticated // no server has created it
	}
	valid := func(s *snapshot) error {
		if !s.time().Before(end) || s.seal == nil || s.seal.key != key {
			return ErrUnauthenticated
		}
		return stands(s)
	}
	if err := valid(now); err != nil {
		return Identity{}, err
	}
	return Identity{now.tokens[held.Token].Subject, valid, s.cache}, nil
}

// A seal is a key of sessions, and its cipher.
type seal struct {
	cipher.AEAD
	key [sealBytes]byte
}

// readSeal returns the key that the database has; nil if there is none, or none that this version can read.
func readSeal(ctx context.Context, db *refdb.DB) (*seal, error) {
	value, err := db.Get(ctx, project, sealRef)
	if err != nil || value.IsAbsent() {
		return nil, err
	}
	var k sealKey
	if decode(string(value), &k) != nil || len(k.Key) != sealBytes {
		return nil, nil
	}
	block, err := aes.NewCipher(k.Key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &seal{aead, [sealBytes]byte(k.Key)}, nil
}

// keepKey creates the key of sessions when the database has none, and wakes Run.
func (c *Cache) keepKey(ctx context.Context, wake chan<- struct{}) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.keyless:
		}
		err := createKey(ctx, c.db)
		if err != nil && !failing && ctx.Err() == nil {
			c.log.WarnContext(ctx, "the key of sessions can't be created: nobody can log in", "class", refdb.ClassOf(err).String())
		}
		failing = err != nil
		signal(wake)
		select {
		case <-ctx.Done():
			return
		case <-time.After(sealAgain):
		}
	}
}

// signal sends on a channel that has room for one signal, unless there is one already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// createKey creates the key unless there is one.
func createKey(ctx context.Context, db *refdb.DB) error {
	limited, cancel := context.WithTimeout(ctx, refreshLimit)
	defer cancel()
	key := make([]byte, sealBytes)
	rand.Read(key) // never fails
	err := create(limited, db, sealRef, sealKey{key})
	if errors.Is(err, refdb.ErrMismatch) {
		return nil // another server has
	}
	return err
}
