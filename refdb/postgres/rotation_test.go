package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
)

// An addressFile is a site's file with the address of the database.
type addressFile struct{ text atomic.Pointer[string] }

func (f *addressFile) write(text string) { f.text.Store(&text) }

func (f *addressFile) read(context.Context) (string, error) {
	if text := *f.text.Load(); text != "" {
		return text, nil
	}
	return "", errors.New("the file can't be read")
}

// A rotationBed is a server that requires passwords, with a driver whose user is named site.
type rotationBed struct {
	*testing.T
	server *testserver.Postgres
	file   addressFile
	driver *postgres.Driver
	log    string // the server's log file
}

func newRotationBed(t *testing.T) *rotationBed {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	s, err := testserver.StartPostgres(t.Context(), testserver.PostgresOptions{Durability: testserver.NoFsync, Password: "admin", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	b := &rotationBed{T: t, server: s, log: log}
	b.exec(`CREATE DATABASE refdb`, `CREATE DATABASE another`)
	for _, role := range []string{"site", "site_2"} {
		b.exec(`CREATE ROLE ` + role + ` SUPERUSER LOGIN PASSWORD 'one'`)
	}
	if err := schema.Up(t.Context(), s.URL("refdb")); err != nil {
		t.Fatal(err)
	}
	b.file.write(b.address("site", "one", "refdb"))
	b.driver = open(t, b.address("site", "one", "refdb"))
	b.driver.ReadAddress(b.file.read)
	return b
}

func (b *rotationBed) exec(sql ...string) {
	b.Helper()
	if err := b.server.Exec(b.Context(), "postgres", sql...); err != nil {
		b.Fatal(err)
	}
}

func (b *rotationBed) address(user, password, database string) string {
	u, err := url.Parse(b.server.URL(database))
	if err != nil {
		b.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// anew makes a request on new connections, and returns their user.
func (b *rotationBed) anew() (user string, err error) {
	b.Helper()
	b.exec(`SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename LIKE 'site%'`)
	err = b.driver.RoundTrip(b.Context(), func(rows pgx.Rows) error {
		rows.Next()
		return rows.Scan(&user)
	}, `SELECT session_user::text`)
	return user, err
}

func (b *rotationBed) connectsAs(want string) {
	b.Helper()
	if user, err := b.anew(); user != want || err != nil {
		b.Errorf("connected as %q, %v; want %q", user, err, want)
	}
}

func (b *rotationBed) rereadFails(says string) {
	b.Helper()
	_, err := b.driver.Reread(b.Context())
	wantLine(b.T, err, says)
}

// refusedLogins returns how many logins the server has refused. The server logs a refusal before it
// answers.
func (b *rotationBed) refusedLogins() int {
	b.Helper()
	text, err := os.ReadFile(b.log)
	if err != nil {
		b.Fatal(err)
	}
	return strings.Count(string(text), "password authentication failed")
}

func TestARefusedLoginIsNotRepeated(t *testing.T) {
	t.Parallel()
	b := newRotationBed(t)
	b.driver.SetLoginPause(time.Hour)
	fail := func(logins int, what string) {
		t.Helper()
		for range 10 {
			if _, err := b.anew(); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "the server refused the user or the password") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := b.refusedLogins(); n != logins {
			t.Errorf("%s: the server has refused %d logins, want %d", what, n, logins)
		}
	}
	b.exec(`ALTER ROLE site PASSWORD 'two'`)
	fail(1, "the role's password has changed")
	b.file.write(b.address("site", "three", "refdb"))
	fail(2, "the file has another wrong password")
	b.rereadFails("the server refused the user or the password")
	fail(3, "an operator has tried it")
	b.file.write(b.address("site", "two", "refdb"))
	b.connectsAs("site")
	b.exec(`ALTER ROLE site PASSWORD 'four'`)
	fail(4, "the role's password has changed again")
	b.exec(`ALTER ROLE site PASSWORD 'two'`)
	fail(4, "the pause continues")
	if _, err := b.driver.Reread(t.Context()); err != nil {
		t.Error(err)
	}
	b.connectsAs("site")
}

func TestARoleForAnotherSiteIsNotUsed(t *testing.T) {
	t.Parallel()
	b := newRotationBed(t)
	admin := func(sql ...string) {
		t.Helper()
		if err := b.server.Exec(t.Context(), "refdb", sql...); err != nil {
			t.Fatal(err)
		}
	}
	admin(`INSERT INTO site_roles (role, site) VALUES ('site', 'eu-1'), ('site_2', 'us-1')`)
	b.file.write(b.address("site_2", "one", "refdb"))
	b.connectsAs("site")
	b.rereadFails("the table site_roles maps the role site_2 to the site us-1, and maps the role site to the site eu-1: correct the address or the table")
	admin(`UPDATE site_roles SET site = 'eu-1' WHERE role = 'site_2'`, `ALTER ROLE site_2 NOSUPERUSER`)
	b.rereadFails("the role site_2 has fewer privileges than a site needs")
	b.connectsAs("site")
	admin(`ALTER ROLE site_2 SUPERUSER`)
	if read, err := b.driver.Reread(t.Context()); read.User != "site_2" || err != nil {
		t.Errorf("%+v, %v", read, err)
	}
	b.connectsAs("site_2")
}

func TestParametersThatNeedARestartAreNamed(t *testing.T) {
	t.Parallel()
	b := newRotationBed(t)
	for _, row := range []struct{ add, want string }{
		{"", ""},
		{"lock_timeout=1000&pool_max_conns=3", "lock_timeout pool_max_conns"},
	} {
		u, err := url.Parse(b.address("site", "one", "refdb"))
		if err != nil {
			t.Fatal(err)
		}
		if row.add != "" {
			u.RawQuery = strings.TrimPrefix(u.RawQuery+"&"+row.add, "&")
		}
		b.file.write(u.String())
		read, err := b.driver.Reread(t.Context())
		if got := strings.Join(read.Ignored, " "); got != row.want || err != nil {
			t.Errorf("%q: ignored %q, %v; want %q", row.add, got, err, row.want)
		}
	}
	u, err := url.Parse(b.address("site", "one", "refdb"))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("require_auth", "password") // the server uses SCRAM
	u.RawQuery = q.Encode()
	b.file.write(u.String())
	if _, err := b.driver.Reread(t.Context()); err == nil {
		t.Error("the new require_auth was not compared")
	}
	b.connectsAs("site")
}

func TestCredentialsChangeWhileADriverRuns(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		do   func(b *rotationBed)
	}{
		{"the file first, then the role: no connection fails", func(b *rotationBed) {
			b.file.write(b.address("site", "two", "refdb"))
			b.connectsAs("site")
			b.exec(`ALTER ROLE site PASSWORD 'two'`)
			b.connectsAs("site")
			b.file.write(b.address("site", "three", "refdb"))
			b.connectsAs("site")
			b.exec(`ALTER ROLE site PASSWORD 'three'`)
			b.connectsAs("site")
			if _, err := b.driver.Reread(b.Context()); err != nil {
				b.Error(err)
			}
		}},
		{"the role first, then the file", func(b *rotationBed) {
			b.exec(`ALTER ROLE site PASSWORD 'two'`)
			if _, err := b.anew(); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "the server refused the user or the password") {
				b.Errorf("with the earlier password: %v", err)
			}
			b.file.write(b.address("site", "two", "refdb"))
			b.connectsAs("site")
		}},
		{"another role", func(b *rotationBed) {
			b.file.write(b.address("site_2", "one", "refdb"))
			b.connectsAs("site_2")
			b.exec(`ALTER ROLE site NOLOGIN`)
			b.connectsAs("site_2")
		}},
		{"connections that are open stay", func(b *rotationBed) {
			b.file.write(b.address("site_2", "one", "refdb"))
			var user string
			err := b.driver.RoundTrip(b.Context(), func(rows pgx.Rows) error {
				rows.Next()
				return rows.Scan(&user)
			}, `SELECT session_user::text`)
			if user != "site" || err != nil {
				b.Errorf("the request went through a connection of %q, %v", user, err)
			}
		}},
		{"a file that can't be read", func(b *rotationBed) {
			b.file.write("")
			b.connectsAs("site")
			if _, err := b.driver.Reread(b.Context()); err == nil || !strings.Contains(err.Error(), "can't be read") {
				b.Error(err)
			}
		}},
		{"a file that is being written", func(b *rotationBed) {
			b.file.write("postg")
			b.connectsAs("site")
			if _, err := b.driver.Reread(b.Context()); !errors.Is(err, driver.ErrInvalid) {
				b.Error(err)
			}
		}},
		{"a wrong password", func(b *rotationBed) {
			b.file.write(b.address("site", secret, "refdb"))
			b.connectsAs("site")
			b.rereadFails("connect with the credentials in the address: the server refused the user or the password")
		}},
		{"another database", func(b *rotationBed) {
			b.file.write(b.address("site_2", "one", "another"))
			b.connectsAs("site")
			b.rereadFails("the address names another server or another database: restart the program")
		}},
		{"another server", func(b *rotationBed) {
			b.file.write("postgres://site_2:one@127.0.0.1:1/refdb")
			b.connectsAs("site")
			b.rereadFails("the address names another server or another database: restart the program")
		}},
		{"a waiter for a lock listens with the new credentials", func(b *rotationBed) {
			b.file.write(b.address("site_2", "one", "refdb"))
			ctx, stop := context.WithCancel(b.Context())
			defer stop()
			listens := make(chan struct{})
			ended := make(chan error, 1)
			go func() {
				ended <- b.driver.Listen(ctx, "x", func() { close(listens) }, func(driver.Wakeup) {})
			}()
			select {
			case <-listens:
				b.exec(`DO $$ BEGIN ASSERT (SELECT count(*) FROM pg_stat_activity WHERE usename = 'site_2' AND query LIKE 'LISTEN%') = 1; END $$`)
				stop()
				<-ended
			case err := <-ended:
				b.Errorf("the waiter does not listen: %v", err)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.do(newRotationBed(t))
		})
	}
}
