package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// acquireSharedSQL takes the locks on refs that nobody holds. Of a ref that is
// locked it returns the lock.
//
//	$1 projects  $2 refs  $3 owners  $4 nonces  $5 stale_after, µs
const acquireSharedSQL = `
WITH found AS MATERIALIZED (
  SELECT asked.*, lock.* FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])
    WITH ORDINALITY AS asked (project, ref, owner, nonce, stale_after, n)
  LEFT JOIN LATERAL (
    SELECT owner AS holder, token AS held, heartbeat, stale_after AS stands, nonce AS holds
    FROM locks WHERE project = asked.project AND ref = asked.ref LIMIT 1
  ) AS lock ON true
  WHERE ` + gotRef + `
), granted AS MATERIALIZED (
  SELECT origin + ` + passed + ` AS token, clock_timestamp() AS now
  FROM ` + ofOrigin + ` AND EXISTS (SELECT FROM found WHERE holder IS NULL)
), taken AS (
  INSERT INTO locks (project, ref, heartbeat, token, owner, nonce, stale_after)
  SELECT project, ref, now, token, owner, nonce, stale_after FROM granted, found WHERE holder IS NULL
)
SELECT n, CASE WHEN holder IS NULL THEN token END, coalesce(now, clock_timestamp()), value, time, op, holder, held, heartbeat, stands, holds
FROM found LEFT JOIN granted ON true
LEFT JOIN LATERAL (SELECT value, time, op FROM refs WHERE project = found.project AND ref = found.ref LIMIT 1) AS refs ON true`

// An acquireCall is a request for the lock on a single ref, and the answer.
type acquireCall struct {
	request refdb.AcquireRequest
	answer  acquisition
}

// acquireShared is the trip of a lane.
func (d *Driver) acquireShared(ctx context.Context, together []*seat[acquireCall]) error {
	n := len(together)
	var (
		projects, refs, owners, nonces = make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		staleAfter                     = make([]int64, n)
	)
	for i, s := range together {
		r := &s.request.request
		projects[i], refs[i], owners[i], nonces[i] = r.Project, r.Refs[0], r.Owner, r.Nonce
		staleAfter[i] = r.StaleAfter.Microseconds()
	}
	read := func(rows pgx.Rows) error {
		for rows.Next() {
			var n int
			var t taking
			if err := rows.Scan(append([]any{&n}, t.columns()...)...); err != nil {
				return err
			}
			s := together[n-1]
			a := t.acquisition(s.request.request)
			s.decided = a.token != 0 || a.fresh() // or stale: see Acquire
			s.request.answer = a
		}
		return rows.Err()
	}
	return d.do(ctx, trip{what: "acquire locks", writes: true}.
		tryRefs(projects, refs).
		raise(d.lag).
		then(acquireSharedSQL, read, projects, refs, owners, nonces, staleAfter))
}
