package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// updatePlainSharedSQL is updatePlainSQL for several refs.
//
//	$1 projects  $2 refs  $3 olds  $4 news  $5 operations  $6 whether locks are in the way  $7 places of their keys
const updatePlainSharedSQL = `
UPDATE refs SET value = new, time = clock_timestamp(), op = asked.op
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::boolean[], $7::int[])
  WITH ORDINALITY AS asked (project, ref, old, new, op, heeding, place, n),
LATERAL (SELECT ctid AS tid FROM refs WHERE project = asked.project AND ref = asked.ref LIMIT 1) AS found
WHERE refs.ctid = tid AND value = old AND ` + gotRef + `
AND NOT EXISTS (SELECT FROM locks WHERE project = asked.project AND ref = asked.ref AND (heeding OR ` + isIntent + `) OFFSET 0)
RETURNING n`

// updateSharedSQL decides about each ref for itself. A lock that would have to
// be waited for, is stale, or was changed since the statement began, so that it
// could be locked but not deleted, leaves its ref undecided.
//
//	$1 projects  $2 refs  $3 olds, NULL if absent  $4 news  $5 operations  $6 whether locks are in the way
//	$7 places of their keys  $8 whether to adopt  $9 tokens of the locks to hold and release, or NULL
const updateSharedSQL = `
WITH found AS MATERIALIZED (
  SELECT asked.*, lock.*, now, known, value, CASE
    WHEN fence IS NOT NULL AND (owner IS NULL OR coalesce(token, 'epoch') <> fence OR ` + isIntent + `) THEN 'lost'
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
  unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::boolean[], $7::int[], $8::boolean[], $9::timestamptz[])
    WITH ORDINALITY AS asked (project, ref, old, new, op, heeding, place, adopt, fence, n)
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

// An updateCall is an update of a single ref, and the answer: no verdict if it is undecided.
type updateCall struct {
	transaction refdb.Transaction
	change      change
	answer      outcome
}

func (c *updateCall) what() string { return "update refs" }
func (c *updateCall) ref() refName { return refName{c.transaction.Project, c.change.refs[0]} }

// updateColumns are updateCalls as arrays.
type updateColumns struct {
	calls                     []*updateCall
	projects, refs, news, ids []string
	olds                      []*string
	heeding, adopt            []bool
	places                    []int32
	fences                    []*time.Time
}

func (u *updateColumns) add(call *updateCall, place int) {
	t, c := &call.transaction, &call.change
	u.calls, u.places = append(u.calls, call), append(u.places, int32(place))
	u.projects, u.refs, u.news, u.ids = append(u.projects, t.Project), append(u.refs, c.refs[0]), append(u.news, c.news[0]), append(u.ids, t.ID)
	u.olds, u.heeding = append(u.olds, c.olds[0]), append(u.heeding, c.heeds)
	u.adopt, u.fences = append(u.adopt, t.Adopt), append(u.fences, c.fenceTime())
}

// plainArgs are the arguments of updatePlainSharedSQL, args those of updateSharedSQL.
func (u *updateColumns) plainArgs() []any {
	return []any{u.projects, u.refs, u.olds, u.news, u.ids, u.heeding, u.places}
}
func (u *updateColumns) args() []any { return append(u.plainArgs(), u.adopt, u.fences) }

// reset has no call answered.
func (u *updateColumns) reset() {
	for _, c := range u.calls {
		c.answer = outcome{project: c.transaction.Project}
	}
}

func (u *updateColumns) readPlain(rows pgx.Rows) error {
	u.reset()
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			return err
		}
		u.calls[n-1].answer.verdict = "done"
	}
	return rows.Err()
}

// freed are the locks that were released and somebody waits for.
func (u *updateColumns) freed() (all []freedLock) {
	for _, c := range u.calls {
		if c.answer.verdict == "done" {
			all = append(all, c.answer.freedBy(c.transaction)...)
		}
	}
	return all
}

func (u *updateColumns) read(rows pgx.Rows) error {
	u.reset()
	for rows.Next() {
		var (
			n       int
			verdict string
			value   *string
			lock    lockColumns
			now     time.Time
			waiting []string
		)
		if err := rows.Scan(&n, &verdict, &value, &lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &now, &waiting); err != nil {
			return err
		}
		c := u.calls[n-1]
		c.answer.verdict = verdict
		c.answer.add(c.change.refs[0], value, lock, now, waiting)
	}
	return rows.Err()
}
