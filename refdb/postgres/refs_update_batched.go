package postgres

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// updatePlainSQL moves the refs that are not locked, that hold their expected values, and whose
// projects are not frozen, in less time than updateBatchedSQL. It returns the refs that it moved.
//
//	$1 projects  $2 refs  $3 olds  $4 news  $5 operations  $6 indices of their keys
var updatePlainSQL = bothForms(func(f form) string {
	return `
UPDATE refs SET value = new, time = clock_timestamp(), op = operation
FROM (` + f.asked("asked_project text", "asked_ref text", "old text", "new text", "operation text", "index int") + `) AS asked
WHERE project = asked_project AND ref = asked_ref AND value = old AND ` + f.gotKeys() + `
AND NOT EXISTS (SELECT FROM locks WHERE project = asked_project AND ref = asked_ref AND NOT (` + keptForNobody + `) OFFSET 0)
AND NOT EXISTS (SELECT FROM projects WHERE project = asked_project AND ` + isFrozen + ` OFFSET 0)
RETURNING index`
})

// updateBatchedSQL decides about each ref separately. A ref stays undecided if another transaction
// has locked the row of its lock, or if that row has changed since the statement began, so that it
// could be locked but not deleted.
//
//	$1 projects  $2 refs  $3 olds, NULL if absent  $4 news  $5 operations  $6 indices of their keys
//	$7 whether locks are in the way  $8 whether to adopt  $9 owners and $10 tokens of the locks to hold and release, or NULL
//	$11 places of the next waiters, or ''
var updateBatchedSQL = bothForms(func(f form) string {
	return `
WITH found AS MATERIALIZED (
  SELECT asked.*, value, owner, token, heartbeat, stale_after, now, ` + verdictOf(
		`fence IS NOT NULL AND (owner IS DISTINCT FROM holder OR coalesce(token, 'epoch') <> fence OR `+isIntent+`)`,
		`EXISTS (SELECT FROM projects WHERE project = asked.project AND `+isFrozen+` OFFSET 0)`,
		`fence IS NULL AND `+inTheWay("NOT mandatory OR owner IS NULL"),
		`fence IS NULL AND mandatory AND owner IS NOT NULL AND NOT open`,
		differs("adopt"), `false`) + ` AS verdict
  FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock, (` + f.asked("project text", "ref text", "old text", "new text", "op text", "index int",
		"mandatory boolean", "adopt boolean", "holder text", "fence timestamptz", "next text") + `) AS asked
  LEFT JOIN LATERAL (SELECT value FROM refs WHERE project = asked.project AND ref = asked.ref LIMIT 1) AS refs ON true
  LEFT JOIN LATERAL (
    SELECT owner, token, heartbeat, stale_after, ` + keptForNobody + ` AS open FROM locks WHERE project = asked.project AND ref = asked.ref LIMIT 1
  ) AS lock ON true
  WHERE ` + f.gotKeys() + `
), ends AS MATERIALIZED (
  SELECT tid, ` + placesOf("waiting", "''") + ` AS waiting, next FROM found, LATERAL (
    SELECT ctid AS tid, waiting FROM locks
    WHERE project = found.project AND ref = found.ref AND owner IS NOT DISTINCT FROM holder AND coalesce(token, 'epoch') = fence
    LIMIT 1 FOR UPDATE SKIP LOCKED
  ) AS lock
  WHERE fence IS NOT NULL AND verdict = 'done'
), ` + handOver + `, decided AS MATERIALIZED (
  SELECT found.*, told
  FROM found LEFT JOIN (SELECT project, ref, NULL::text[] AS told FROM deleted UNION ALL SELECT project, ref, told FROM handed) AS ended USING (project, ref)
  WHERE fence IS NULL OR verdict <> 'done' OR ended.ref IS NOT NULL
), written AS (
  INSERT INTO refs (project, ref, value, time, op)
  SELECT project, ref, new, now, op FROM decided WHERE verdict = 'done'
  ON CONFLICT (project, ref) DO UPDATE SET value = excluded.value, time = excluded.time, op = excluded.op
)
SELECT index, verdict, value, owner, token, heartbeat, stale_after, now, told FROM decided`
})

