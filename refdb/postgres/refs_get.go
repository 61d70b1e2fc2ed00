package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// The values of a ref that is absent. This package never writes the empty one.
const (
	zeroIDs = `('` + string(refdb.Deleted) + `', '` + string(refdb.Deleted256) + `')`
	absent  = `('', '` + string(refdb.Deleted) + `', '` + string(refdb.Deleted256) + `')`
)

// refColumns are the columns of refs beside the key, all of them NULL if there is no row.
type refColumns struct {
	value pgtype.Text
	time  pgtype.Timestamptz
	op    pgtype.Text
}

func (c refColumns) ref(name string) refdb.Ref {
	r := refdb.Ref{Name: name, Value: refdb.Value(c.value.String), Op: operation.ID(c.op.String)}
	if c.time.Valid {
		r.Time = c.time.Time.UTC()
	}
	return r
}

// refs are read from rows of name, value, time and op.
type refs []refdb.Ref

func (r *refs) read(rows pgx.Rows) error {
	*r = nil
	for rows.Next() {
		var name string
		var c refColumns
		if err := rows.Scan(&name, &c.value, &c.time, &c.op); err != nil {
			return err
		}
		*r = append(*r, c.ref(name))
	}
	return rows.Err()
}

// refOfAsked is the row of asked.ref of project $1, and where it is stored.
const refOfAsked = `SELECT *, ctid AS tid FROM refs WHERE project = $1 AND ref = asked.ref LIMIT 1`

const getSQL = `
SELECT refs.ref, value, time, op FROM unnest($2::text[]) AS asked (ref), LATERAL (` + refOfAsked + `) AS refs`

// Get reads the refs in one statement, so as of one moment.
func (d *Driver) Get(ctx context.Context, project string, names []string) ([]refdb.Ref, error) {
	var found refs
	err := d.pools.Do(ctx, roundtrip.Read("get refs").Query(getSQL, found.read, project, names))
	return found, err
}

const statesSQL = `
SELECT asked.ref, value, owner, token, heartbeat, stale_after, now
FROM unnest($2::text[]) AS asked (ref) CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) AS clock
LEFT JOIN LATERAL (` + refOfAsked + `) AS refs ON true
LEFT JOIN LATERAL (` + lockOfAsked + `) AS lock ON true
WHERE refs.ref IS NOT NULL OR lock.ref IS NOT NULL`

// States reads values and locks in one statement, so as of one moment, in which the server was admitted.
func (d *Driver) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	var states []refdb.State
	err := d.pools.Do(ctx, roundtrip.Read("get refs and locks").Exec(requireAdmissionSQL).Query(statesSQL, func(rows pgx.Rows) error {
		states = nil
		for rows.Next() {
			var (
				s     refdb.State
				value *refdb.Value
				lock  lockColumns
				now   time.Time
			)
			if err := rows.Scan(&s.Ref, &value, &lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &now); err != nil {
				return err
			}
			if value != nil {
				s.Value = *value
			}
			if lock.owner.Valid {
				s.Lock = new(lock.info(project, s.Ref, now))
			}
			states = append(states, s)
		}
		return rows.Err()
	}, project, refs))
	return states, err
}
