package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Beats and releases must not wait for a connection that something else has,
// possibly for long: a lock would be lost though its table is free, or stand
// though nobody needs it. Each of both has one connection to itself, which is
// opened when none of the pool's can be had at once.
type spares struct {
	beats, releases *pgxpool.Pool // of one connection
}

// connectionsBeside is how many connections a driver may have beside those of its
// pool: the spare ones, and the one that listens.
const connectionsBeside = 3

// spareAfter is how long a connection of the pool is waited for.
const spareAfter = 10 * time.Millisecond

func newSpares(ctx context.Context, config *pgxpool.Config) (s spares, err error) {
	for _, pool := range []**pgxpool.Pool{&s.beats, &s.releases} {
		c := config.Copy()
		c.MaxConns, c.MinConns, c.MinIdleConns = 1, 0, 0
		var failed error
		*pool, failed = pgxpool.NewWithConfig(ctx, c)
		err = errors.Join(err, failed)
	}
	return s, err
}

func (s spares) close() {
	s.beats.Close()
	s.releases.Close()
}

// connect returns a connection of the pool or, if all of those are in use, t's spare one.
func (d *Driver) connect(ctx context.Context, t roundTrip) (*pgxpool.Conn, error) {
	if t.spare == nil {
		return d.pool.Acquire(ctx)
	}
	soon, cancel := context.WithTimeout(ctx, spareAfter)
	defer cancel()
	if conn, err := d.pool.Acquire(soon); err == nil || soon.Err() == nil {
		return conn, err
	}
	return t.spare.Acquire(ctx)
}