// An updateCall is an update of a single ref, whose fence, if any, is the lock on that ref. It is
// undecided if the answer has no verdict, or the verdict "stale".
type updateCall struct {
	request driver.UpdateRequest
	arrays  updateArrays
	index   int32 // of its keys
	answer  outcome
}

func (c *updateCall) What() string { return "update refs" }
func (c *updateCall) Key() refName { return refName{c.request.Project, c.arrays.refs[0]} }
func (c *updateCall) reset()       { c.answer = outcome{project: c.request.Project} }

func (c *updateCall) decide(d *Driver) {
	d.notifyEnded(&c.answer, c.arrays)
}

// plain reports whether updatePlainSQL can make the update.
func (c *updateCall) plain() bool {
	return c.request.Fence == nil && c.arrays.mandatory && !c.request.Adopt && c.arrays.olds[0] != nil
}

// updateColumns returns the first arguments of both statements.
func updateColumns(f form, calls []*updateCall) []any {
	return []any{
		column(f, calls, func(c *updateCall) string { return c.request.Project }),
		column(f, calls, func(c *updateCall) string { return c.arrays.refs[0] }),
		column(f, calls, func(c *updateCall) *string { return c.arrays.olds[0] }),
		column(f, calls, func(c *updateCall) string { return c.arrays.news[0] }),
		column(f, calls, func(c *updateCall) string { return operation.Text(c.request.Origin) }),
		column(f, calls, func(c *updateCall) int32 { return c.index }),
	}
}

// plainStatement returns the statement for plain updates, or none if there are no calls.
func plainStatement(f form, calls []*updateCall) []roundtrip.Statement {
	if len(calls) == 0 {
		return nil
	}
	return []roundtrip.Statement{roundtrip.Query(updatePlainSQL[f], func(rows pgx.Rows) error {
		reset(calls)
		for rows.Next() {
			var index int32
			if err := rows.Scan(&index); err != nil {
				return err
			}
			calledAt(calls, index).answer.verdict = "done"
		}
		return rows.Err()
	}, updateColumns(f, calls)...)}
}

// updateStatement returns the statement for the other updates, or none if there are no calls.
func updateStatement(f form, calls []*updateCall) []roundtrip.Statement {
	if len(calls) == 0 {
		return nil
	}
	owner := func(c *updateCall) (owner *string) {
		if c.arrays.release {
			owner = &c.arrays.owner
		}
		return owner
	}
	token := func(c *updateCall) (token *time.Time) {
		if c.arrays.release {
			token = new(c.arrays.token.Time())
		}
		return token
	}
	return []roundtrip.Statement{roundtrip.Query(updateBatchedSQL[f], func(rows pgx.Rows) error {
		reset(calls)
		for rows.Next() {
			if err := readUpdated(rows, calls); err != nil {
				return err
			}
		}
		return rows.Err()
	}, append(updateColumns(f, calls),
		column(f, calls, func(c *updateCall) bool { return c.arrays.mandatory }),
		column(f, calls, func(c *updateCall) bool { return c.request.Adopt }),
		column(f, calls, owner),
		column(f, calls, token),
		column(f, calls, func(c *updateCall) string { return c.arrays.next }))...)}
}

// calledAt returns the call with the given index of its keys.
func calledAt(calls []*updateCall, index int32) *updateCall {
	return calls[slices.IndexFunc(calls, func(c *updateCall) bool { return c.index == index })]
}

// readUpdated reads the row of one of the calls.
func readUpdated(row pgx.Rows, calls []*updateCall) error {
	var (
		index    int32
		verdict  string
		value    *string
		lock     lockColumns
		now      time.Time
		toNotify []string
	)
	if err := row.Scan(&index, &verdict, &value, &lock.owner, &lock.token, &lock.heartbeat, &lock.staleAfter, &now, &toNotify); err != nil {
		return err
	}
	c := calledAt(calls, index)
	c.answer.verdict = verdict
	c.answer.add(c.arrays.refs[0], value, lock, now, toNotify)
	return nil
}
