//go:build linux

package sites

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
)

// A guardedPostgres is a PostgreSQL that asks for passwords. The sites' role has the password "one".
type guardedPostgres struct{ *postgresServer }

func newGuardedPostgres(t *testing.T) guardedPostgres {
	t.Helper()
	db := guardedPostgres{startPostgres(t, testserver.PostgresOptions{Durability: testserver.NoFsync, Password: "admin"})}
	db.execute(`CREATE ROLE refdb_site LOGIN PASSWORD 'one'`, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO refdb_site`)
	return db
}

// address returns the sites' URL. Their connections live for a second.
func (db guardedPostgres) address(password string) string {
	db.t.Helper()
	u, err := url.Parse(db.URL())
	if err != nil {
		db.t.Fatal(err)
	}
	u.User = url.UserPassword("refdb_site", password)
	return u.String() + "&pool_max_conn_lifetime=1s&pool_health_check_period=1s"
}

// addressOf is the address of one program, by whose name the server knows its connections.
func (db guardedPostgres) addressOf(program, password string) string {
	db.t.Helper()
	return db.address(password) + "&application_name=" + program
}

func (db guardedPostgres) execute(sql ...string) {
	db.t.Helper()
	if err := db.Exec(db.t.Context(), "refdb", sql...); err != nil {
		db.t.Fatal(err)
	}
}

// The password of the sites' role changes, as docs/OPERATIONS.md says: first in the sites' files, then at the server.
// Meanwhile both sites push, and a reader reads over HTTP. Connections live for a second, so that all of them are made
// again.
func TestAPasswordChangesWhilePushesRun(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		db := newGuardedPostgres(t)
		c := newCluster(t, g, design{database: func(testing.TB) database { return db }, inFile: true,
			projects: []string{project, "quiet"}, // whoever reads what nobody pushes to waits for no site
			url:      func(site string, _ database) string { return db.addressOf(site, "one") }})
		file := filepath.Join(shortDir(t), "database")
		write := func(password string) {
			t.Helper()
			for _, s := range []*server{c.eu, c.us} {
				s.writeURL(db.addressOf(s.name, password))
			}
			if err := os.WriteFile(file, []byte(db.addressOf("http", password)+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("one")
		front := c.eu.http("--database-file", file)

		stop := make(chan struct{})
		var work sync.WaitGroup
		var done [3]atomic.Int64
		repeat := func(n int, do func(round int) error) {
			work.Go(func() {
				for round := 0; ; round++ {
					select {
					case <-stop:
						return
					default:
					}
					if err := do(round); err != nil {
						t.Error(err)
						return
					}
					done[n].Add(1)
				}
			})
		}
		defer work.Wait()
		defer sync.OnceFunc(func() { close(stop) })()
		values := []string{c.h.a, c.h.b}
		for n, s := range []*server{c.eu, c.us} {
			repeat(n, func(round int) error {
				if p := s.push("--force", values[round%2]+":refs/heads/"+s.name); !p.ok {
					return fmt.Errorf("a push to %s was refused: %+v", s.name, p)
				}
				return nil
			})
		}
		repeat(2, func(int) error {
			r, err := http.Get(front.url + "/quiet.git/info/refs?service=git-upload-pack")
			if err != nil {
				return err
			}
			defer r.Body.Close()
			if r.StatusCode != http.StatusOK {
				return fmt.Errorf("a reader got %s", r.Status)
			}
			return nil
		})

		for _, password := range []string{"two", "three"} {
			write(password)
			renewed(t, db.postgresServer, "eu", "us", "http")
			db.execute(`ALTER ROLE refdb_site PASSWORD '` + password + `'`)
			renewed(t, db.postgresServer, "eu", "us", "http")
		}
		for _, p := range []*child{c.eu.daemon, c.us.daemon, front.process} {
			signal(t, p.Process.Pid, syscall.SIGHUP)
			eventually(t, "the new address in use", func() error {
				if !strings.Contains(p.out.String(), "the database's address was read again: new connections are made as it says") {
					return errPending
				}
				return nil
			})
		}
		c.eu.writeURL(db.addressOf("eu", "wrong"))
		signal(t, c.eu.daemon.Process.Pid, syscall.SIGHUP)
		eventually(t, "a complaint", func() error {
			if !strings.Contains(c.eu.daemon.out.String(), "is not used: connections are made as before") {
				return errPending
			}
			return nil
		})
		renewed(t, db.postgresServer, "eu")
		t.Logf("%d and %d pushes, %d reads", done[0].Load(), done[1].Load(), done[2].Load())
		for _, p := range []*child{c.eu.daemon, front.process} {
			for _, password := range []string{"one", "two", "three", "wrong"} {
				if strings.Contains(p.out.String(), ":"+password+"@") {
					t.Errorf("a log has the password %s", password)
				}
			}
		}
	})
}

// The daemon and site http start, and wait. Meanwhile the password changes.
func TestADatabaseThatIsNotThereAtTheStartIsWaitedFor(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		db := newGuardedPostgres(t)
		c := newCluster(t, g, design{database: func(testing.TB) database { return db }, inFile: true, limits: usualLimits,
			url: func(string, database) string { return db.address("one") }})
		c.eu.pushed(c.h.a + ":refs/heads/x")
		db.execute(`ALTER ROLE refdb_site PASSWORD 'two'`)
		c.eu.stop()
		if err := db.Stop(); err != nil {
			t.Fatal(err)
		}
		c.eu.start() // systemd is told that it is ready
		front := c.eu.http()
		c.eu.impatient(time.Second).refused("waiting for the global ref database", c.h.b+":refs/heads/x")
		read := func() int {
			t.Helper()
			r, err := http.Get(front.repoURL() + "/info/refs?service=git-upload-pack")
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			return r.StatusCode
		}
		if status := read(); status != http.StatusServiceUnavailable {
			t.Errorf("a reader got %d", status)
		}
		for _, p := range []*child{c.eu.daemon, front.process} {
			eventually(t, "a log of what is waited for", func() error {
				if !strings.Contains(p.out.String(), "the database can't be opened; trying again") {
					return errPending
				}
				return nil
			})
		}
		for _, s := range []*server{c.eu, c.us} {
			s.writeURL(db.address("two"))
		}
		db.start()
		c.eu.soon(c.h.b + ":refs/heads/x")
		eventually(t, "a reader that is served", func() error {
			if status := read(); status != http.StatusOK {
				return fmt.Errorf("status %d", status)
			}
			return nil
		})
	})
}

// renewed waits until all connections of the programs were made after this call, and each has made some: a program whose last
// connection has ended, and whose next one is slow to come, has seen nothing of what was changed before the call.
func renewed(t *testing.T, db *postgresServer, programs ...string) {
	t.Helper()
	var now time.Time
	ask := func(sql string, to any, args ...any) {
		t.Helper()
		if err := db.Connect(t.Context(), "refdb", func(c *pgx.Conn) error {
			return c.QueryRow(context.WithoutCancel(t.Context()), sql, args...).Scan(to)
		}); err != nil {
			t.Fatal(err)
		}
	}
	ask(`SELECT clock_timestamp()`, &now)
	eventually(t, "new connections", func() error {
		var all bool
		// One that listens, should a push have waited for a lock, belongs to no pool and lives on.
		ask(`SELECT count(DISTINCT application_name) = cardinality($2::text[]) AND bool_and(backend_start > $1) FROM pg_stat_activity
			WHERE application_name = ANY ($2) AND query NOT LIKE 'LISTEN%' AND query NOT LIKE '-- ping%'`, &all, now, programs)
		if !all {
			return errors.New("there are earlier ones")
		}
		return nil
	})
}
