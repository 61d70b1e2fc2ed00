package main

import (
	"context"
	"net/url"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

const postgresDatabase = "refdb"

// A postgresServer is a PostgreSQL of our own.
type postgresServer struct {
	*testserver.Postgres
}

// newPostgres prepares a server in a new directory; it neither makes a database nor starts it.
func newPostgres(dir string, environment ...string) (*postgresServer, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	s, err := testserver.NewPostgres(testserver.PostgresOptions{
		Dir: dir, Network: testserver.Loopback, Settings: []string{"max_connections=200"}, Environment: environment, Log: dir + ".log",
	})
	return &postgresServer{s}, err
}

// create starts the server and makes an empty, migrated database.
func (s *postgresServer) create(ctx context.Context) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	if err := s.Exec(ctx, "postgres", "CREATE DATABASE "+postgresDatabase); err != nil {
		return err
	}
	return schema.Up(ctx, s.url())
}

// count returns the number that a query of refdb's database answers.
func (s *postgresServer) count(ctx context.Context, sql string) (n int, err error) {
	err = s.Connect(ctx, postgresDatabase, func(c *pgx.Conn) error { return c.QueryRow(ctx, sql).Scan(&n) })
	return n, err
}

func (s *postgresServer) url() string { return postgresURL(s.Address(), postgresDatabase) }

// postgresURL is the address of a database on a server, or one of several: host:port,host:port.
func postgresURL(servers, database string, parameters ...string) string {
	q := url.Values{"sslmode": {"disable"}, "application_name": {"supervisor"}}
	for i := 0; i+1 < len(parameters); i += 2 {
		q.Set(parameters[i], parameters[i+1])
	}
	return "postgres://postgres@" + servers + "/" + database + "?" + q.Encode()
}
