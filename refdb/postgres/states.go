package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const statesSQL = `
SELECT asked.ref, value, owner, token, heartbeat, stale_after, now
FROM unnest($2::text[]) AS asked (ref) CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) AS clock
LEFT JOIN LATERAL (` + refOfAsked + `) AS refs ON true
LEFT JOIN LATERAL (` + lockOfAsked + `) AS lock ON true
WHERE refs.ref IS NOT NULL OR lock.ref IS NOT NULL`

// States reads values and locks in one statement, so that all are as of one moment.
func (d *Driver) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	var states []refdb.State
	err := d.do(ctx, roundTrip{what: "get refs and locks"}.then(statesSQL, func(rows pgx.Rows) error {
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
