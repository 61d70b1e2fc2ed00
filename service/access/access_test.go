package access

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inBubble runs a test on a database in memory, with a cache that is kept current.
func inBubble(t *testing.T, test func(t *testing.T, db *refdb.DB, c *Cache)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := open(t, memory.New().Open())
		c := NewCache(db, slog.New(slog.DiscardHandler))
		go c.Run(t.Context())
		synctest.Wait()
		test(t, db, c)
	})
}

func open(t *testing.T, d refdb.Driver) *refdb.DB {
	t.Helper()
	db, err := refdb.New(d, refdb.Options{Site: "eu-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func newToken(t *testing.T, db *refdb.DB, subject string, life time.Duration) (string, Token) {
	t.Helper()
	text, token, err := CreateToken(t.Context(), db, subject, life, "root@host")
	if err != nil {
		t.Fatal(err)
	}
	return text, token
}

func allow(t *testing.T, db *refdb.DB, subject string, right Right, projects, refs Pattern) Rule {
	t.Helper()
	r, _, err := AddRule(t.Context(), db, Rule{Subject: subject, Projects: projects, Refs: refs, Right: right})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// eventually waits until the cache has followed a change.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > ValidFor {
			t.Fatalf("%s: not within %s", what, ValidFor)
		}
	}
}

func TestATokenNamesItsSubjectUntilItExpiresOrIsRevoked(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, db *refdb.DB, c *Cache) {
		short, _ := newToken(t, db, "ci", time.Hour)
		long, token := newToken(t, db, "ci", 24*time.Hour)
		var i Identity
		eventually(t, "both are known", func() (ok bool) {
			var err, other error
			i, err = c.Authenticate(short)
			_, other = c.Authenticate(long)
			return err == nil && other == nil
		})
		if i.Subject != "ci" {
			t.Errorf("the token is %q's", i.Subject)
		}
		time.Sleep(time.Hour - time.Minute)
		if _, err := c.Authenticate(short); err != nil {
			t.Errorf("a minute before the end: %v", err)
		}
		time.Sleep(time.Minute)
		if _, err := c.Authenticate(short); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("after the end: %v", err)
		}
		if err := i.May(Read, "p", "refs/heads/main"); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("a request that began before the end of its token: %v", err)
		}
		if err := i.Err(); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("a stream that began before the end of its token: %v", err)
		}
		if err := RevokeToken(t.Context(), db, token.ID); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is revoked", func() bool {
			_, err := c.Authenticate(long)
			return errors.Is(err, ErrUnauthenticated)
		})
		if err := RevokeToken(t.Context(), db, token.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("revoked again: %v", err)
		}
	})
}

func TestAnIdentityStandsAsLongAsItsCredential(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, db *refdb.DB, c *Cache) {
		allow(t, db, "ci", Read, "p", All)
		now, err := db.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		expires := now.Add(time.Minute)
		i, err := c.Identify("ci", func(now time.Time) error {
			if now.Before(expires) {
				return nil
			}
			return ErrUnauthenticated
		})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the rule is known", func() bool { return i.May(Read, "p", "HEAD") == nil })
		if err := i.Err(); err != nil {
			t.Errorf("before the end: %v", err)
		}
		time.Sleep(time.Minute)
		if err := i.Err(); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("after the end: %v", err)
		}
		if err := i.May(Read, "p", "HEAD"); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("after the end, with a rule: %v", err)
		}
		if _, err := c.Identify("ci", func(time.Time) error { return ErrUnauthenticated }); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("with an invalid credential: %v", err)
		}
		if err := (Identity{Subject: "ci"}).Err(); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("without a credential: %v", err)
		}
	})
}

func TestTheDatabaseDoesNotHaveTheTextOfAToken(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, db *refdb.DB, _ *Cache) {
		text, token := newToken(t, db, "ci", time.Hour)
		if !strings.HasPrefix(text, "refdb_") || len(text) != len("refdb_")+43 {
			t.Errorf("the text has %d bytes", len(text))
		}
		secret := strings.TrimPrefix(text, TextPrefix)
		for change, err := range db.History(t.Context(), project, "") {
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(change.Ref+string(change.Old+change.New), secret) {
				t.Error("the history has it")
			}
			if change.Ref != tokenPrefix+token.ID {
				t.Errorf("the token is in %s", change.Ref)
			}
		}
		if again, _ := newToken(t, db, "ci", time.Hour); again == text {
			t.Error("two tokens are the same")
		}
	})
}

func TestMalformedAndUnknownTokensAreRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, db *refdb.DB, c *Cache) {
		text, token := newToken(t, db, "ci", time.Hour)
		eventually(t, "the token is known", func() bool { _, err := c.Authenticate(text); return err == nil })
		// The last digit has bits that do not count when it is decoded.
		last := text[:len(text)-1] + string(text[len(text)-1]+1)
		for _, wrong := range []string{
			"", "refdb_", token.ID, text + "A", text[1:], " " + text, strings.ToUpper(text), last,
			"refdb_" + strings.Repeat("A", 43), strings.Repeat("x", 1<<20),
		} {
			if _, err := c.Authenticate(wrong); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%.60q: %v", wrong, err)
			}
		}
	})
}

