package main

import (
	"context"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

const postgresDatabase = "refdb"

// siteConnections counts the sites' connections.
const siteConnections = `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'refdb'`

const reloadSettings = "SELECT pg_reload_conf()"

// newPostgresScenario makes one PostgreSQL server, and a proxy between it and each site.
func newPostgresScenario(ctx context.Context, sc *scenario, stepLibrary string) error {
	_, err := makePostgresScenario(ctx, sc, stepLibrary)
	return err
}

// makePostgresScenario returns the server, too.
func makePostgresScenario(ctx context.Context, sc *scenario, stepLibrary string) (*postgresServer, error) {
	clock, err := newWallClock(filepath.Join(sc.dir, "postgres.clock"))
	if err != nil {
		return nil, err
	}
	server, err := newPostgres(filepath.Join(sc.dir, "postgres"), clock.variable(), "LD_PRELOAD="+stepLibrary)
	if err != nil {
		return nil, err
	}
	sc.closers = append(sc.closers, server.Kill)
	if err := server.create(ctx); err != nil {
		return nil, err
	}
	n := make(network)
	sc.closers = append(sc.closers, func() error { n.close(); return nil })
	addresses, err := n.connectSites(server.Address())
	if err != nil {
		return nil, err
	}
	sc.configure = func(c *siteConfig) error {
		c.URL = postgresURL(addresses[c.Site], postgresDatabase, "application_name", "refdb")
		return nil
	}
	sc.open = func(ctx context.Context) (*refdb.DB, error) { return openForNemesis(ctx, server.url(), "") }
	sc.lockRows = func(ctx context.Context) (int, error) { return server.count(ctx, "SELECT count(*) FROM locks") }
	sc.connections = func(ctx context.Context) (int, error) { return server.count(ctx, siteConnections) }
	sc.faults = append(networkFaults(sc, n),
		killSites(sc), freezeSites(sc), stepSite(sc),
		stepDatabase(sc, clock, databaseStep), stepDatabase(sc, clock, -databaseStep),
		crashPostgres(server), freezeServer("PostgreSQL", server.Freeze), lockRefsTable(server))
	return server, nil
}

// crashPostgres kills all processes of the server with SIGKILL. The server recovers from its log.
func crashPostgres(s *postgresServer) fault {
	return fault{"kill -9 of PostgreSQL", func(ctx context.Context, random *rand.Rand) (string, error) {
		if err := s.Kill(); err != nil {
			return "", err
		}
		sleep(ctx, randomDuration(random, 0, staleAfter))
		return "", s.Start(ctx)
	}}
}

// lockRefsTable locks the table of refs, as some changes of its schema do: requests
// wait, and take up all connections.
func lockRefsTable(s *postgresServer) fault {
	return fault{"table of refs locked", func(ctx context.Context, random *rand.Rand) (string, error) {
		length := randomDuration(random, shortest, longest)
		return "for " + length.Round(time.Millisecond).String(), s.Connect(ctx, postgresDatabase, func(c *pgx.Conn) error {
			return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "LOCK TABLE refs")
				if err == nil {
					sleep(ctx, length)
				}
				return err
			})
		})
	}}
}

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
