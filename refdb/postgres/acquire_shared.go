package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// acquireSharedSQL takes the locks on refs that nobody holds. Of a ref that is
// locked it returns the lock. A mark that others have locked, or changed since
// the statement began, leaves its refs undecided.
//
//	$1 projects  $2 refs  $3 owners  $4 nonces  $5 stale_after, µs  $6 shards
const acquireSharedSQL = `
WITH found AS MATERIALIZED (
  SELECT asked.*, lock.* FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::smallint[])
    WITH ORDINALITY AS asked (project, ref, owner, nonce, stale_after, shard, n)
  LEFT JOIN LATERAL (
    SELECT owner AS holder, token AS held, heartbeat, stale_after AS stands, nonce AS holds
    FROM locks WHERE project = asked.project AND ref = asked.ref LIMIT 1
  ) AS lock ON true
  WHERE ` + gotRef + `
), free AS MATERIALIZED (
  SELECT found.*, mark, tid FROM found, LATERAL (
    SELECT mark, ctid AS tid FROM token_marks WHERE token_marks.shard = found.shard LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
  ) AS marks
  WHERE holder IS NULL
), granted AS MATERIALIZED (
  SELECT clock_timestamp() AS now, greatest(clock_timestamp(), max(mark) + interval '1 microsecond') AS token FROM free
), marked AS (
  UPDATE token_marks SET mark = token FROM granted WHERE ctid = ANY (ARRAY(SELECT tid FROM free))
  RETURNING shard
), taking AS MATERIALIZED (
  SELECT * FROM free WHERE shard = ANY (ARRAY(SELECT shard FROM marked))
), taken AS (
  INSERT INTO locks (project, ref, heartbeat, token, owner, nonce, stale_after)
  SELECT project, ref, now, token, owner, nonce, stale_after FROM granted, taking
)
SELECT n, token, now, known, value, time, op, NULL AS holder, NULL::timestamptz AS held,
       NULL::timestamptz AS heartbeat, NULL::bigint AS stands, NULL AS holds
FROM granted, taking LEFT JOIN LATERAL (
  SELECT true AS known, value, time, op FROM refs WHERE project = taking.project AND ref = taking.ref LIMIT 1
) AS refs ON true
UNION ALL
SELECT n, NULL, now, NULL, NULL, NULL, NULL, holder, held, heartbeat, stands, holds
FROM granted, found WHERE holder IS NOT NULL`

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
				known *bool
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
			if known != nil {
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
