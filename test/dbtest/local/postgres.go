package local

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest/internal/testdb"
)

// postgresVariable names an address, as a superuser or with CREATEDB, on whose
// server databases are created.
const postgresVariable = "REFDB_TEST_POSTGRES"

// A postgresServer creates databases.
type postgresServer struct {
	admin    *url.URL // of a database that exists already
	strategy string   // of CREATE DATABASE
	// template returns a migrated database, which nobody is connected to.
	template func() (string, error)
	log      testdb.ServerLog // nil if it is unknown

	mu   sync.Mutex
	idle []*pgx.Conn // to admin; they have no goroutines, which would look like leaks
}

var thePostgres = sync.OnceValues(findPostgres)

// PostgresKind is that of the databases on PostgreSQL.
func PostgresKind() Kind {
	return Kind{Dialect: migrations.Postgres, New: Postgres, Empty: emptyPostgres, Driver: func(ctx context.Context, url string) (refdb.Driver, error) {
		return postgres.Open(ctx, url)
	}}
}

// Postgres returns a new migrated database on the package's PostgreSQL server.
// It is dropped at the test's end.
func Postgres(tb testing.TB) *testdb.Database {
	tb.Helper()
	s, err := thePostgres()
	if err != nil {
		testdb.ExplainFailure(tb, nil, testdb.EveryLine)
		tb.Fatal(err)
	}
	template, err := s.template()
	if err != nil {
		testdb.ExplainFailure(tb, s.log, testdb.EveryLine)
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

func emptyPostgres(tb testing.TB) *testdb.Database {
	tb.Helper()
	s, err := thePostgres()
	if err != nil {
		testdb.ExplainFailure(tb, nil, testdb.EveryLine)
		tb.Fatal(err)
	}
	return s.newDatabase(tb, "template1")
}

func (s *postgresServer) newDatabase(tb testing.TB, template string) *testdb.Database {
	tb.Helper()
	name := testdb.UniqueName("test")
	testdb.ExplainFailure(tb, s.log, aboutDatabase(name))
	if err := s.create(testdb.Within(tb), name, template); err != nil {
		tb.Fatalf("create a PostgreSQL database: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.drop(name); err != nil {
			tb.Errorf("drop a PostgreSQL database: %v", err)
		}
	})
	address := s.address(name)
	pool, err := pgxpool.New(testdb.Within(tb), address)
	if err != nil {
		tb.Fatalf("connect to a new PostgreSQL database: %v", err)
	}
	return testdb.New(tb, PostgresKind(), address, postgresRows{pool})
}

func findPostgres() (*postgresServer, error) {
	if address := os.Getenv(postgresVariable); address != "" {
		return connectPostgres(address, postgresVariable)
	}
	s, err := startPostgres()
	var missing testserver.NotInstalledError
	if errors.As(err, &missing) {
		return containerPostgres(fmt.Errorf("%w, or set %s to the address of a server", err, postgresVariable))
	}
	return s, err
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
	var number int
	if err := s.do(func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT current_setting('server_version'), current_setting('server_version_num')::int").Scan(&version, &number)
	}); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", where, err)
	}
	if number >= 150_000 {
		s.strategy = " STRATEGY FILE_COPY" // the only one before, and cheaper where files are in memory
	}
	testdb.Served("PostgreSQL %s (%s)", version, where)
	return s, nil
}

func startPostgres() (*postgresServer, error) {
	// Without fsync, because no test ends with a crash of the machine.
	p, err := testserver.StartPostgres(context.Background(), testserver.PostgresOptions{
		Parent: inMemory(), Durability: testserver.NoFsync,
		Settings: []string{"max_connections=1000", "max_wal_size=256MB", "log_lock_waits=on", "log_line_prefix=" + logPrefix},
	})
	if err != nil {
		return nil, err
	}
	testdb.StopAtEnd(p)
	s, err := connectPostgres(p.URL("postgres"), p.Program())
	if err != nil {
		return nil, err
	}
	s.log = p
	return s, nil
}

// inMemory returns a directory whose files are in memory, if this machine has one with
// room to spare, or "". A PostgreSQL database is 300 files: on a disk, most of the time of creating and
// dropping one is the file system's. A SQLite file is synchronized with the disk at each commit.
func inMemory() string {
	const dir, room = "/dev/shm", 4 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || uint64(fs.Bavail)*uint64(fs.Bsize) < room {
		return ""
	}
	return dir
}

// address returns the address of a database on the server.
func (s *postgresServer) address(name string) string {
	u := *s.admin
	u.Path = "/" + name
	return u.String()
}

func (s *postgresServer) newTemplate() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testdb.Timeout)
	defer cancel()
	name := testdb.UniqueName("template")
	if err := s.create(ctx, name, "template1"); err != nil {
		return "", err
	}
	testdb.StopAtEnd(testdb.StopFunc(func() error { return s.drop(name) }))
	m, err := postgres.Migrator(ctx, s.address(name))
	return name, testdb.Up(ctx, m, err)
}

func (s *postgresServer) create(ctx context.Context, name, template string) error {
	return s.do(func(_ context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE "+pgx.Identifier{template}.Sanitize()+s.strategy)
		return err
	})
}

func (s *postgresServer) drop(name string) error {
	return s.do(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
		return err
	})
}

func (s *postgresServer) takeIdle() (c *pgx.Conn, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.idle) - 1
	if last < 0 {
		return nil, false
	}
	c, s.idle = s.idle[last], s.idle[:last]
	return c, true
}

// do has f use a connection to admin. Those that are idle at the end of the process end with it.
func (s *postgresServer) do(f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), testdb.Timeout)
	defer cancel()
	for {
		c, used := s.takeIdle()
		if !used {
			var err error
			if c, err = pgx.Connect(ctx, s.admin.String()); err != nil {
				return err
			}
		}
		err := f(ctx, c)
		if err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.idle = append(s.idle, c)
			return nil
		}
		c.Close(ctx)
		if !used || !pgconn.SafeToRetry(err) { // a test may have ended it
			return err
		}
	}
}
