package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/dburl"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/schema"
)

// oldestVersion is the oldest server_version_num that is served. PostgreSQL 13 is out of support, loses
// locks on hundreds of refs, and its extract() returns floating-point numbers, from which a server's identity is made.
const oldestVersion = 140000

const versionSQL = `current_setting('server_version_num')::int, current_setting('server_version')`

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

// errPooled says that a pooler is in between.
var errPooled = errors.New("there is a pooler in between")

// openAs opens the database on the assumption that connections lead to it that way:
// direct ones have settings of their own.
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
		return nil, err
	}
	return newDriver(pools), nil
}

// tune sets what the URL left open.
func tune(config *pgxpool.Config, given map[string]bool, path roundtrip.Path) {
	c := config.ConnConfig
	if path == roundtrip.Direct {
		// What a connection begins with stays, whatever becomes of the settings of
		// the server, the database and the role.
		c.RuntimeParams[dburl.Isolation] = roundtrip.ReadCommitted
		if !given["lock_timeout"] {
			c.RuntimeParams["lock_timeout"] = strconv.FormatInt(roundtrip.LockTimeout.Milliseconds(), 10)
		}
	}
	if !given["pool_max_conns"] {
		config.MaxConns = int32(max(16, 2*runtime.NumCPU()))
	}
	switch {
	case given["default_query_exec_mode"]:
		// Somebody knows what is in between.
	case path == roundtrip.Pooled:
		// Prepared statements and settings belong to a connection to the server,
		// and the next round trip may get another one.
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	default:
		// All statements find their rows by primary key: a plan that is made
		// while a table is small has to be good when it has grown.
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

const examineSQL = `
SELECT pg_backend_pid(), ` + versionSQL + `,
       pg_is_in_recovery(), current_setting('transaction_read_only')::boolean, current_setting('server_encoding'), ` + searchPathSQL

// examine checks the database through its first connection. Unless a pooler is
// known to be in between it looks for one, which tells its clients a process ID
// of its own.
func examine(ctx context.Context, pools *roundtrip.Pools) error {
	mayBePooled := pools.Path() == roundtrip.Direct
	conn, err := pools.Acquire(ctx)
	if mayBePooled && strings.HasPrefix(roundtrip.Code(err), roundtrip.ConnectionException) {
		return errPooled // it knows nothing of our settings
	}
	if err != nil {
		return failed(ctx, roundtrip.Connecting, err)
	}
	defer conn.Release()

	var pid uint32
	var number int
	var version, encoding string
	var standby, readOnly bool
	var path searchPath
	err = conn.QueryRow(ctx, examineSQL, pgx.QueryExecModeExec).Scan(&pid, &number, &version, &standby, &readOnly, &encoding, &path.set, &path.found)
	switch {
	case err != nil:
		return failed(ctx, roundtrip.Executing, err)
	case mayBePooled && pid != conn.Conn().PgConn().PID():
		return errPooled
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
	if err := schema.Check(ctx, conn.Conn()); err != nil {
		if errors.Is(err, refdb.ErrSchema) {
			return err
		}
		return failed(ctx, roundtrip.Executing, err)
	}
	return nil
}

// failed is the error of opening the database after it came so far.
func failed(ctx context.Context, came roundtrip.Stage, err error) error {
	return roundtrip.Failure(ctx, "open the database", came, err)
}

// searchPath is where the tables are looked for.
type searchPath struct {
	set   string
	found bool // a schema of it
}

const searchPathSQL = `current_setting('search_path'), current_schema() IS NOT NULL`

func (p searchPath) check() error {
	if p.found {
		return nil
	}
	return fmt.Errorf("open the database: its search_path %s names no schema that exists and that this user may use: "+
		"create it or grant USAGE on it, or correct search_path in the database URL", p.set)
}

// CheckSchema implements refdb.SchemaChecker.
func (d *Driver) CheckSchema(ctx context.Context) error {
	const what = "check the schema"
	conn, err := d.pools.Acquire(ctx)
	if err != nil {
		return roundtrip.Failure(ctx, what, roundtrip.Connecting, err)
	}
	defer conn.Release()
	err = schema.Check(ctx, conn.Conn())
	if err == nil || errors.Is(err, refdb.ErrSchema) {
		return err
	}
	return roundtrip.Failure(ctx, what, roundtrip.Executing, err)
}

// Migrator returns what moves the database at the URL between versions of the
// schema. It connects once, to see that there is a database.
func Migrator(ctx context.Context, address string) (*migrations.Migrator, error) {
	config, _, err := dburl.Parse(address)
	if err != nil {
		return nil, err
	}
	c := config.ConnConfig
	c.DefaultQueryExecMode = pgx.QueryExecModeExec // works through every pooler
	db := stdlib.OpenDB(*c, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		err := roundtrip.Probe(ctx, conn) // migrations are kept apart by an advisory lock, too
		if errors.Is(err, roundtrip.ErrIsolation) {
			return nil // that is all the same to them
		}
		return err
	}))
	if err := db.PingContext(ctx); err != nil {
		db.Close()
		return nil, dburl.Explain(address, failed(ctx, roundtrip.Connecting, err))
	}
	var path searchPath
	var number int
	var version string
	err = db.QueryRowContext(ctx, `SELECT `+versionSQL+`, `+searchPathSQL).Scan(&number, &version, &path.set, &path.found)
	if err != nil {
		err = failed(ctx, roundtrip.Executing, err)
	} else {
		err = cmp.Or(checkVersion(number, version), path.check())
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	m, err := migrations.NewSQL(migrations.Postgres, db)
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return m, nil
}
