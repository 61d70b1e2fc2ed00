package roundtrip

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Pool selects the connections on which a round trip is made.
//
// Beats and releases must not wait for connections that other requests may occupy for long: a lock
// would be lost although its table is free, or would remain although it is no longer needed. So
// each of the two has a spare connection, which is opened when none of the shared connections is
// free.
type Pool int

const (
	Requests Pool = iota // those for all requests
	Beats                // those, or the spare one for beats
	Releases             // those, or the spare one for releases
	poolCount
)

// spareAfter is how long a beat or a release waits for a connection before it uses the spare one.
const spareAfter = 10 * time.Millisecond

// A Path is how connections lead to the server.
type Path int

const (
	Direct Path = iota
	Pooled      // something in between hands out the server's connections, such as PgBouncer
)

// Pools are the connections of a driver to its server.
type Pools struct {
	// SpareAfter is spareAfter, unless a test counts what a busy machine would add: a new
	// connection, its probe and the preparation of its statements.
	SpareAfter time.Duration

	path Path
	// settings are what all transactions rely on. ServeFrom completes them.
	settings atomic.Pointer[Settings]
	all      [poolCount]*pgxpool.Pool // those of the spare connections have one each
	renewal  renewal
	rotation atomic.Pointer[rotation] // nil: connections go by the configuration
	logins   logins
	ending   context.Context // ends with Interrupt, and with it all round trips under way
	end      context.CancelFunc
}

// Open makes the pools. It changes config, and waits for no connection.
func Open(ctx context.Context, config *pgxpool.Config, path Path) (*Pools, error) {
	p := &Pools{SpareAfter: spareAfter, path: path, logins: logins{first: firstLoginPause}}
	p.ending, p.end = context.WithCancel(context.Background())
	p.configure(config)
	for i := range p.all {
		c := config
		if Pool(i) != Requests {
			c = config.Copy()
			c.MaxConns, c.MinConns, c.MinIdleConns = 1, 0, 0
		}
		var err error
		if p.all[i], err = pgxpool.NewWithConfig(ctx, c); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// configure sets what Do relies on.
func (p *Pools) configure(config *pgxpool.Config) {
	p.settings.Store(settingsOf(config.ConnConfig, p.path))
	if p.path == Direct {
		// A setting that a session starts with is stronger than that of the server, the database
		// and the role. Where it is right, the guard has nothing to set.
		config.ConnConfig.RuntimeParams["row_security"] = "off"
	}
	config.BeforeConnect = p.complete
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		p.renewal.count(conn.PgConn())
		return p.settings.Load().Probe(ctx, conn)
	}
	config.ConnConfig.OnNotice = noteWarning
	config.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler { return lastWait{conn} }
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		if quiet, known := isQuiet(p.Conn.PgConn().Conn()); known {
			return !quiet
		}
		return p.IdleDuration > time.Second
	}
}

// complete gives the configuration of a new connection what became known since the start. It fails
// if the server has only just refused the credentials.
func (p *Pools) complete(ctx context.Context, c *pgx.ConnConfig) error {
	p.locate(c)
	p.authenticate(ctx, c)
	if err := p.logins.admit(c); err != nil {
		return err
	}
	used := c.Copy()
	p.logins.watch(c, func() { p.logins.accept(used) })
	return nil
}

// locate gives a configuration the search_path to the tables.
func (p *Pools) locate(c *pgx.ConnConfig) {
	if path := p.settings.Load().searchPath; path != "" && p.path == Direct {
		c.RuntimeParams["search_path"] = path
	}
}

// base returns the configuration of the start, with the search_path.
func (p *Pools) base() *pgx.ConnConfig {
	c := p.Config().ConnConfig
	p.locate(c)
	return c
}

// SetLoginPause sets how long no login is attempted after the first refusal. It is for tests, and
// called before there is any.
func (p *Pools) SetLoginPause(d time.Duration) { p.logins.first = d }

// Single returns the configuration of a connection that belongs to no pool.
func (p *Pools) Single(ctx context.Context) (*pgx.ConnConfig, error) {
	c := p.Config().ConnConfig
	return c, p.complete(ctx, c)
}

// ServeFrom has all transactions use that search_path from now on, and also conn, which was there
// before.
func (p *Pools) ServeFrom(ctx context.Context, conn *pgx.Conn, searchPath string) error {
	p.settings.Store(p.settings.Load().In(searchPath))
	if p.path == Pooled {
		return nil // another client may have that session next
	}
	_, err := conn.Exec(ctx, `SELECT pg_catalog.set_config('search_path', $1, false)`, pgx.QueryExecModeExec, searchPath)
	return err
}

// Settings returns what transactions have to begin with that are no pipelines.
func (p *Pools) Settings() *Settings { return p.settings.Load() }

// Interrupt ends all round trips under way, and those to come, with an error.
func (p *Pools) Interrupt() { p.end() }

// Close closes all connections, and waits for those that are in use.
func (p *Pools) Close() {
	for _, pool := range p.all {
		if pool != nil {
			pool.Close()
		}
	}
	p.end()
}

// Acquire returns a connection of those for all requests.
func (p *Pools) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	return p.all[Requests].Acquire(ctx)
}

// connect returns a connection of those for all requests or, if all of them are in use,
// the spare one.
func (p *Pools) connect(ctx context.Context, of Pool) (*pgxpool.Conn, error) {
	if of == Requests {
		return p.Acquire(ctx)
	}
	for try := 1; ; try++ {
		soon, cancel := context.WithTimeout(ctx, p.SpareAfter)
		conn, err := p.Acquire(soon)
		over := soon.Err() != nil
		cancel()
		if err == nil || !over {
			return conn, err
		}
		// On a busy machine the time may be over before a connection that is free was asked for.
		if try == 2 || p.Stat().IdleConns() == 0 || ctx.Err() != nil {
			return p.all[of].Acquire(ctx)
		}
	}
}

// Path returns how the connections lead to the server.
func (p *Pools) Path() Path { return p.path }

// Config returns a copy of the configuration.
func (p *Pools) Config() *pgxpool.Config { return p.all[Requests].Config() }

// MaxConns returns how many connections there may be, with the spare ones.
func (p *Pools) MaxConns() int { return int(p.Config().MaxConns) + len(p.all) - 1 }

// Stat returns the state of the connections for all requests.
func (p *Pools) Stat() *pgxpool.Stat { return p.all[Requests].Stat() }

// Stats returns the state of all pools.
func (p *Pools) Stats() (all []driver.Pool) {
	names := [poolCount]string{Requests: "requests", Beats: "beats", Releases: "releases"}
	for i, pool := range p.all {
		s := pool.Stat()
		all = append(all, driver.Pool{
			Name: names[i], Max: int(s.MaxConns()), InUse: int(s.AcquiredConns()), Idle: int(s.IdleConns()),
			Acquired: uint64(s.AcquireCount()), Waited: uint64(s.EmptyAcquireCount()), WaitTime: s.EmptyAcquireWaitTime(),
		})
	}
	return all
}
