package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// ShareAll has every request about a single ref queue for a shared round trip, be it with nobody.
func (d *Driver) ShareAll() {
	d.batcher.underWay = maxUnderWay
}

// KeysOf returns the keys of a project and of a ref.
func KeysOf(project, ref string) (int64, int64) {
	return int64(keyOf(project, "")), int64(keyOf(project, ref))
}

// RoundTrip makes a round trip of statements without arguments, and has read take each answer.
func (d *Driver) RoundTrip(ctx context.Context, read func(pgx.Rows) error, statements ...string) error {
	t := roundTrip{what: "make a round trip", writes: true}
	for _, sql := range statements {
		t = t.then(sql, read)
	}
	return d.do(ctx, t)
}

// RoundTripAbout makes a round trip of statements that all have that argument.
func (d *Driver) RoundTripAbout(ctx context.Context, arg string, statements ...string) error {
	t := roundTrip{what: "make a round trip", writes: true}
	for _, sql := range statements {
		t = t.then(sql, nil, arg)
	}
	return d.do(ctx, t)
}

// Connections returns how many connections the driver has made so far.
func (d *Driver) Connections() int64 { return d.pool.Stat().NewConnsCount() }

// Idle returns how many connections of the pool are free, or could be made.
func (d *Driver) Idle() int32 {
	return d.pool.Config().MaxConns - d.pool.Stat().AcquiredConns()
}

// ConnectsUpTo returns how many connections a doctor says the driver may have.
func (d *Driver) ConnectsUpTo() int {
	return int(d.pool.Config().MaxConns) + connectionsBeside
}
