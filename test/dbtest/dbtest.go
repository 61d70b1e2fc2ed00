// Package dbtest hands a test a real database: empty, migrated and its own. It
// starts one server of a kind for the whole test binary when the first test
// asks for it, and stops it at the end by its process ID, also if the binary
// is killed. On PostgreSQL and Spanner a test's database is cloned from a migrated
// template. Tests run in parallel.
//
// A server is, in this order:
//
//   - the one that the environment names (REFDB_TEST_POSTGRES,
//     SPANNER_EMULATOR_HOST);
//   - one that internal/testserver starts from a local installation, in a
//     temporary directory; of PostgreSQL's installations, the one in the directory that
//     REFDB_TEST_POSTGRES_BIN names;
//   - a container, run by docker or podman.
//
// The log says which one it is. A test that fails logs what its server printed meanwhile, and
// how busy the machine is. If there is no server the test fails, rather than
// being skipped, and says what to install.
package dbtest

import (
	"context"
	"testing"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/test/dbtest/internal/testdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// A Database belongs to one test. It opens drivers, and does what drivers can't:
// it lets time pass, writes as Gerrit's plugin does, and reads a single row.
type Database = testdb.Database

// A Kind is one of the databases that refdb runs on.
type Kind = testdb.Kind

// Main runs the tests of a package and stops the servers that they started:
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
func Main(m *testing.M) { local.Main(m) }

// Stop stops the servers that were started. It is for a TestMain that does
// more than [Main].
func Stop() { testdb.StopAll() }

// All returns every kind, for a test that holds on each of them.
func All() []Kind {
	return []Kind{local.PostgresKind(), spannerKind(), local.SQLiteKind()}
}

func spannerKind() Kind {
	return Kind{Dialect: migrations.Spanner, New: Spanner, Empty: emptySpanner, Driver: func(ctx context.Context, url string) (refdb.Driver, error) {
		return spanner.Open(ctx, url)
	}}
}

// Postgres returns a new migrated database on the package's PostgreSQL server.
// It is dropped at the test's end.
func Postgres(tb testing.TB) *Database {
	tb.Helper()
	return local.Postgres(tb)
}

// PostgresEmpty returns the address of a new database without a schema. It is
// dropped at the test's end.
func PostgresEmpty(tb testing.TB) string {
	tb.Helper()
	return local.PostgresEmpty(tb)
}

// OlderPostgres returns a database as [Postgres] does, on a server that has begun many more transactions than the one to
// which [RestoreIntoYounger] restores.
func OlderPostgres(tb testing.TB) *Database {
	tb.Helper()
	return local.OlderPostgres(tb)
}

// BeginTransactions has the server of a PostgreSQL database begin n transactions that change nothing.
func BeginTransactions(tb testing.TB, db *Database, n int64) {
	tb.Helper()
	local.BeginTransactions(tb, db, n)
}

// RestoreIntoYounger dumps a PostgreSQL database, with pg_dump, and restores it into a new one of the younger server, with pg_restore.
func RestoreIntoYounger(tb testing.TB, db *Database) *Database {
	tb.Helper()
	return local.RestoreIntoYounger(tb, db)
}

// PgBouncer starts a PgBouncer in transaction mode in front of the PostgreSQL
// database at address, and returns the address through it. It is stopped at the
// test's end.
func PgBouncer(tb testing.TB, address string) string {
	tb.Helper()
	return local.PgBouncer(tb, address)
}

// SQLite returns a new migrated database file, which goes with the test.
func SQLite(tb testing.TB) *Database {
	tb.Helper()
	return local.SQLite(tb)
}

// SQLiteEmpty returns the address of a file that isn't there yet.
func SQLiteEmpty(tb testing.TB) string {
	tb.Helper()
	return local.SQLiteEmpty(tb)
}

// Grants returns the statements of docs/OPERATIONS.md that grant something to a role.
func Grants(tb testing.TB, role string) []string {
	tb.Helper()
	return testdb.Grants(tb, role)
}
