package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// siteConnections counts the connections that sites have.
const siteConnections = `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'refdb'`

// newPostgresBed makes one PostgreSQL server, and a proxy between it and each site.
func newPostgresBed(ctx context.Context, b *bed, stepLibrary string) error {
	clock, err := newWallClock(filepath.Join(b.dir, "postgres.clock"))
	if err != nil {
		return err
	}
	server, err := newPostgres(filepath.Join(b.dir, "postgres"), clock.variable(), "LD_PRELOAD="+stepLibrary)
	if err != nil {
		return err
	}
	b.closers = append(b.closers, server.crash)
	if err := server.create(ctx); err != nil {
		return err
	}
	n := newNetwork()
	b.closers = append(b.closers, func() error { n.close(); return nil })
	urls := make(map[string]string)
	for _, site := range siteNames {
		address, err := n.connect(site, server.hostPort())
		if err != nil {
			return err
		}
		urls[site] = postgresURL(address, postgresDatabase, "application_name", "refdb")
	}
	b.configure = func(c *siteConfig) error {
		c.URL = urls[c.Site]
		return nil
	}
	b.open = func(ctx context.Context) (*refdb.DB, error) { return openForNemesis(ctx, server.url(), "") }
	b.lockRows = func(ctx context.Context) (int, error) { return server.count(ctx, "SELECT count(*) FROM locks") }
	b.connections = func(ctx context.Context) (int, error) { return server.count(ctx, siteConnections) }
	b.faults = append(networkFaults(b, n),
		killSites(b), freezeSites(b), stepSite(b),
		stepDatabase(b, clock, databaseStep), stepDatabase(b, clock, -databaseStep),
		crashPostgres(server), freezePostgres(server), changeSettings(server), lockRefsTable(server))
	return nil
}

// crashPostgres kills all processes of the server with SIGKILL; it recovers from its log.
func crashPostgres(s *postgresServer) fault {
	return fault{"kill -9 of PostgreSQL", func(ctx context.Context, random *rand.Rand) (string, error) {
		if err := s.crash(); err != nil {
			return "", err
		}
		rest(ctx, within(random, 0, staleAfter))
		return "", s.start(ctx)
	}}
}

// freezePostgres stops all processes of the server for a while.
func freezePostgres(s *postgresServer) fault {
	return fault{"PostgreSQL frozen", func(ctx context.Context, random *rand.Rand) (string, error) {
		thaw, err := s.freeze()
		if err != nil {
			return "", err
		}
		length := within(random, shortest, longest)
		rest(ctx, length)
		thaw()
		return "for " + length.Round(time.Millisecond).String(), nil
	}}
}

// changeSettings has the server begin transactions in another isolation, and
// acknowledge commits that are not on disk, as an administrator might.
func changeSettings(s *postgresServer) fault {
	return fault{"isolation and durability of the server changed", func(ctx context.Context, random *rand.Rand) (string, error) {
		levels := []string{"repeatable read", "serializable"}
		level, length := levels[random.IntN(len(levels))], within(random, shortest, longest)
		err := s.reload(ctx, "ALTER SYSTEM SET default_transaction_isolation = '"+level+"'", "ALTER SYSTEM SET synchronous_commit = off")
		if err == nil {
			rest(ctx, length)
		}
		return level + " for " + length.Round(time.Millisecond).String(),
			errors.Join(err, s.reload(ctx, "ALTER SYSTEM RESET default_transaction_isolation", "ALTER SYSTEM RESET synchronous_commit"))
	}}
}

// reload changes settings of the server that runs.
func (s *postgresServer) reload(ctx context.Context, statements ...string) error {
	for _, sql := range append(statements, "SELECT pg_reload_conf()") {
		if err := s.query(ctx, postgresDatabase, sql); err != nil {
			return err
		}
	}
	return nil
}

// lockRefsTable keeps everybody out of the table of refs, as some changes of its
// schema do: requests get stuck, and take up all connections.
func lockRefsTable(s *postgresServer) fault {
	return fault{"table of refs locked", func(ctx context.Context, random *rand.Rand) (string, error) {
		length := within(random, shortest, longest)
		return "for " + length.Round(time.Millisecond).String(), s.connect(ctx, postgresDatabase, func(c *pgx.Conn) error {
			return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "LOCK TABLE refs")
				if err == nil {
					rest(ctx, length)
				}
				return err
			})
		})
	}}
}
