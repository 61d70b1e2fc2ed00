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
FROM (
  SELECT unnest($1::text[]) AS project, unnest($2::text[]) AS ref, unnest($3::text[]) AS old, unnest($4::text[]) AS new,
         unnest($5::text[]) AS op, unnest($6::int[]) AS place
) AS asked
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
  FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock, (
    SELECT unnest($1::text[]) AS project, unnest($2::text[]) AS ref, unnest($3::text[]) AS old, unnest($4::text[]) AS new,
           unnest($5::text[]) AS op, unnest($6::int[]) AS place, unnest($7::boolean[]) AS heeding, unnest($8::boolean[]) AS adopt,
           unnest($9::text[]) AS holder, unnest($10::timestamptz[]) AS fence
  ) AS asked
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
	place   int32 // of its keys
	answer  outcome
	updated refdb.Updated // if it was done
}

func (c *updateCall) what() string          { return "update refs" }
func (c *updateCall) ref() refName          { return refName{c.request.Project, c.change.refs[0]} }
func (c *updateCall) queues() []refdb.Queue { return c.updated.Queues }
func (c *updateCall) reset()                { c.answer = outcome{project: c.request.Project} }

func (c *updateCall) decide(d *Driver) {
	if c.answer.verdict == "done" {
		c.updated = d.updated(c.request, &c.answer)
	}
}

// plain reports whether updatePlainSQL may do.
func (c *updateCall) plain() bool {
	return c.request.Fence == nil && c.change.heeds && !c.request.Adopt && c.change.olds[0] != nil
}

// updateColumns are the first arguments of both statements.
func updateColumns(calls []*updateCall) []any {
	return []any{
		column(calls, func(c *updateCall) string { return c.request.Project }),
		column(calls, func(c *updateCall) string { return c.change.refs[0] }),
		column(calls, func(c *updateCall) *string { return c.change.olds[0] }),
		column(calls, func(c *updateCall) string { return c.change.news[0] }),
		column(calls, func(c *updateCall) string { return c.request.ID }),
		column(calls, func(c *updateCall) int32 { return c.place }),
	}
}

// plainCalls adds the statement for plain updates, if there are any.
func (t roundTrip) plainCalls(calls []*updateCall) roundTrip {
	if len(calls) == 0 {
		return t
	}
	named := byName(calls)
	return t.then(updatePlainSQL, func(rows pgx.Rows) error {
		reset(calls)
		for rows.Next() {
			var name refName
			if err := rows.Scan(&name.project, &name.ref); err != nil {
				return err
			}
			named[name].answer.verdict = "done"
		}
		return rows.Err()
	}, updateColumns(calls)...)
}

// updateCalls adds the statement for the other updates, if there are any.
func (t roundTrip) updateCalls(calls []*updateCall) roundTrip {
	if len(calls) == 0 {
		return t
	}
	owner := func(c *updateCall) (owner *string) {
		if c.change.release {
			owner = &c.change.owner
		}
		return owner
	}
	token := func(c *updateCall) (token *time.Time) {
		if c.change.release {
			token = new(c.change.token.Time())
		}
		return token
	}
	return t.then(updateBatchedSQL, func(rows pgx.Rows) error {
		reset(calls)
		for rows.Next() {
			if err := readUpdated(rows, calls); err != nil {
				return err
			}
		}
		return rows.Err()
	}, append(updateColumns(calls),
		column(calls, func(c *updateCall) bool { return c.change.heeds }),
		column(calls, func(c *updateCall) bool { return c.request.Adopt }),
		column(calls, owner),
		column(calls, token))...)
}

// readUpdated reads the row of one of the calls.
func readUpdated(row pgx.Rows, calls []*updateCall) error {
	var (
		place   int32
		verdict string
		value   *string
		lock    lockColumns
		now     time.Time
		waiting []string
	)
	if err := row.Scan(&place, &verdict, &value, &lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &now, &waiting); err != nil {
		return err
	}
	c := calls[slices.IndexFunc(calls, func(c *updateCall) bool { return c.place == place })]
	c.answer.verdict = verdict
	c.answer.add(c.change.refs[0], value, lock, now, waiting)
	return nil
}
