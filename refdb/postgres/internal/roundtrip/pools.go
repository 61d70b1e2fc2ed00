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
// would be lost although the server is idle, or would remain although it is no longer needed. So
// beats and releases have a spare connection each, which is opened when none of the shared
// connections is free.
type Pool int

const (
	Requests Pool = iota // the shared connections
	Beats                // the shared connections, or the spare one for beats
	Releases             // the shared connections, or the spare one for releases
	poolCount
)

// spareAfter is how long a beat or a release waits for a connection before it uses the spare one.
const spareAfter = 10 * time.Millisecond

// A Path is the way in which connections reach the server.
type Path int

const (
	Direct Path = iota
	Pooled      // through a pooler that hands out the server's connections, such as PgBouncer
)

// Pools are the connections of a driver to its server.
type Pools struct {
	// SpareAfter is spareAfter, except in a test that counts round trips: a new connection adds its
	// probe and the preparation of its statements.
	SpareAfter time.Duration

	path Path
	// settings are those that all transactions depend on. ServeFrom completes them.
	settings atomic.Pointer[Settings]
	all      [poolCount]*pgxpool.Pool // the shared connections, and a pool for each spare one
	renewal  renewal
	rotation atomic.Pointer[rotation] // nil: connections use the credentials of the configuration
	logins   logins
	ending   context.Context // ended by Interrupt, which ends all in-flight round trips
	end      context.CancelFunc
}

// Open makes the pools. It changes config, and does not wait for a connection.
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

// configure sets what Do depends on.
func (p *Pools) configure(config *pgxpool.Config) {
	p.settings.Store(settingsOf(config.ConnConfig, p.path))
	if p.path == Direct {
		// A setting that a session starts with overrides the settings of the server, the database
		// and the role. If it is right, the guard has nothing to set.
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

// complete adds to the configuration of a new connection what became known since the start. It
// fails if the server has just refused the credentials.
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

// locate sets the search_path that leads to the tables.
func (p *Pools) locate(c *pgx.ConnConfig) {
	if path := p.settings.Load().searchPath; path != "" && p.path == Direct {
		c.RuntimeParams["search_path"] = path
	}
}

// base returns the initial configuration, with the search_path.
func (p *Pools) base() *pgx.ConnConfig {
	c := p.Config().ConnConfig
	p.locate(c)
	return c
}

// SetLoginPause sets how long logins are suspended after the first refusal. Tests call it before
// the first login.
func (p *Pools) SetLoginPause(d time.Duration) { p.logins.first = d }

// Single returns the configuration of a connection that belongs to no pool.
func (p *Pools) Single(ctx context.Context) (*pgx.ConnConfig, error) {
	c := p.Config().ConnConfig
	return c, p.complete(ctx, c)
}

// ServeFrom makes all later transactions use searchPath, and also conn, which was opened before.
func (p *Pools) ServeFrom(ctx context.Context, conn *pgx.Conn, searchPath string) error {
	p.settings.Store(p.settings.Load().In(searchPath))
	if p.path == Pooled {
		return nil // the session may serve another client next
	}
	_, err := conn.Exec(ctx, `SELECT pg_catalog.set_config('search_path', $1, false)`, pgx.QueryExecModeExec, searchPath)
	return err
}

// Settings returns the settings that transactions outside of pipelines have to begin with.
func (p *Pools) Settings() *Settings { return p.settings.Load() }

// Interrupt ends all in-flight and all later round trips with an error.
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

// Acquire returns one of the shared connections.
func (p *Pools) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	return p.all[Requests].Acquire(ctx)
}

// connect returns one of the shared connections or, if all of them are in use, the spare one of the
// given pool.
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
		// On a busy machine, the time may be over before a free connection was even requested.
		if try == 2 || p.Stat().IdleConns() == 0 || ctx.Err() != nil {
			return p.all[of].Acquire(ctx)
		}
	}
}

// Path returns the way in which the connections reach the server.
func (p *Pools) Path() Path { return p.path }

// Config returns a copy of the configuration.
func (p *Pools) Config() *pgxpool.Config { return p.all[Requests].Config() }

// MaxConns returns the maximum number of connections, including the spare ones.
func (p *Pools) MaxConns() int { return int(p.Config().MaxConns) + len(p.all) - 1 }

// Stat returns the state of the shared connections.
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
