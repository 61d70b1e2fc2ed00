package dbtest

import (
	"slices"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

// A PostgresServer is a PostgreSQL of one test's own, which may crash.
type PostgresServer struct {
	*testserver.Postgres
	tb testing.TB
}

// StartPostgres starts a server with a migrated, empty database.
func StartPostgres(tb testing.TB) *PostgresServer {
	tb.Helper()
	// Commits of autovacuum would put the IDs of others on the disk.
	s, err := testserver.StartPostgres(tb.Context(), testserver.PostgresOptions{Durability: testserver.NoFsync, Settings: []string{"autovacuum=off"}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Error(err)
		}
	})
	own := &PostgresServer{s, tb}
	err = s.Exec(tb.Context(), "postgres", "CREATE DATABASE refdb")
	if err == nil {
		err = schema.Up(tb.Context(), own.URL())
	}
	if err != nil {
		tb.Fatal(err)
	}
	return own
}

// URL returns the address of the server's database.
func (s *PostgresServer) URL() string { return s.Postgres.URL("refdb") }

// ReuseIDs makes the server use IDs twice: see [testserver.Postgres.ReuseIDs].
func (s *PostgresServer) ReuseIDs(n int, meanwhile func()) {
	s.tb.Helper()
	if err := s.Postgres.ReuseIDs(s.tb.Context(), n, meanwhile); err != nil {
		s.tb.Fatal(err)
	}
}

// UseIDs uses IDs in another database.
func (s *PostgresServer) UseIDs(n int) {
	s.tb.Helper()
	if err := s.Exec(s.tb.Context(), "postgres", slices.Repeat([]string{"SELECT pg_current_xact_id()"}, n)...); err != nil {
		s.tb.Fatal(err)
	}
}
