package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// ShareAll has every request about a single ref share a trip, be it with nobody.
func (d *Driver) ShareAll() {
	d.lane.under = laneWidth
}

// KeysOf returns the keys of a project and of a ref.
func KeysOf(project, ref string) (int64, int64) {
	return int64(keyOf(project, "")), int64(keyOf(project, ref))
}

// Trip makes a trip of statements without arguments, and has read take each answer.
func (d *Driver) Trip(ctx context.Context, read func(pgx.Rows) error, statements ...string) error {
	t := trip{what: "make a trip", writes: true}
	for _, sql := range statements {
		t = t.then(sql, read)
	}
	return d.do(ctx, t)
}

// TripAbout makes a trip of statements that all have that argument.
func (d *Driver) TripAbout(ctx context.Context, arg string, statements ...string) error {
	t := trip{what: "make a trip", writes: true}
	for _, sql := range statements {
		t = t.then(sql, nil, arg)
	}
	return d.do(ctx, t)
}
