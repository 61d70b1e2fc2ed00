package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
)

// An addressFile is what a site's file with the address holds.
type addressFile struct{ text atomic.Pointer[string] }

func (f *addressFile) write(text string) { f.text.Store(&text) }

func (f *addressFile) read() (string, error) {
	if text := *f.text.Load(); text != "" {
		return text, nil
	}
	return "", errors.New("the file can't be read")
}

// A rotationBed is a server that asks for passwords, with a driver whose user is called site.
type rotationBed struct {
	*testing.T
	server *testserver.Postgres
	file   addressFile
	driver *postgres.Driver
}

func newRotationBed(t *testing.T) *rotationBed {
	t.Helper()
	s, err := testserver.StartPostgres(t.Context(), testserver.PostgresOptions{Durability: testserver.NoFsync, Password: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	b := &rotationBed{T: t, server: s}
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

// anew makes a request on new connections, and returns as whom.
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
			if err := b.driver.Reread(b.Context()); err != nil {
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
			if err := b.driver.Reread(b.Context()); err == nil || !strings.Contains(err.Error(), "can't be read") {
				b.Error(err)
			}
		}},
		{"a file that is being written", func(b *rotationBed) {
			b.file.write("postg")
			b.connectsAs("site")
			if err := b.driver.Reread(b.Context()); !errors.Is(err, driver.ErrInvalid) {
				b.Error(err)
			}
		}},
		{"a wrong password", func(b *rotationBed) {
			b.file.write(b.address("site", secret, "refdb"))
			b.connectsAs("site")
			wantLine(b.T, b.driver.Reread(b.Context()), "connect as the address says now: the server refused the user or the password")
		}},
		{"another database", func(b *rotationBed) {
			b.file.write(b.address("site_2", "one", "another"))
			b.connectsAs("site")
			wantLine(b.T, b.driver.Reread(b.Context()), "the address names another server or another database: restart the program")
		}},
		{"another server", func(b *rotationBed) {
			b.file.write("postgres://site_2:one@127.0.0.1:1/refdb")
			b.connectsAs("site")
			wantLine(b.T, b.driver.Reread(b.Context()), "the address names another server or another database: restart the program")
		}},
		{"who waits for a lock listens with them", func(b *rotationBed) {
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
				b.Errorf("it does not listen: %v", err)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.do(newRotationBed(t))
		})
	}
}
