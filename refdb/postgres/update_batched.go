package postgres

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// updatePlainSQL moves those refs that nobody has locked and that hold what they
// should, in less time than updateBatchedSQL. It answers with the refs that it moved.
//
//	$1 projects  $2 refs  $3 olds  $4 news  $5 operations  $6 places of their keys
const updatePlainSQL = `
INSERT INTO refs (project, ref, value, time, op)
SELECT project, ref, new, clock_timestamp(), op
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[]) AS asked (project, ref, old, new, op, place)
WHERE ` + gotRef + `
AND NOT EXISTS (SELECT FROM locks WHERE project = asked.project AND ref = asked.ref OFFSET 0)
AND old = (SELECT value FROM refs WHERE project = asked.project AND ref = asked.ref LIMIT 1)
ON CONFLICT (project, ref) DO UPDATE SET value = excluded.value, time = excluded.time, op = excluded.op
RETURNING project, ref`

// updateBatchedSQL decides about each ref for itself. A lock that would have to
// be waited for, or was changed since the statement began, so that it could be
// locked but not deleted, leaves its ref undecided.
//
//	$1 projects  $2 refs  $3 olds, NULL if absent  $4 news  $5 operations  $6 places of their keys
//	$7 whether locks are in the way  $8 whether to adopt  $9 owners and $10 tokens of the locks to hold and release, or NULL
const updateBatchedSQL = `
WITH found AS MATERIALIZED (
  SELECT asked.*, value, owner, token, heartbeat, stale_after, now, CASE
    WHEN fence IS NOT NULL AND (owner IS DISTINCT FROM holder OR coalesce(token, 'epoch') <> fence OR ` + isIntent + `) THEN 'lost'
    WHEN fence IS NULL AND heeding AND owner IS NOT NULL THEN CASE WHEN ` + isStale + ` THEN 'stale' ELSE 'locked' END
    WHEN fence IS NULL AND ` + isIntent + ` THEN 'locked'
    WHEN CASE
      WHEN value IS NULL THEN old IS NOT NULL AND NOT adopt
      WHEN value IN ` + absent + ` THEN old IS NOT NULL
      ELSE value IS DISTINCT FROM old
    END THEN 'differs'
    ELSE 'done'
  END AS verdict
  FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock,
  unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::boolean[], $8::boolean[], $9::text[], $10::timestamptz[])
    AS asked (project, ref, old, new, op, place, heeding, adopt, holder, fence)
  LEFT JOIN LATERAL (SELECT value FROM refs WHERE project = asked.project AND ref = asked.ref LIMIT 1) AS refs ON true
  LEFT JOIN LATERAL (
    SELECT owner, token, heartbeat, stale_after FROM locks WHERE project = asked.project AND ref = asked.ref LIMIT 1
  ) AS lock ON true
  WHERE ` + gotRef + `
), deleted AS (
  DELETE FROM locks WHERE ctid = ANY (ARRAY(
    SELECT tid FROM found, LATERAL (
      SELECT ctid AS tid FROM locks
      WHERE project = found.project AND ref = found.ref AND owner IS NOT DISTINCT FROM holder AND coalesce(token, 'epoch') = fence
      LIMIT 1 FOR UPDATE SKIP LOCKED
    ) AS lock
    WHERE fence IS NOT NULL AND verdict = 'done'
  ))
  RETURNING project, ref, waiting
), decided AS MATERIALIZED (
  SELECT found.*, waiting FROM found LEFT JOIN deleted USING (project, ref)
  WHERE fence IS NULL OR verdict <> 'done' OR deleted.ref IS NOT NULL
), written AS (
  INSERT INTO refs (project, ref, value, time, op)
  SELECT project, ref, new, now, op FROM decided WHERE verdict = 'done'
  ON CONFLICT (project, ref) DO UPDATE SET value = excluded.value, time = excluded.time, op = excluded.op
)
SELECT place, verdict, value, owner, token, heartbeat, stale_after, now, waiting FROM decided`

// An updateCall is an update of a single ref, with the lock on it as its fence or
// none. It is undecided if the answer has no verdict, or "stale".
type updateCall struct {
	request refdb.UpdateRequest
	change  change
	answer  outcome
	updated refdb.Updated // if it was done
}

func (c *updateCall) what() string          { return "update refs" }
func (c *updateCall) ref() refName          { return refName{c.request.Project, c.change.refs[0]} }
func (c *updateCall) queues() []refdb.Queue { return c.updated.Queues }

// decide makes the answer, and wakes those who wait.
func (c *updateCall) decide(d *Driver) {
	if c.answer.verdict == "done" {
		c.updated = d.updated(c.request, &c.answer)
	}
}

// plain reports whether updatePlainSQL may do.
func (c *updateCall) plain() bool {
	return c.request.Fence == nil && c.change.heeds && !c.request.Adopt && c.change.olds[0] != nil
}

// updateColumns are updateCalls as arrays.
type updateColumns struct {
	calls                     []*updateCall
	projects, refs, news, ids []string
	olds, owners              []*string
	heeding, adopt            []bool
	places                    []int32
	fences                    []*time.Time
}

func (u *updateColumns) add(call *updateCall, place int) {
	r, c := &call.request, &call.change
	u.calls, u.places = append(u.calls, call), append(u.places, int32(place))
	u.projects, u.refs, u.news, u.ids = append(u.projects, r.Project), append(u.refs, c.refs[0]), append(u.news, c.news[0]), append(u.ids, r.ID)
	u.olds, u.heeding, u.adopt = append(u.olds, c.olds[0]), append(u.heeding, c.heeds), append(u.adopt, r.Adopt)
	var owner *string
	var fence *time.Time
	if c.release {
		owner, fence = &c.owner, new(c.token.Time())
	}
	u.owners, u.fences = append(u.owners, owner), append(u.fences, fence)
}

// plainArgs are the arguments of updatePlainSQL, args those of updateBatchedSQL.
func (u *updateColumns) plainArgs() []any {
	return []any{u.projects, u.refs, u.olds, u.news, u.ids, u.places}
}
func (u *updateColumns) args() []any {
	return append(u.plainArgs(), u.heeding, u.adopt, u.owners, u.fences)
}

// reset leaves all calls undecided.
func (u *updateColumns) reset() {
	for _, c := range u.calls {
		c.answer = outcome{project: c.request.Project}
	}
}

func (u *updateColumns) readPlain(rows pgx.Rows) error {
	u.reset()
	named := make(map[refName]*updateCall, len(u.calls))
	for _, c := range u.calls {
		named[c.ref()] = c
	}
	for rows.Next() {
		var name refName
		if err := rows.Scan(&name.project, &name.ref); err != nil {
			return err
		}
		named[name].answer.verdict = "done"
	}
	return rows.Err()
}

func (u *updateColumns) read(rows pgx.Rows) error {
	u.reset()
	for rows.Next() {
		var (
			place   int32
			verdict string
			value   *string
			lock    lockColumns
			now     time.Time
			waiting []string
		)
		if err := rows.Scan(&place, &verdict, &value, &lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &now, &waiting); err != nil {
			return err
		}
		c := u.calls[slices.Index(u.places, place)]
		c.answer.verdict = verdict
		c.answer.add(c.change.refs[0], value, lock, now, waiting)
	}
	return rows.Err()
}
