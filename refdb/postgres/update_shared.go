package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// updateSharedSQL decides about each ref for itself. A lock that would have to
// be waited for, is stale, or was changed since the statement began, so that it
// could be locked but not deleted, leaves its ref undecided.
//
//	$1 projects  $2 refs  $3 olds, NULL if absent  $4 news  $5 operations  $6 whether to adopt
//	$7 tokens of the locks to hold and release, or NULL  $8 whether locks are in the way
const updateSharedSQL = `
WITH found AS MATERIALIZED (
  SELECT asked.*, lock.*, now, known, value, CASE
    WHEN fence IS NOT NULL AND (owner IS NULL OR coalesce(token, 'epoch') <> fence) THEN 'lost'
    WHEN fence IS NULL AND heeding AND owner IS NOT NULL THEN CASE WHEN ` + isStale + ` THEN NULL ELSE 'locked' END
    WHEN fence IS NULL AND ` + isIntent + ` THEN 'locked'
    WHEN CASE
      WHEN known IS NULL THEN old IS NOT NULL AND NOT adopt
      WHEN value IN ` + absent + ` THEN old IS NOT NULL
      ELSE value IS DISTINCT FROM old
    END THEN 'differs'
    ELSE 'done'
  END AS verdict
  FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock,
  unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::boolean[], $7::timestamptz[], $8::boolean[])
    WITH ORDINALITY AS asked (project, ref, old, new, op, adopt, fence, heeding, n)
  LEFT JOIN LATERAL (SELECT true AS known, value FROM refs WHERE project = asked.project AND ref = asked.ref LIMIT 1) AS refs ON true
  LEFT JOIN LATERAL (
    SELECT owner, token, heartbeat, stale_after FROM locks WHERE project = asked.project AND ref = asked.ref LIMIT 1
  ) AS lock ON true
  WHERE ` + gotRef + `
), doomed AS MATERIALIZED (
  SELECT n, project, ref, new, op, now, lock.* FROM found, LATERAL (
    SELECT ctid AS tid, waiting FROM locks
    WHERE project = found.project AND ref = found.ref AND coalesce(token, 'epoch') = fence
    LIMIT 1 FOR UPDATE SKIP LOCKED
  ) AS lock
  WHERE fence IS NOT NULL AND verdict = 'done'
), deleted AS (
  DELETE FROM locks WHERE ctid = ANY (ARRAY(SELECT tid FROM doomed))
  RETURNING ctid
), ended AS MATERIALIZED (
  SELECT * FROM doomed WHERE tid = ANY (ARRAY(SELECT ctid FROM deleted))
), written AS (
  INSERT INTO refs (project, ref, value, time, op)
  SELECT project, ref, new, now, op FROM found WHERE fence IS NULL AND verdict = 'done'
  UNION ALL
  SELECT project, ref, new, now, op FROM ended
  ON CONFLICT (project, ref) DO UPDATE SET value = excluded.value, time = excluded.time, op = excluded.op
)
SELECT n, verdict, value, owner, token, heartbeat, stale_after, now, NULL::text[] AS waiting
FROM found WHERE verdict <> 'done' OR fence IS NULL AND verdict = 'done'
UNION ALL
SELECT n, 'done', NULL, NULL, NULL, NULL, NULL, now, waiting FROM ended`

// An updateCall is an update of a single ref, and the answer.
type updateCall struct {
	transaction refdb.Transaction
	change      change
	answer      outcome
}

// updateShared is the trip of a lane.
func (d *Driver) updateShared(ctx context.Context, together []*seat[updateCall]) error {
	n := len(together)
	var (
		projects, refs, news, ids = make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		olds                      = make([]*string, n)
		adopt, heeding            = make([]bool, n), make([]bool, n)
		fences                    = make([]*time.Time, n)
	)
	for i, s := range together {
		t, c := &s.request.transaction, &s.request.change
		projects[i], refs[i], olds[i], news[i], ids[i] = t.Project, c.refs[0], c.olds[0], c.news[0], t.ID
		adopt[i], heeding[i], fences[i] = t.Adopt, c.heeds, c.fenceTime()
	}
	read := func(rows pgx.Rows) error {
		for rows.Next() {
			var (
				n       int
				o       outcome
				value   *string
				lock    lockColumns
				now     time.Time
				waiting []string
			)
			if err := rows.Scan(&n, &o.verdict, &value, &lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &now, &waiting); err != nil {
				return err
			}
			s := together[n-1]
			o.project = s.request.transaction.Project
			o.add(s.request.change.refs[0], value, lock, now, waiting)
			s.request.answer, s.decided = o, true
		}
		return rows.Err()
	}
	return d.do(ctx, trip{what: "update refs", writes: true}.
		tryRefs(projects, refs).
		then(updateSharedSQL, read, projects, refs, olds, news, ids, adopt, fences, heeding))
}
