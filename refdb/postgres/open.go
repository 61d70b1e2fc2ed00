package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/dburl"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/schema"
)

// oldestVersion is the oldest supported server_version_num. PostgreSQL 13 is out of support, loses
// locks on hundreds of refs, and its extract(), which a server's identity is computed with, returns
// floating-point numbers.
const oldestVersion = 140000

const versionSQL = `CAST(pg_catalog.current_setting('server_version_num') AS pg_catalog.int4), pg_catalog.current_setting('server_version')`

// checkVersion returns an error if a server is too old.
func checkVersion(number int, version string) error {
	if number < oldestVersion {
		return fmt.Errorf("open the database: PostgreSQL %s is too old: upgrade the server to 14 or newer", version)
	}
	return nil
}

// Open connects to the database at a URL of the form
// postgres://USER:PASSWORD@HOST:PORT/DATABASE, with the parameters of libpq and
// those of pgx and pgxpool (pool_max_conns, default_query_exec_mode). It checks
// that the database can keep the driver's promises and has this program's
// schema; if not, the error says what to do. An error never shows the password.
func Open(ctx context.Context, address string) (*Driver, error) {
	d, err := openAs(ctx, address, roundtrip.Direct)
	if errors.Is(err, errPooled) {
		d, err = openAs(ctx, address, roundtrip.Pooled)
	}
	return d, dburl.Explain(address, err)
}

// errPooled reports that connections go through a pooler.
var errPooled = errors.New("there is a pooler in between")

// openAs opens the database on the assumption that connections take the given path: direct ones
// have their own settings.
func openAs(ctx context.Context, address string, path roundtrip.Path) (*Driver, error) {
	config, given, err := dburl.Parse(address)
	if err != nil {
		return nil, err
	}
	tune(config, given, path)
	pools, err := roundtrip.Open(ctx, config, path)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := examine(ctx, pools); err != nil {
		pools.Close()
		return nil, explainServer(ctx, config.ConnConfig, err)
	}
	return newDriver(pools), nil
}

// tune sets the settings that the URL leaves open.
func tune(config *pgxpool.Config, given map[string]bool, path roundtrip.Path) {
	c := config.ConnConfig
	if path == roundtrip.Direct {
		// These values apply for the whole connection, even if the settings of the server, the
		// database or the role change.
		c.RuntimeParams[roundtrip.DefaultIsolation] = roundtrip.ReadCommitted
		if !given["lock_timeout"] {
			c.RuntimeParams["lock_timeout"] = strconv.FormatInt(roundtrip.LockTimeout.Milliseconds(), 10)
		}
	}
	if !given["pool_max_conns"] {
		config.MaxConns = int32(max(16, 2*runtime.NumCPU()))
	}
	switch {
	case given["default_query_exec_mode"]:
		// The user has chosen a mode for the connection's path.
	case path == roundtrip.Pooled:
		// Prepared statements and settings belong to a connection to the server, and the next round
		// trip may use another one.
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	default:
		// All statements find their rows by primary key: a plan made while a table is small has to
		// be good after the table has grown.
		for name, value := range map[string]string{
			"plan_cache_mode": "force_generic_plan",
			"enable_seqscan":  "off",
			"jit":             "off",
		} {
			if !given[name] {
				c.RuntimeParams[name] = value
			}
		}
	}
}

// examineSQL qualifies all names, because a search_path that another client left behind may hide
// the server's objects. The schema of the tables is the first one on the search_path that has a
// table refs or, if there is none, the first one at all. Temporary schemas don't count.
var examineSQL = `
SELECT pg_catalog.pg_backend_pid(), ` + versionSQL + `,
       pg_catalog.pg_is_in_recovery(), CAST(pg_catalog.current_setting('transaction_read_only') AS pg_catalog.bool),
       pg_catalog.current_setting('server_encoding'), ` + searchPathSQL + `,
       coalesce((
         SELECT ` + pathToTables + ` FROM ROWS FROM (pg_catalog.unnest(` + schemasSQL + `)) WITH ORDINALITY AS s (name, n)
         JOIN pg_catalog.pg_namespace AS ns ON ns.nspname OPERATOR(pg_catalog.=) name
         JOIN pg_catalog.pg_class AS c ON c.relnamespace OPERATOR(pg_catalog.=) ns.oid AND c.relname OPERATOR(pg_catalog.=) 'refs'
         ORDER BY n LIMIT 1
       ), (SELECT ` + pathToTables + ` FROM ROWS FROM (pg_catalog.unnest(` + schemasSQL + `)) WITH ORDINALITY AS s (name, n) ORDER BY n LIMIT 1), ''),
       ` + serverColumns

