package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// acquireSharedSQL takes the locks on refs that nobody holds. Of a ref that is
// locked it returns the lock.
//
//	$1 projects  $2 refs  $3 owners  $4 nonces  $5 stale_after, µs  $6 shards
const acquireSharedSQL = `
WITH found AS MATERIALIZED (
  SELECT asked.*, lock.* FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::smallint[])
    WITH ORDINALITY AS asked (project, ref, owner, nonce, stale_after, shard, n)
  LEFT JOIN LATERAL (
    SELECT owner AS holder, token, heartbeat, stale_after AS stands, nonce AS holds
    FROM locks WHERE project = asked.project AND ref = asked.ref LIMIT 1
  ) AS lock ON true
  WHERE ` + gotRef + `
), marks AS MATERIALIZED (
  SELECT mark.* FROM (SELECT DISTINCT shard FROM found WHERE holder IS NULL) AS free,
  LATERAL (SELECT shard, mark, ctid AS tid FROM token_marks WHERE shard = free.shard LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS mark
), granted AS MATERIALIZED (
  SELECT clock_timestamp() AS now, greatest(clock_timestamp(), max(mark) + interval '1 microsecond') AS token FROM marks
), marked AS (
  UPDATE token_marks SET mark = token FROM granted WHERE ctid = ANY (ARRAY(SELECT tid FROM marks))
), taken AS (
  INSERT INTO locks (project, ref, heartbeat, token, owner, nonce, stale_after)
  SELECT project, ref, now, granted.token, owner, nonce, stale_after
  FROM granted, found WHERE holder IS NULL AND shard IN (SELECT shard FROM marks)
)
SELECT n, CASE WHEN holder IS NULL THEN granted.token END, now, refs.ref IS NOT NULL, refs.value, refs.time, refs.op,
       holder, found.token, heartbeat, stands, holds
FROM granted, found
LEFT JOIN LATERAL (SELECT * FROM refs WHERE project = found.project AND ref = found.ref LIMIT 1) AS refs ON true
WHERE holder IS NOT NULL OR shard IN (SELECT shard FROM marks)`

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
		shards                         = make([]int16, n)
	)
	for i, s := range together {
		r := &s.request.request
		projects[i], refs[i], owners[i], nonces[i] = r.Project, r.Refs[0], r.Owner, r.Nonce
		staleAfter[i], shards[i] = r.StaleAfter.Microseconds(), keyOf(r.Project, r.Refs[0]).shard()
	}
	read := func(rows pgx.Rows) error {
		for rows.Next() {
			var (
				n     int
				token *time.Time
				now   time.Time
				known bool
				ref   refColumns
				lock  lockColumns
				nonce *string
			)
			if err := rows.Scan(&n, &token, &now, &known, &ref.value, &ref.time, &ref.op,
				&lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &nonce); err != nil {
				return err
			}
			s := together[n-1]
			r := &s.request.request
			a := acquisition{project: r.Project}
			if known {
				a.refs = append(a.refs, ref.ref(r.Refs[0]))
			}
			if token != nil {
				a.free, a.token = true, refdb.TokenOf(*token)
			} else {
				a.holders = append(a.holders, lock.info(r.Project, r.Refs[0], now))
			}
			// The others are stale, or our own: see Acquire.
			s.decided = a.free || a.fresh() && (nonce == nil || *nonce != r.Nonce)
			s.request.answer = a
		}
		return rows.Err()
	}
	return d.do(ctx, trip{what: "acquire locks", writes: true}.
		tryRefs(projects, refs).
		then(acquireSharedSQL, read, projects, refs, owners, nonces, staleAfter, shards))
}
