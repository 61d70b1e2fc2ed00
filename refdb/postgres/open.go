package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	applicationName = "refdb"
	isolationParam  = "default_transaction_isolation"
	readCommitted   = "read committed"
	oldestVersion   = 130000

	// connectTimeout is how long connecting may take, unless the URL says it.
	connectTimeout = 10 * time.Second
)

// Open connects to the database at a URL of the form
// postgres://USER:PASSWORD@HOST:PORT/DATABASE, with the parameters of libpq and
// those of pgx and pgxpool (pool_max_conns, default_query_exec_mode). It checks
// that the database can keep the driver's promises and has this program's
// schema; if not, the error says what to do. An error never shows the password.
func Open(ctx context.Context, address string) (*Driver, error) {
	d, err := openAs(ctx, address, false)
	if errors.Is(err, errPooled) {
		d, err = openAs(ctx, address, true)
	}
	return d, err
}

// errPooled says that a pooler is in between.
var errPooled = errors.New("there is a pooler in between")

// openAs opens the database on the assumption that a pooler is in between, or
// not: without one the connections have settings of their own.
func openAs(ctx context.Context, address string, pooled bool) (*Driver, error) {
	config, given, err := parse(address)
	if err != nil {
		return nil, err
	}
	renewal := new(renewal)
	tune(config, given, pooled, renewal)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := examine(ctx, pool, pooled); err != nil {
		pool.Close()
		return nil, err
	}
	spares, err := newSpares(ctx, config)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return newDriver(pool, spares, renewal, pooled), nil
}

// Migrator returns what moves the database at the URL between versions of the
// schema. It connects once, to see that there is a database.
func Migrator(ctx context.Context, address string) (*migrations.Migrator, error) {
	config, _, err := parse(address)
	if err != nil {
		return nil, err
	}
	c := config.ConnConfig
	c.DefaultQueryExecMode = pgx.QueryExecModeExec // works through every pooler
	db := stdlib.OpenDB(*c, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		err := probe(ctx, conn) // migrations are kept apart by an advisory lock, too
		if errors.Is(err, errIsolation) {
			return nil // that is all the same to them
		}
		return err
	}))
	if err := db.PingContext(ctx); err != nil {
		db.Close()
		return nil, judge(ctx, roundTrip{what: "open the database"}, connecting, err).err
	}
	m, err := migrations.NewSQL(migrations.Postgres, db)
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return m, nil
}

// parse returns the configuration that the URL asks for, and which of the
// parameters that tune might set were given in it, or in the environment.
func parse(address string) (config *pgxpool.Config, given map[string]bool, err error) {
	if !strings.HasPrefix(address, "postgres://") && !strings.HasPrefix(address, "postgresql://") {
		return nil, nil, fmt.Errorf("%w database URL: it has to start with postgres://", refdb.ErrInvalid)
	}
	refused := func(reason string) error {
		return fmt.Errorf("%w database URL: %s: expected postgres://USER:PASSWORD@HOST:PORT/DATABASE?NAME=VALUE&…, "+
			"with %%XX for special characters", refdb.ErrInvalid, reason)
	}
	if isAmbiguous(address) {
		return nil, nil, refused(ambiguous)
	}
	raw, err := pgconn.ParseConfig(address)
	if err == nil {
		config, err = pgxpool.ParseConfig(address)
	}
	if err != nil {
		return nil, nil, refused(reason(address))
	}
	if slices.ContainsFunc(hostsOf(raw), func(host string) bool { return strings.Contains(host, "@") && !strings.HasPrefix(host, "/") }) {
		return nil, nil, refused(ambiguous)
	}
	if level, ok := raw.RuntimeParams[isolationParam]; ok && !strings.EqualFold(level, readCommitted) {
		return nil, nil, refused(isolationParam + " has to be " + readCommitted)
	}
	given = make(map[string]bool)
	for name := range raw.RuntimeParams {
		given[name] = true
	}
	c := config.ConnConfig
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	c.DialFunc = neverCancel(dialer.DialContext)
	if !given["application_name"] {
		c.RuntimeParams["application_name"] = applicationName
	}
	return config, given, nil
}

const ambiguous = "an @ is too many: write %40 for one in the password, %2F for a / there"

// isAmbiguous reports whether an @ follows on that before the host, or on a "/":
// a piece of the password would pass for the host or the database, be asked of
// the name server, and stand in errors.
func isAmbiguous(address string) bool {
	_, rest := cutUser(address)
	rest, _, _ = strings.Cut(rest, "?")
	return strings.Contains(rest, "@")
}

