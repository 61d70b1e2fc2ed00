package local

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/test/dbtest/internal/testdb"
)

// PgBouncer starts a PgBouncer in transaction mode in front of the PostgreSQL
// database at address, and returns the address through it. It is stopped at the
// test's end.
func PgBouncer(tb testing.TB, address string) string {
	tb.Helper()
	p, err := testserver.StartPgBouncer(testdb.Within(tb), address)
	if err != nil {
		tb.Fatalf("PgBouncer: %v", err)
	}
	tb.Cleanup(func() { testdb.Stop(p) })
	return p.URL
}
