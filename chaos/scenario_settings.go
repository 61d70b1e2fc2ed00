package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

// pooledSite reaches its database through PgBouncer, the others reach it directly.
const pooledSite = "ap-1"

// stagingSchema holds the tables of another ref database, in which nothing may be written.
const stagingSchema = "staging"

// newSettingsScenario makes one PostgreSQL server, whose settings change while the sites work.
func newSettingsScenario(ctx context.Context, sc *scenario, _ string) error {
	server, err := newPostgres(filepath.Join(sc.dir, "postgres"))
	if err != nil {
		return err
	}
	sc.closers = append(sc.closers, server.Kill)
	if err := server.create(ctx); err != nil {
		return err
	}
	if err := server.Exec(ctx, postgresDatabase, "CREATE SCHEMA "+stagingSchema); err != nil {
		return err
	}
	if err := schema.Up(ctx, postgresURL(server.Address(), postgresDatabase, "search_path", stagingSchema)); err != nil {
		return err
	}
	pooler, err := testserver.StartPgBouncer(ctx, server.url())
	if err != nil {
		return err
	}
	sc.closers = append(sc.closers, pooler.Stop)
	sc.configure = func(c *siteConfig) error {
		c.URL = postgresURL(server.Address(), postgresDatabase, "application_name", "refdb")
		if c.Site == pooledSite {
			c.URL = pooler.URL + "&" + url.Values{"application_name": {"refdb"}}.Encode()
		}
		return nil
	}
	// What looks on must not end with a setting that is named.
	looking := postgresURL(server.Address(), postgresDatabase, "session_replication_role", "origin")
	sc.open = func(ctx context.Context) (*refdb.DB, error) { return openForNemesis(ctx, looking, "") }
	sc.lockRows = func(ctx context.Context) (int, error) { return server.count(ctx, "SELECT count(*) FROM locks") }
	sc.faults = append(sc.faults, changeSettings(server, pooler), crashPostgres(server), killSites(sc))
	return nil
}

// A value is one of a setting's, under which some promise does not hold, or values look different.
type value struct{ setting, value string }

var wrongValues = []value{
	{"client_encoding", "LATIN1"}, {"session_replication_role", "replica"}, {"search_path", stagingSchema}, {"search_path", "pg_catalog"},
	{"default_transaction_isolation", "serializable"}, {"default_transaction_isolation", "repeatable read"},
	{"client_min_messages", "error"}, {"synchronous_commit", "off"}, {"row_security", "on"}, {"lock_timeout", "0"},
	{"default_transaction_read_only", "on"}, {"refdb.recovery", "on"}, {"refdb.op", "another"},
	{"datestyle", "German"}, {"bytea_output", "escape"}, {"standard_conforming_strings", "off"}, {"timezone", "Asia/Kolkata"},
}

// changesAtATime is how many changes of settings make a fault.
const changesAtATime = 20

// changeSettings changes settings of the server, the role, the database and the sessions that a pooler keeps, one after
// the other. Sessions that end get those of their role and database anew.
func changeSettings(s *postgresServer, pooler *testserver.PgBouncer) fault {
	levels := map[string]string{
		"server": "ALTER SYSTEM", "role": "ALTER ROLE postgres", "all roles": "ALTER ROLE ALL",
		"database": "ALTER DATABASE " + postgresDatabase, "role in the database": "ALTER ROLE postgres IN DATABASE " + postgresDatabase,
		"pooler": "",
	}
	names := []string{"server", "role", "all roles", "database", "role in the database", "pooler", "pooler"}
	const endSessions = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name <> 'supervisor' AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
	return fault{"settings changed", func(ctx context.Context, random *rand.Rand) (string, error) {
		var done []string
		for range changesAtATime {
			level, v := names[random.IntN(len(names))], wrongValues[random.IntN(len(wrongValues))]
			if level == "server" && strings.Contains(v.setting, ".") {
				level = "role"
			}
			pause := randomDuration(random, 50*time.Millisecond, 300*time.Millisecond)
			var err error
			if level == "pooler" {
				err = leaveBehind(ctx, pooler.URL, v)
				sleep(ctx, pause)
				err = errors.Join(err, s.Exec(ctx, postgresDatabase, endSessions))
			} else {
				alter := levels[level]
				if err = s.Exec(ctx, postgresDatabase, fmt.Sprintf("%s SET %s = '%s'", alter, v.setting, v.value), reloadSettings, endSessions); err == nil {
					sleep(ctx, pause)
				}
				err = errors.Join(err, s.Exec(ctx, postgresDatabase, "SET default_transaction_read_only = off", alter+" RESET "+v.setting, reloadSettings, endSessions))
			}
			if err != nil {
				return "", fmt.Errorf("%s of the %s: %w", v.setting, level, err)
			}
			done = append(done, level+" "+v.setting)
		}
		staged, err := s.count(ctx, "SELECT (SELECT count(*) FROM "+stagingSchema+".refs) + (SELECT count(*) FROM "+stagingSchema+".locks)")
		if err == nil && staged > 0 {
			err = fmt.Errorf("%d rows were written into the schema %s", staged, stagingSchema)
		}
		return fmt.Sprintf("%d changes: %s", len(done), strings.Join(done, ", ")), err
	}}
}

// leaveBehind leaves a setting behind, and temporary tables with the names of ours, in sessions that the pooler then hands to others.
func leaveBehind(ctx context.Context, through string, v value) error {
	config, err := pgx.ParseConfig(through + "&application_name=another")
	if err != nil {
		return err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	for range 5 {
		c, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return err
		}
		_, err = c.PgConn().Exec(ctx, fmt.Sprintf(`
			CREATE TEMPORARY TABLE IF NOT EXISTS refs (LIKE public.refs); CREATE TEMPORARY TABLE IF NOT EXISTS locks (LIKE public.locks);
			CREATE TEMPORARY TABLE IF NOT EXISTS history (LIKE public.history);
			SELECT pg_catalog.set_config('%s', '%s', false)`, v.setting, v.value)).ReadAll()
		c.Close(ctx)
		if err != nil && ctx.Err() != nil {
			return err
		} // else the session was left in a state in which that fails: that will do
	}
	return nil
}
