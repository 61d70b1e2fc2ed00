package local

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/test/dbtest/internal/testdb"
)

// A youngerServer is a second PostgreSQL server, whose cluster has begun few transactions. Autovacuum looks for work every second.
type youngerServer struct {
	*postgresServer
	program *testserver.Postgres
}

var theYounger = sync.OnceValues(func() (*youngerServer, error) {
	p, err := testserver.StartPostgres(context.Background(), testserver.PostgresOptions{
		Parent: inMemory(), Durability: testserver.NoFsync, Settings: []string{"autovacuum_naptime=1s", "log_line_prefix=" + logPrefix},
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
	return &youngerServer{s, p}, nil
})

// youth is how many transactions the younger server is behind. A restore takes some hundred.
const youth = 50_000

// OlderPostgres returns a database as [Postgres] does, on a server that has begun many more transactions than the one to
// which [RestoreIntoYounger] restores.
func OlderPostgres(tb testing.TB) *Database {
	tb.Helper()
	db := Postgres(tb)
	younger, err := theYounger()
	if err != nil {
		tb.Fatal(err)
	}
	var there, here int64
	if err := younger.do(func(ctx context.Context, c *pgx.Conn) error { return c.QueryRow(ctx, begun).Scan(&there) }); err != nil {
		tb.Fatal(err)
	}
	c := connect(tb, db)
	if err := c.QueryRow(testdb.Within(tb), begun).Scan(&here); err != nil {
		tb.Fatal(err)
	}
	begin(tb, c, there+youth-here)
	return db
}

const begun = `SELECT pg_current_xact_id()::text::bigint`

// BeginTransactions has the server of a PostgreSQL database begin n transactions that change nothing.
func BeginTransactions(tb testing.TB, db *Database, n int64) {
	tb.Helper()
	begin(tb, connect(tb, db), n)
}

func begin(tb testing.TB, c *pgx.Conn, n int64) {
	tb.Helper()
	if _, err := c.Exec(testdb.Within(tb), `SELECT set_config('test.n', $1::bigint::text, false)`, max(n, 0)); err != nil {
		tb.Fatal(err)
	}
	const loop = `DO $$ BEGIN FOR i IN 1..current_setting('test.n')::bigint LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`
	if _, err := c.Exec(testdb.Within(tb), loop, pgx.QueryExecModeSimpleProtocol); err != nil {
		tb.Fatal(err)
	}
}

// connect opens a connection, which is closed at the test's end.
func connect(tb testing.TB, db *Database) *pgx.Conn {
	tb.Helper()
	c, err := pgx.Connect(testdb.Within(tb), db.URL())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close(context.WithoutCancel(tb.Context())) })
	return c
}

// RestoreIntoYounger dumps a PostgreSQL database, with pg_dump, and restores it into a new one of the younger server, with pg_restore.
func RestoreIntoYounger(tb testing.TB, db *Database) *Database {
	tb.Helper()
	s, err := theYounger()
	if err != nil {
		tb.Fatal(err)
	}
	restored := s.newDatabase(tb, "template1")
	dump := filepath.Join(s.program.Dir(), testdb.UniqueName("dump"))
	if err := s.program.Run(testdb.Within(tb), "pg_dump", "-Fc", "-f", dump, "-d", db.URL()); err != nil {
		tb.Fatal(err)
	}
	if err := s.program.Run(testdb.Within(tb), "pg_restore", "-d", restored.URL(), dump); err != nil {
		tb.Fatal(err)
	}
	return restored
}