// examine checks the database through its first connection. Unless pools are for a pooler, it
// detects one, because a pooler reports a process ID of its own to its clients.
func examine(ctx context.Context, pools *roundtrip.Pools) error {
	if err := examineServer(ctx, pools); err != nil {
		return err
	}
	err := schema.Check(ctx, pools, openDatabase)
	if roundtrip.Code(err) == roundtrip.NoPrivilege {
		if why := explainRefusal(ctx, pools); why != nil {
			return fmt.Errorf("%s: %w", openDatabase, why)
		}
	}
	return err
}

// openDatabase names the operation, for errors.
const openDatabase = "open the database"

// examineServer finds the tables, and checks everything except them.
func examineServer(ctx context.Context, pools *roundtrip.Pools) error {
	mayBePooled := pools.Path() == roundtrip.Direct
	conn, err := pools.Acquire(ctx)
	if mayBePooled && strings.HasPrefix(roundtrip.Code(err), roundtrip.ConnectionException) {
		return errPooled // the pooler rejects settings that it doesn't know
	}
	if err != nil {
		return failed(ctx, roundtrip.Connecting, err)
	}
	defer conn.Release()

	f, err := inspect(ctx, conn.Conn(), examineSQL)
	if err != nil {
		return failed(ctx, roundtrip.Executing, err)
	}
	pid, version, standby, readOnly, encoding, tables := f[0], f[2], f[3] == "t", f[4] == "t", f[5], f[7]
	number, _ := strconv.Atoi(f[1])
	path := searchPath{set: f[6], found: tables != ""}
	switch {
	case mayBePooled && pid != strconv.FormatUint(uint64(conn.Conn().PgConn().PID()), 10):
		return errPooled
	case refusalOf(f[8:]) != nil:
		return fmt.Errorf("%s: %w", openDatabase, refusalOf(f[8:]))
	case checkVersion(number, version) != nil:
		return checkVersion(number, version)
	case standby:
		return fmt.Errorf("open the database: %w", roundtrip.ErrStandby)
	case readOnly:
		return fmt.Errorf("open the database: %w", roundtrip.ErrLeftReadOnly)
	case encoding != "UTF8" && encoding != "SQL_ASCII":
		return fmt.Errorf("open the database: its encoding is %s, which can't hold every name: create it with ENCODING 'UTF8'", encoding)
	}
	if err := path.check(); err != nil {
		return err
	}
	if err := pools.ServeFrom(ctx, conn.Conn(), tables); err != nil {
		return failed(ctx, roundtrip.Executing, err)
	}
	return nil
}

// inspect makes a query, and returns the columns of its row. The query sees the search_path that
// the session began with, because another client of a pooler may have left one behind. Both
// statements are one message, and so one transaction.
func inspect(ctx context.Context, conn *pgx.Conn, query string) (columns []string, err error) {
	const ownSearchPath = `
SELECT pg_catalog.set_config('search_path', reset_val, true) FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'search_path'; `
	results, err := conn.PgConn().Exec(ctx, ownSearchPath+query).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, c := range results[len(results)-1].Rows[0] {
		columns = append(columns, string(c))
	}
	return columns, nil
}

// failed returns the error of an attempt to open the database that reached the given stage.
func failed(ctx context.Context, came roundtrip.Stage, err error) error {
	return roundtrip.Failure(ctx, openDatabase, came, err)
}

// searchPath is the search_path that leads to the tables.
type searchPath struct {
	set   string
	found bool // one of its schemas exists and may be used
}

const (
	searchPathSQL = `pg_catalog.current_setting('search_path')`

	// schemasSQL lists the schemas on the search_path that exist and that this user may use,
	// without the schemas of the server and of temporary tables.
	schemasSQL = `pg_catalog.array_remove(pg_catalog.array_remove(pg_catalog.current_schemas(false), 'pg_catalog'), (SELECT nspname FROM pg_catalog.pg_namespace WHERE oid OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()))`
)

