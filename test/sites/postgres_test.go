//go:build linux

package sites

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
)

// A postgresServer is a PostgreSQL of one test's own, which may be killed.
type postgresServer struct {
	*testserver.Postgres
	t testing.TB
}

func newPostgres(t testing.TB) *postgresServer {
	t.Helper()
	return startPostgres(t, testserver.PostgresOptions{Durability: testserver.NoFsync})
}

// startPostgres starts a server with options, in a directory of its own.
func startPostgres(t testing.TB, o testserver.PostgresOptions) *postgresServer {
	t.Helper()
	o.Dir = shortDir(t)
	shared, err := work()
	if err := errors.Join(err, os.Chmod(shared, 0o711)); err != nil { // for the server's account
		t.Fatal(err)
	}
	p, err := testserver.StartPostgres(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s := &postgresServer{p, t}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.migrate()
	return s
}

// start starts the server again and waits until it answers.
func (s *postgresServer) start() {
	s.t.Helper()
	if err := s.Start(context.WithoutCancel(s.t.Context())); err != nil {
		s.t.Fatal(err)
	}
}

// crash kills the server with all of its processes, and waits for their end.
func (s *postgresServer) crash() {
	s.t.Helper()
	if err := s.Kill(); err != nil {
		s.t.Fatal(err)
	}
}

// URL returns the address of the server's database.
func (s *postgresServer) URL() string { return s.Postgres.URL("refdb") }

// Open opens it.
func (s *postgresServer) Open(t testing.TB) refdb.Driver {
	t.Helper()
	d, err := postgres.Open(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// migrate makes the database.
func (s *postgresServer) migrate() {
	s.t.Helper()
	if err := s.Exec(s.t.Context(), "postgres", "CREATE DATABASE refdb"); err != nil {
		s.t.Fatal(err)
	}
	m, err := postgres.Migrator(s.t.Context(), s.URL())
	if err != nil {
		s.t.Fatal(err)
	}
	if err := errors.Join(m.Up(s.t.Context()), m.Close()); err != nil {
		s.t.Fatal(err)
	}
}
