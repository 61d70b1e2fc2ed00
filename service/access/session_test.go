package access

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

// withSessions runs a test on a database in memory, with a cache that has the key of sessions.
func withSessions(t *testing.T, test func(t *testing.T, db *refdb.DB, s Sessions)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := open(t, memory.New().Open())
		s := sessionsOf(t, db)
		synctest.Wait()
		test(t, db, s)
	})
}

func sessionsOf(t *testing.T, db *refdb.DB) Sessions {
	c := NewCache(db, slog.New(slog.DiscardHandler))
	s := c.Sessions()
	go c.Run(t.Context())
	return s
}

func begin(t *testing.T, s Sessions, token string) string {
	t.Helper()
	text := ""
	eventually(t, "a session begins", func() bool {
		var err error
		text, _, err = s.Begin(token)
		return err == nil
	})
	return text
}

func TestASessionStandsForItsTokenAtEachServer(t *testing.T) {
	t.Parallel()
	withSessions(t, func(t *testing.T, db *refdb.DB, s Sessions) {
		allow(t, db, "ada", Read, "app", All)
		token, record := newToken(t, db, "ada", 24*time.Hour)
		text := begin(t, s, token)
		if strings.Contains(text, token) || strings.Contains(text, record.ID) {
			t.Errorf("the session's text %q shows the token", text)
		}
		other := sessionsOf(t, db)
		synctest.Wait()
		for _, s := range []Sessions{s, other} {
			i, err := s.Resume(text)
			if err != nil || i.Subject != "ada" || i.May(Read, "app", "refs/heads/main") != nil {
				t.Errorf("got %q, %v", i.Subject, err)
			}
		}
		if _, err := db.Get(t.Context(), project, sealRef); err != nil {
			t.Fatal(err)
		}
	})
}

func TestASessionEndsWithItsHourItsTokenAndItsKey(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		life time.Duration // of the token
		end  func(t *testing.T, db *refdb.DB, token Token)
		wait time.Duration
	}{
		"hour":       {24 * time.Hour, func(*testing.T, *refdb.DB, Token) {}, SessionLife},
		"expiry":     {10 * time.Minute, func(*testing.T, *refdb.DB, Token) {}, 10 * time.Minute},
		"revocation": {24 * time.Hour, func(t *testing.T, db *refdb.DB, token Token) { must(t, RevokeToken(t.Context(), db, token.ID)) }, ValidFor},
		"key":        {24 * time.Hour, func(t *testing.T, db *refdb.DB, _ Token) { must(t, remove(t.Context(), db, sealRef)) }, ValidFor},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withSessions(t, func(t *testing.T, db *refdb.DB, s Sessions) {
				allow(t, db, "ada", Read, All, All)
				token, record := newToken(t, db, "ada", row.life)
				text := begin(t, s, token)
				i, err := s.Resume(text)
				if err != nil || i.Err() != nil {
					t.Fatal(err, i.Err())
				}
				row.end(t, db, record)
				time.Sleep(row.wait + time.Second)
				if _, err := s.Resume(text); !errors.Is(err, ErrUnauthenticated) {
					t.Errorf("the session goes on: %v", err)
				}
				if err := i.Err(); !errors.Is(err, ErrUnauthenticated) {
					t.Errorf("what the session has opened goes on: %v", err)
				}
				if name == "key" {
					begin(t, s, token) // with a new key
				}
			})
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAChangedSessionIsNone(t *testing.T) {
	t.Parallel()
	withSessions(t, func(t *testing.T, db *refdb.DB, s Sessions) {
		allow(t, db, "ada", Read, All, All)
		token, _ := newToken(t, db, "ada", 24*time.Hour)
		text := begin(t, s, token)
		for i := range text {
			other := byte('A')
			if text[i] == other {
				other = 'B'
			}
			if _, err := s.Resume(text[:i] + string(other) + text[i+1:]); !errors.Is(err, ErrUnauthenticated) {
				t.Fatalf("with another character at %d: %v", i, err)
			}
		}
		for _, other := range []string{"", "x", text + "A", text[1:], text[:len(text)-4], token, strings.Repeat("A", 1<<20)} {
			if _, err := s.Resume(other); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%.50q: %v", other, err)
			}
		}
	})
}

// The holder of a copy of the key can seal a session that no server would create.
func TestAForgedSessionOfMoreThanAnHourIsRefused(t *testing.T) {
	t.Parallel()
	withSessions(t, func(t *testing.T, db *refdb.DB, s Sessions) {
		allow(t, db, "ada", Read, All, All)
		token, record := newToken(t, db, "ada", 24*time.Hour)
		begin(t, s, token)
		now := s.cache.current.Load()
		for life, ok := range map[time.Duration]bool{SessionLife: true, 2 * SessionLife: false} {
			plain, err := json.Marshal(session{record.ID, now.time().Add(life).Unix()})
			must(t, err)
			text := base64.RawURLEncoding.EncodeToString(now.seal.Seal(nil, nil, plain, []byte(sealVersion)))
			if _, err := s.Resume(text); (err == nil) != ok || err != nil && !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%s: %v", life, err)
			}
		}
	})
}

func TestNobodyLogsInWithoutATokenThatHasARule(t *testing.T) {
	t.Parallel()
	withSessions(t, func(t *testing.T, db *refdb.DB, s Sessions) {
		token, _ := newToken(t, db, "ada", 24*time.Hour)
		time.Sleep(ValidFor)
		if _, _, err := s.Begin(token); !errors.Is(err, ErrDenied) {
			t.Errorf("without a rule: %v", err)
		}
		for _, text := range []string{"", "x", token + "x", strings.ToUpper(token)} {
			if _, _, err := s.Begin(text); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

func TestProjectsOfASubject(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, db *refdb.DB, c *Cache) {
		token, _ := newToken(t, db, "ada", time.Hour)
		for _, p := range []Pattern{"team/app", "team/*", "zoo", "zoo", "app"} {
			allow(t, db, "ada", Lock, p, "refs/heads/*")
			allow(t, db, "ada", Read, p, All)
		}
		time.Sleep(ValidFor)
		i, err := c.Authenticate(token)
		must(t, err)
		if got, err := i.Projects(Read); err != nil || !slices.Equal(got, []Pattern{"app", "team/*", "team/app", "zoo"}) || !slices.Equal(Disjoint(got), []Pattern{"app", "team/*", "zoo"}) {
			t.Errorf("got %q, %v", got, err)
		}
		if got := Disjoint([]Pattern{"team/*", "a", "team", All, "team/x/*"}); !slices.Equal(got, []Pattern{All}) {
			t.Errorf("got %q", got)
		}
		if got := Disjoint([]Pattern{"team/x/*", "team0", "team/*", "team", "team/*"}); !slices.Equal(got, []Pattern{"team", "team/*", "team0"}) {
			t.Errorf("got %q", got)
		}
		if got, err := i.Projects(Administer); err != nil || len(got) != 0 {
			t.Errorf("got %q, %v", got, err)
		}
		if err := i.MayAll(Read); !errors.Is(err, ErrDenied) {
			t.Errorf("got %v", err)
		}
		allow(t, db, "ada", Write, All, All)
		eventually(t, "all is readable", func() bool { return i.MayAll(Read) == nil })
		if err := i.MayAll(Administer); !errors.Is(err, ErrDenied) {
			t.Errorf("got %v", err)
		}
	})
}
