package dbtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

// postgresVariable names an address, as a superuser or with CREATEDB, on whose
// server databases are created.
const postgresVariable = "REFDB_TEST_POSTGRES"

// A postgresServer creates databases.
type postgresServer struct {
	admin *url.URL // of a database that is there already
	// template returns a migrated database, which nobody is connected to.
	template func() (string, error)
}

var thePostgres = sync.OnceValues(findPostgres)

// Postgres returns a new migrated database on the package's PostgreSQL server.
// It is dropped at the test's end.
func Postgres(tb testing.TB) *Database {
	tb.Helper()
	s, err := thePostgres()
	if err != nil {
		tb.Fatal(err)
	}
	template, err := s.template()
	if err != nil {
		tb.Fatalf("prepare a PostgreSQL database: %v", err)
	}
	return s.newDatabase(tb, template)
}

// PostgresEmpty returns the address of a new database without a schema. It is
// dropped at the test's end.
func PostgresEmpty(tb testing.TB) string {
	tb.Helper()
	return emptyPostgres(tb).URL()
}

func emptyPostgres(tb testing.TB) *Database {
	tb.Helper()
	s, err := thePostgres()
	if err != nil {
		tb.Fatal(err)
	}
	return s.newDatabase(tb, "template1")
}

func (s *postgresServer) newDatabase(tb testing.TB, template string) *Database {
	tb.Helper()
	name := uniqueName("test")
	if err := s.create(within(tb), name, template); err != nil {
		tb.Fatalf("create a PostgreSQL database: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.drop(name); err != nil {
			tb.Errorf("drop a PostgreSQL database: %v", err)
		}
	})
	address := s.address(name)
	pool, err := pgxpool.New(within(tb), address)
	if err != nil {
		tb.Fatalf("connect to a new PostgreSQL database: %v", err)
	}
	return newDatabase(tb, postgresKind(), address, postgresRows{pool})
}

func findPostgres() (*postgresServer, error) {
	if address := os.Getenv(postgresVariable); address != "" {
		return connectPostgres(address, postgresVariable)
	}
	bin, err := postgresBin()
	if err != nil {
		return containerPostgres(err)
	}
	return startPostgres(bin)
}

// connectPostgres uses the server at address; where says what it is.
func connectPostgres(address, where string) (*postgresServer, error) {
	admin, err := url.Parse(address)
	if err != nil || admin.Scheme != "postgres" && admin.Scheme != "postgresql" {
		return nil, fmt.Errorf("%s is no address such as postgres://user@host/database", where)
	}
	s := &postgresServer{admin: admin}
	s.template = sync.OnceValues(s.newTemplate)
	var version string
	if err := s.do(func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "SHOW server_version").Scan(&version)
	}); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", where, err)
	}
	served("PostgreSQL %s (%s)", version, where)
	return s, nil
}

// startPostgres starts a server from the binaries in the directory bin.
func startPostgres(bin string) (*postgresServer, error) {
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := serverDir(as)
	if err != nil {
		return nil, err
	}
	// The shell becomes the server, so that the signal reaches it.
	// fsync is off because no test ends with a crash of the machine: what a
	// server that is killed must keep, it keeps. Commits wait and order as ever.
	const run = `
"$1/initdb" --pgdata "$2/data" --username postgres --auth trust --encoding UTF8 --no-locale --no-sync &&
exec "$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c max_connections=300 -c fsync=off`
	// SIGQUIT: at once, there is nothing to save.
	p, err := start(dir, "QUIT", as, "/bin/sh", "-c", run, "postgres", bin, dir)
	if err != nil {
		return nil, err
	}
	p.name = filepath.Join(bin, "postgres")
	started.add(p)

	address := url.URL{Scheme: "postgres", Path: "/postgres",
		RawQuery: url.Values{"host": {dir}, "user": {"postgres"}}.Encode()}
	err = p.until(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		c, err := pgx.Connect(ctx, address.String())
		if err != nil {
			return err
		}
		return c.Close(ctx)
	})
	if err != nil {
		return nil, err
	}
	return connectPostgres(address.String(), bin)
}

// postgresBin returns the directory of initdb and postgres.
func postgresBin() (string, error) {
	var dirs []string
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	debian, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	slices.SortFunc(debian, func(a, b string) int { return majorVersion(b) - majorVersion(a) })
	dirs = append(dirs, debian...)
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, dir := range dirs {
		if executable(filepath.Join(dir, "initdb")) && executable(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no PostgreSQL: install it (`make deps`), or set %s to the address of a server", postgresVariable)
}

func majorVersion(bin string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	if err != nil {
		return 0
	}
	return n
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// address returns the address of a database on the server.
func (s *postgresServer) address(name string) string {
	u := *s.admin
	u.Path = "/" + name
	return u.String()
}

func (s *postgresServer) newTemplate() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	name := uniqueName("template")
	if err := s.create(ctx, name, "template1"); err != nil {
		return "", err
	}
	started.add(stopFunc(func() { _ = s.drop(name) }))
	return name, schema.Up(ctx, s.address(name))
}

func (s *postgresServer) create(ctx context.Context, name, template string) error {
	return s.do(func(_ context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE "+pgx.Identifier{template}.Sanitize())
		return err
	})
}

func (s *postgresServer) drop(name string) error {
	return s.do(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
		return err
	})
}

// do connects for one use: an idle connection would look like a leak.
func (s *postgresServer) do(f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := pgx.Connect(ctx, s.admin.String())
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	return f(ctx, c)
}