// allSchemasSQL is the present search_path, for a migrator: its tables may be in any of the
// schemas.
var allSchemasSQL = `(SELECT coalesce(pg_catalog.string_agg(pg_catalog.quote_ident(name), ', ' ORDER BY n) OPERATOR(pg_catalog.||) ', pg_temp', '')
  FROM ROWS FROM (pg_catalog.unnest(` + schemasSQL + `)) WITH ORDINALITY AS s (name, n))`

// pathToTables is the search_path that leads to the tables in the schema "name".
var pathToTables = roundtrip.SearchPathSQL("name")

func (p searchPath) check() error {
	if p.found {
		return nil
	}
	return fmt.Errorf("open the database: its search_path %s names no schema that exists and that this user may use: "+
		"create it or grant USAGE on it, or correct search_path in the database URL", p.set)
}

// CheckSchema implements driver.SchemaChecker.
func (d *Driver) CheckSchema(ctx context.Context) error {
	return schema.Check(ctx, d.pools, "check the schema")
}

// ReadAddress implements driver.AddressReader.
func (d *Driver) ReadAddress(read func(context.Context) (string, error)) {
	d.pools.Rotate(func(ctx context.Context) (*pgx.ConnConfig, error) {
		address, err := read(ctx)
		if err != nil {
			return nil, err
		}
		config, _, err := dburl.Parse(address)
		if err != nil {
			return nil, err
		}
		return config.ConnConfig, nil
	}, d.mayReplace)
}

// Reread implements driver.AddressReader.
func (d *Driver) Reread(ctx context.Context) (read driver.AddressRead, err error) {
	c, err := d.pools.Reread(ctx)
	if err != nil {
		return read, err
	}
	return driver.AddressRead{User: c.User, Ignored: dburl.Differing(d.pools.Config().ConnString(), c.ConnString())}, nil
}

// Migrator returns a migrator for the database at the URL. It connects once, to check that the
// database exists.
func Migrator(ctx context.Context, address string) (*migrations.Migrator, error) {
	config, _, err := dburl.Parse(address)
	if err != nil {
		return nil, err
	}
	c := config.ConnConfig
	c.DefaultQueryExecMode = pgx.QueryExecModeExec // works through every pooler
	settings := roundtrip.MigratorSettings(c)
	db := stdlib.OpenDB(*c, stdlib.OptionAfterConnect(settings.Probe)) // migrations are kept apart by an advisory lock, too
	m, err := migrator(ctx, db, settings)
	if err != nil {
		db.Close()
		return nil, dburl.Explain(address, explainServer(ctx, c, err))
	}
	return m, nil
}

func migrator(ctx context.Context, db *sql.DB, settings *roundtrip.Settings) (*migrations.Migrator, error) {
	if err := db.PingContext(ctx); err != nil {
		return nil, failed(ctx, roundtrip.Connecting, err)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, failed(ctx, roundtrip.Connecting, err)
	}
	var f []string
	err = conn.Raw(func(c any) (err error) {
		f, err = inspect(ctx, c.(*stdlib.Conn).Conn(), `SELECT `+versionSQL+`, `+searchPathSQL+`, `+allSchemasSQL+`, `+serverColumns)
		return err
	})
	conn.Close()
	if err != nil {
		return nil, failed(ctx, roundtrip.Executing, err)
	}
	number, _ := strconv.Atoi(f[0])
	schemas := f[3]
	if err := refusalOf(f[4:]); err != nil {
		return nil, fmt.Errorf("%s: %w", openDatabase, err)
	}
	if err := cmp.Or(checkVersion(number, f[1]), searchPath{f[2], schemas != ""}.check()); err != nil {
		return nil, err
	}
	settings = settings.In(schemas)
	m, err := migrations.NewSQL(migrations.Postgres, db, func(ctx context.Context, conn *sql.Conn) error {
		return conn.Raw(func(c any) error { return settings.Begin(ctx, c.(*stdlib.Conn).Conn()) })
	})
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return m, nil
}