// cutUser returns the user and password in a URL, and what follows on its scheme
// and them. Like pgx and libpq it takes the first @ for their end; url.Parse takes the last.
func cutUser(address string) (user, rest string) {
	_, rest, _ = strings.Cut(address, "://")
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		return rest[:i], rest[i+1:]
	}
	return "", rest
}

// hostsOf returns all hosts that a connection may be made to.
func hostsOf(c *pgconn.Config) []string {
	hosts := []string{c.Host}
	for _, f := range c.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	return hosts
}

// reason says what is wrong with a URL. pgx's own words repeat it, and can only
// guess which part of it is the password: it is told of one without a user.
func reason(address string) string {
	const unknown = "can't be parsed"
	_, rest := cutUser(address)
	u, err := url.Parse("postgres://" + rest)
	if err != nil {
		return unknown
	}
	q := u.Query()
	q.Del("password")
	q.Del("sslpassword")
	u.RawQuery = q.Encode()
	_, err = pgxpool.ParseConfig(u.String())
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) {
		return unknown
	}
	text := oneLine{err}.Error()
	return text[strings.LastIndex(text, "`: ")+len("`: "):]
}

// tune sets what the URL left open.
func tune(config *pgxpool.Config, given map[string]bool, pooled bool, renewal *renewal) {
	c := config.ConnConfig
	if !pooled {
		// What a connection begins with stays, whatever becomes of the settings of
		// the server, the database and the role.
		c.RuntimeParams[isolationParam] = readCommitted
		if !given["lock_timeout"] {
			c.RuntimeParams["lock_timeout"] = strconv.FormatInt(lockTimeout.Milliseconds(), 10)
		}
	}
	if !given["pool_max_conns"] {
		config.MaxConns = int32(max(16, 2*runtime.NumCPU()))
	}
	switch {
	case given["default_query_exec_mode"]:
		// Somebody knows what is in between.
	case pooled:
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
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		renewal.count(conn.PgConn())
		return probe(ctx, conn)
	}
	c.OnNotice = noteWarning
	c.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler { return lastWait{conn} }
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		if quiet, known := isQuiet(p.Conn.PgConn().Conn()); known {
			return !quiet
		}
		return p.IdleDuration > time.Second
	}
}

const examineSQL = `
SELECT pg_backend_pid(), current_setting('server_version_num')::int, current_setting('server_version'),
       pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean, current_setting('server_encoding')`

// examine checks the database through its first connection. Unless a pooler is
// known to be in between it looks for one, which tells its clients a process ID
// of its own.
func examine(ctx context.Context, pool *pgxpool.Pool, pooled bool) error {
	failed := func(came stage, err error) error {
		return judge(ctx, roundTrip{what: "open the database"}, came, err).err
	}
	conn, err := pool.Acquire(ctx)
	if !pooled && strings.HasPrefix(sqlState(err), connectionException) {
		return errPooled // it knows nothing of our settings
	}
	if err != nil {
		return failed(connecting, err)
	}
	defer conn.Release()

	var pid uint32
	var number int
	var version, encoding string
	var readOnly bool
	err = conn.QueryRow(ctx, examineSQL, pgx.QueryExecModeExec).Scan(&pid, &number, &version, &readOnly, &encoding)
	switch {
	case err != nil:
		return failed(executing, err)
	case !pooled && pid != conn.Conn().PgConn().PID():
		return errPooled
	case number < oldestVersion:
		return fmt.Errorf("open the database: PostgreSQL %s is too old: 13 or newer is needed", version)
	case readOnly:
		return fmt.Errorf("open the database: %w", errReadOnly)
	case encoding != "UTF8" && encoding != "SQL_ASCII":
		return fmt.Errorf("open the database: its encoding is %s, which can't hold every name: create it with ENCODING 'UTF8'", encoding)
	}

	var schema int64
	var dirty bool
	for {
		err = conn.QueryRow(ctx, `SELECT version, dirty FROM schema_migrations`, pgx.QueryExecModeExec).Scan(&schema, &dirty)
		if sqlState(err) != lockNotAvailable || ctx.Err() != nil {
			break // else it is being migrated
		}
	}
	exists := err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) && sqlState(err) != noSuchTable {
		return failed(executing, err)
	}
	if err := migrations.Check(migrations.Postgres, uint(max(schema, 0)), dirty, exists); err != nil {
		return fmt.Errorf("%w: %w", refdb.ErrSchema, err)
	}
	return nil
}