func TestRightsAreTheUnionOfRules(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, db *refdb.DB, c *Cache) {
		text, _ := newToken(t, db, "ci", time.Hour)
		other, _ := newToken(t, db, "other", time.Hour)
		allow(t, db, "ci", Read, "a/*", All)
		allow(t, db, "ci", Lock, "a/b", "refs/locks/*")
		allow(t, db, "ci", Write, "a/b", "refs/deployed/production")
		allow(t, db, "ci", Administer, "mine", All)
		last := allow(t, db, "ci", Write, "*", "refs/deployed/x")
		var ci, stranger Identity
		eventually(t, "the rules are known", func() bool {
			var err, err2 error
			ci, err = c.Authenticate(text)
			stranger, err2 = c.Authenticate(other)
			return err == nil && err2 == nil && ci.May(Write, "z", "refs/deployed/x") == nil
		})
		for _, row := range []struct {
			right   Right
			project string
			refs    []string
			allowed bool
		}{
			{Read, "a/b", []string{"refs/heads/main", "HEAD"}, true},
			{Read, "a/b/c", []string{"refs/heads/main"}, true},
			{Read, "a", []string{"refs/heads/main"}, false},
			{Read, "ab", []string{"refs/heads/main"}, false},
			{Lock, "a/b", []string{"refs/locks/deploy"}, true},
			{Lock, "a/b", []string{"refs/locks"}, false},
			{Lock, "a/b", []string{"refs/locks/deploy", "refs/heads/main"}, false},
			{Lock, "a/b", []string{"refs/deployed/production"}, false}, // write does not imply lock
			{Write, "a/b", []string{"refs/deployed/production", "refs/deployed/x"}, true},
			{Write, "a/b", []string{"refs/deployed/production2"}, false},
			{Write, "a/b", []string{"refs/locks/deploy"}, false}, // nor lock write
			{Administer, "a/b", []string{"refs/locks/deploy"}, false},
			{Read, "mine", []string{"HEAD"}, true},
			{Lock, "mine", []string{"HEAD"}, true},
			{Write, "mine", []string{"HEAD"}, true},
			{Administer, "mine", []string{"HEAD"}, true},
			{Read, "z", []string{"refs/deployed/x"}, true},
			{Read, "z", []string{"refs/heads/main"}, false},
			{Write, project, []string{"refs/deployed/x"}, false}, // the records themselves
			{Read, project, []string{"refs/deployed/x"}, false},
		} {
			if err := ci.May(row.right, row.project, row.refs...); (err == nil) != row.allowed || err != nil && !errors.Is(err, ErrDenied) {
				t.Errorf("%s %s %v: %v", row.right, row.project, row.refs, err)
			}
			if err := stranger.May(row.right, row.project, row.refs...); !errors.Is(err, ErrDenied) {
				t.Errorf("without rules: %s %s %v: %v", row.right, row.project, row.refs, err)
			}
		}
		if err := RemoveRule(t.Context(), db, last.ID); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the rule is removed", func() bool { return errors.Is(ci.May(Write, "z", "refs/deployed/x"), ErrDenied) })
		if err := RemoveRule(t.Context(), db, last.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("removed again: %v", err)
		}
	})
}

func TestSelectionsAreTheReadableRefsBelowAPrefix(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, db *refdb.DB, c *Cache) {
		text, _ := newToken(t, db, "ci", time.Hour)
		allow(t, db, "ci", Read, "p", "refs/b/*")
		allow(t, db, "ci", Lock, "p", "refs/b/inner/*")
		allow(t, db, "ci", Read, "p", "refs/b/one")
		allow(t, db, "ci", Read, "p", "refs/b/two")
		allow(t, db, "ci", Write, "p", "refs/a")
		allow(t, db, "ci", Read, "p", "refs/a")
		allow(t, db, "ci", Read, "all", All)
		var ci Identity
		eventually(t, "the rules are known", func() (ok bool) {
			var err error
			ci, err = c.Authenticate(text)
			return err == nil && ci.May(Read, "all", "HEAD") == nil
		})
		for _, row := range []struct {
			project, prefix string
			want            []Selection
		}{
			{"p", "", []Selection{{"refs/a", false}, {"refs/b/", true}}},
			{"p", "refs/b", []Selection{{"refs/b/", true}}},
			{"p", "refs/b/in", []Selection{{"refs/b/in", true}}},
			{"p", "refs/heads/", nil},
			{"all", "", []Selection{{"", true}}},
			{"all", "refs/he", []Selection{{"refs/he", true}}},
		} {
			if got, err := ci.Selected(Read, row.project, row.prefix); err != nil || !slices.Equal(got, row.want) {
				t.Errorf("%s %q: %v, %v", row.project, row.prefix, got, err)
			}
		}
		if _, err := ci.Selected(Read, "q", ""); !errors.Is(err, ErrDenied) {
			t.Errorf("another project: %v", err)
		}
	})
}

func TestInvalidRulesAreRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, db *refdb.DB, _ *Cache) {
		valid := Rule{Subject: "ci", Projects: "p", Refs: All, Right: Read}
		for what, change := range map[string]func(*Rule){
			"no subject":                 func(r *Rule) { r.Subject = "" },
			"a slash in the subject":     func(r *Rule) { r.Subject = "a/b" },
			"a line in the subject":      func(r *Rule) { r.Subject = "a\nb" },
			"a bidi override":            func(r *Rule) { r.Subject = "a\u202eb" },
			"a space at the end":         func(r *Rule) { r.Subject = "a " },
			"a long subject":             func(r *Rule) { r.Subject = strings.Repeat("a", 201) },
			"a slash before the colon":   func(r *Rule) { r.Subject = "a/b:c" },
			"no issuer":                  func(r *Rule) { r.Subject = ":a/b" },
			"no right":                   func(r *Rule) { r.Right = "" },
			"another right":              func(r *Rule) { r.Right = "force" },
			"no project":                 func(r *Rule) { r.Projects = "" },
			"a star inside of a project": func(r *Rule) { r.Projects = "a*b" },
			"all below nothing":          func(r *Rule) { r.Projects = "/*" },
			"no refs":                    func(r *Rule) { r.Refs = "" },
			"part of a name":             func(r *Rule) { r.Refs = "refs/heads/x*" },
			"a short name":               func(r *Rule) { r.Refs = "main" },
		} {
			r := valid
			change(&r)
			if _, _, err := AddRule(t.Context(), db, r); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for what, life := range map[string]time.Duration{"a second": time.Second, "a negative one": -time.Hour, "a century": 100 * 366 * 24 * time.Hour} {
			if _, _, err := CreateToken(t.Context(), db, "ci", life, ""); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("a life of %s: %v", what, err)
			}
		}
		first, added, err := AddRule(t.Context(), db, valid)
		if err != nil || !added {
			t.Fatal(added, err)
		}
		if again, added, err := AddRule(t.Context(), db, valid); err != nil || added || again.ID != first.ID {
			t.Errorf("again: %+v %v %v", again, added, err)
		}
	})
}

func TestRecordsOfALaterVersionAllowNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, db *refdb.DB, _ *Cache) {
		for ref, value := range map[string]refdb.Value{
			rulePrefix + "0011223344556677":           `{"subject":"ci","projects":"*","refs":"*","right":"administer"}`, // the ID is another
			rulePrefix + "1011223344556677":           `{"subject":"ci","projects":"*","refs":"*","right":"administer","from":"10.0.0.0/8"}`,
			tokenPrefix + strings.Repeat("a", 64):     `{"subject":"ci","expires":"2999-01-01T00:00:00Z","audience":"x"}`,
			tokenPrefix + strings.Repeat("b", 64):     `{`,
			recordPrefix + "issuers/" + "example.com": `{"subject":"ci"}`,
		} {
			if _, err := db.Put(t.Context(), project, ref, value); err != nil {
				t.Fatal(err)
			}
		}
		if all, err := ReadRecords(t.Context(), db); err != nil || len(all.Rules)+len(all.Tokens) != 0 || all.Unreadable != 5 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// down is a driver of a database that stops answering.
type down struct {
	driver.Driver
	is atomic.Bool
}

func (d *down) Tip(ctx context.Context, project string) (driver.Tip, error) {
	if d.is.Load() {
		return driver.Tip{}, driver.ErrUnavailable
	}
	return d.Driver.Tip(ctx, project)
}

func TestWithoutTheDatabaseNothingIsAllowedAfterAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &down{Driver: memory.New().Open()}
		db := open(t, d)
		text, _ := newToken(t, db, "ci", time.Hour)
		allow(t, db, "ci", Read, "p", All)
		c := NewCache(db, slog.New(slog.DiscardHandler))
		if _, err := c.Authenticate(text); !errors.Is(err, ErrStale) {
			t.Errorf("before the first read: %v", err)
		}
		go c.Run(t.Context())
		synctest.Wait()
		ci, err := c.Authenticate(text)
		if err != nil {
			t.Fatal(err)
		}
		d.is.Store(true)
		if err := ci.May(Read, "p", "HEAD"); err != nil {
			t.Errorf("at once: %v", err)
		}
		time.Sleep(ValidFor)
		if _, err := c.Authenticate(text); !errors.Is(err, ErrStale) {
			t.Errorf("after %s: %v", ValidFor, err)
		}
		if err := ci.May(Read, "p", "HEAD"); !errors.Is(err, ErrStale) {
			t.Errorf("after %s: %v", ValidFor, err)
		}
		if err := c.Ready(); !errors.Is(err, ErrStale) {
			t.Errorf("ready: %v", err)
		}
		d.is.Store(false)
		eventually(t, "it is read again", func() bool { return ci.May(Read, "p", "HEAD") == nil })
	})
}
