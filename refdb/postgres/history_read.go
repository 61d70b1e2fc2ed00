package postgres

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// changesSQL returns the state, the row that the reader read last, and a page of changes, all from
// one snapshot.
//
//	$1 to $3 position, project and ref to begin after  $4 how many  $5 to $7 the row read last
func changesSQL(selected string) string {
	return `
WITH ` + state + `, page AS MATERIALIZED (
  SELECT ` + changeColumns + ` FROM history
  WHERE position >= greatest($1, (SELECT pruned FROM state)) AND position <= (SELECT upto FROM state)
    AND (position, project, ref) > ($1::bigint, $2::text, $3::text)` + selected + `
  ORDER BY position, project, ref LIMIT $4
)
SELECT ` + stateColumns + `, last.position IS NOT NULL, last.op, ` + noChange + `
FROM ` + fromState + ` LEFT JOIN LATERAL (SELECT position, op FROM history WHERE position = $5 AND project = $6 AND ref = $7) AS last ON true
UNION ALL
(SELECT ` + noState + `, NULL, NULL, ` + changeColumns + ` FROM page ORDER BY position, project, ref)`
}

var (
	changesOfAllSQL     = changesSQL("")
	changesOfProjectSQL = changesSQL(` AND project = $8`)
	changesOfPrefixSQL  = changesSQL(` AND project = $8 AND ref >= $9`)
	changesOfRangeSQL   = changesSQL(` AND project = $8 AND ref >= $9 AND ref < $10`)
)

// Changes reads one page.
func (d *Driver) Changes(ctx context.Context, r driver.ChangesRequest) (page driver.ChangesPage, err error) {
	sql := changesOfAllSQL
	args := []any{int64(r.After.Position), r.After.Project, r.After.Ref, r.Limit + 1, int64(r.Last.Position), r.Last.Project, r.Last.Ref}
	if r.Project != "" {
		sql, args = changesOfProjectSQL, append(args, r.Project)
		if r.Prefix != "" {
			sql, args = changesOfPrefixSQL, append(args, r.Prefix)
			if end, ok := prefixEnd(r.Prefix); ok {
				sql, args = changesOfRangeSQL, append(args, end)
			}
		}
	}
	err = d.pools.Do(ctx, roundtrip.Read("read changes").Query(sql, func(rows pgx.Rows) error {
		page = driver.ChangesPage{}
		var s stateRow
		var found *bool
		var lastOp *string
		var c changeRow
		_, err := pgx.ForEachRow(rows, append(append(s.into(), &found, &lastOp), c.into()...), func() error {
			if !s.read(&page.State) {
				page.Changes = append(page.Changes, c.change())
				return nil
			}
			page.LastFound = *found
			if lastOp != nil {
				page.LastOp = operation.ID(*lastOp)
			}
			return nil
		})
		return err
	}, args...))
	if err != nil {
		return driver.ChangesPage{}, err
	}
	page.Next = driver.ChangeKey{Position: page.State.Upto + 1}
	if len(page.Changes) > r.Limit {
		page.Changes = page.Changes[:r.Limit]
		page.Next = page.Changes[r.Limit-1].Key()
	}
	return page, nil
}

// newestSQL returns the state and the last complete change.
const newestSQL = `
WITH ` + state + `, newest AS MATERIALIZED (
  SELECT ` + changeColumns + ` FROM history
  WHERE position >= (SELECT pruned FROM state) AND position <= (SELECT upto FROM state)
  ORDER BY position DESC, project DESC, ref DESC LIMIT 1
)
SELECT ` + stateColumns + `, ` + noChange + ` FROM ` + fromState + `
UNION ALL
SELECT ` + noState + `, ` + changeColumns + ` FROM newest`

// Newest takes one statement.
func (d *Driver) Newest(ctx context.Context) (newest driver.Change, state driver.HistoryState, err error) {
	err = d.pools.Do(ctx, roundtrip.Read("find the newest change").Query(newestSQL, func(rows pgx.Rows) error {
		newest = driver.Change{}
		var s stateRow
		var c changeRow
		_, err := pgx.ForEachRow(rows, append(s.into(), c.into()...), func() error {
			if !s.read(&state) {
				newest = c.change()
			}
			return nil
		})
		return err
	}))
	return newest, state, err
}

// tipSQL returns the state, and the end of the history of project $1. Each subquery with a limit
// reads one entry of an index, whatever statistics the planner has.
const tipSQL = `
WITH ` + state + `
SELECT ` + stateColumns + `, refdb_server(),
  (SELECT position FROM history WHERE project = $1 ORDER BY project DESC, position DESC, ref DESC LIMIT 1),
  (SELECT true FROM intents WHERE project = $1 AND decision IS NULL ORDER BY project, ref, token LIMIT 1),
  (SELECT revision FROM projects WHERE project = $1)
FROM ` + fromState

// Tip takes one statement.
func (d *Driver) Tip(ctx context.Context, project string) (t driver.Tip, err error) {
	err = d.pools.Do(ctx, roundtrip.Read("find the tip of a project").Query(tipSQL, func(rows pgx.Rows) error {
		t = driver.Tip{}
		var s stateRow
		var newest, revision *int64
		var pending *bool
		_, err := pgx.ForEachRow(rows, append(s.into(), &t.Server, &newest, &pending, &revision), func() error {
			s.read(&t.State)
			if newest != nil {
				t.Newest = driver.Position(*newest)
			}
			if revision != nil {
				t.Revision = *revision
			}
			t.Pending = pending != nil
			return nil
		})
		return err
	}, project))
	if err != nil {
		return driver.Tip{}, err
	}
	return t, nil
}

// logSQL returns the state and a page of a project's changes.
//
//	$1 project  $2 and $3 position and ref to end before  $4 how many
func logSQL(selected string) string {
	return `
WITH ` + state + `, page AS MATERIALIZED (
  SELECT ` + changeColumns + ` FROM history WHERE project = $1 AND (position, ref) < ($2::bigint, $3::text)` + selected + `
  ORDER BY position DESC, ref DESC LIMIT $4
)
SELECT ` + stateColumns + `, ` + noChange + ` FROM ` + fromState + `
UNION ALL
(SELECT ` + noState + `, ` + changeColumns + ` FROM page ORDER BY position DESC, ref DESC)`
}

var (
	logOfProjectSQL = logSQL("")
	logOfRefSQL     = logSQL(` AND position <= $2 AND ref = $5`)
)

// Log reads one page.
func (d *Driver) Log(ctx context.Context, r driver.LogRequest) (page driver.LogPage, err error) {
	before := r.Before
	if before == (driver.ChangeKey{}) {
		before.Position = math.MaxInt64
	}
	sql, args := logOfProjectSQL, []any{r.Project, int64(before.Position), before.Ref, r.Limit + 1}
	if r.Ref != "" {
		sql, args = logOfRefSQL, append(args, r.Ref)
	}
	err = d.pools.Do(ctx, roundtrip.Read("read a log").Query(sql, func(rows pgx.Rows) error {
		page = driver.LogPage{}
		var s stateRow
		var c changeRow
		_, err := pgx.ForEachRow(rows, append(s.into(), c.into()...), func() error {
			if !s.read(&page.State) {
				page.Changes = append(page.Changes, c.change())
			}
			return nil
		})
		return err
	}, args...))
	if err != nil {
		return driver.LogPage{}, err
	}
	if len(page.Changes) > r.Limit {
		page.Changes = page.Changes[:r.Limit]
		page.Next = page.Changes[r.Limit-1].Key()
	}
	return page, nil
}

// pastSQL returns the state and a page of a project's refs at a position. A ref's value at that
// position is the old value of its first later change or, without a later change, its present
// value. A ref without a row is found in the history, whose index is read from name to name.
//
//	$1 project  $2 the first name  $3 the name to begin after  $4 how many names  $5 position  $6 whether to include deleted refs
func pastSQL(inPrefix func(ref string) string) string {
	return `
WITH RECURSIVE ` + state + `, recorded (ref) AS (
  (SELECT ref FROM history WHERE project = $1 AND ref >= $2 AND ref > $3` + inPrefix("ref") + ` ORDER BY ref LIMIT 1)
  UNION ALL
  SELECT next.ref FROM recorded, LATERAL (
    SELECT ref FROM history WHERE project = $1 AND ref > recorded.ref` + inPrefix("ref") + ` ORDER BY ref LIMIT 1
  ) AS next
), names AS MATERIALIZED (
  SELECT ref FROM (
    (SELECT ref FROM refs WHERE project = $1 AND ref >= $2 AND ref > $3` + inPrefix("ref") + ` ORDER BY ref LIMIT $4)
    UNION
    (SELECT ref FROM recorded LIMIT $4)
  ) AS both_tables ORDER BY ref LIMIT $4
), past AS MATERIALIZED (
  SELECT names.ref, coalesce(after.old, now.value, '') AS value,
         CASE WHEN made.time IS NOT NULL THEN made.time WHEN after.old IS NULL THEN now.time END AS time,
         CASE WHEN made.time IS NOT NULL THEN made.op WHEN after.old IS NULL THEN now.op END AS op
  FROM names
  LEFT JOIN LATERAL (SELECT old FROM history WHERE project = $1 AND ref = names.ref AND position > $5 ORDER BY position LIMIT 1) AS after ON true
  LEFT JOIN LATERAL (SELECT time, op FROM history WHERE project = $1 AND ref = names.ref AND position <= $5 ORDER BY position DESC LIMIT 1) AS made ON true
  LEFT JOIN LATERAL (SELECT value, time, op FROM refs WHERE project = $1 AND ref = names.ref LIMIT 1) AS now ON true
)
SELECT ` + stateColumns + `, (SELECT max(ref) FROM names HAVING count(*) = $4), NULL, NULL, NULL::timestamptz, NULL FROM ` + fromState + `
UNION ALL
(SELECT ` + noState + `, NULL, ref, value, time, op FROM past WHERE value <> '' AND ($6 OR value NOT IN ` + zeroIDs + `) ORDER BY ref)`
}

var (
	pastOfAllSQL   = pastSQL(func(string) string { return "" })
	pastOfRangeSQL = pastSQL(func(ref string) string { return ` AND ` + ref + ` < $7` })
)

// Past reads one page.
func (d *Driver) Past(ctx context.Context, r driver.PastRequest) (page driver.PastPage, err error) {
	sql, args := pastOfAllSQL, []any{r.Project, r.Prefix, r.After, int64(r.Limit), int64(r.At), r.Deleted}
	if end, ok := prefixEnd(r.Prefix); ok {
		sql, args = pastOfRangeSQL, append(args, end)
	}
	err = d.pools.Do(ctx, roundtrip.Read("list refs of the past").Query(sql, func(rows pgx.Rows) error {
		page = driver.PastPage{}
		var s stateRow
		var next, name, value, op *string
		var at *time.Time
		_, err := pgx.ForEachRow(rows, append(s.into(), &next, &name, &value, &at, &op), func() error {
			if s.read(&page.State) {
				if next != nil {
					page.Next = *next
				}
				return nil
			}
			ref := driver.Ref{Name: *name, Value: driver.Value(*value)}
			if at != nil {
				ref.Time = at.UTC()
			}
			if op != nil {
				ref.Op = operation.ID(*op)
			}
			page.Refs = append(page.Refs, ref)
			return nil
		})
		return err
	}, args...))
	return page, err
}

// positionAtSQL finds the first change, in order of time, after $1. A few changes with smaller
// positions may be even later; they are found through the block summaries of the table's BRIN
// index.
const positionAtSQL = `
WITH ` + state + `, later AS MATERIALIZED (
  SELECT position FROM history WHERE time > $1 ORDER BY time, position LIMIT 1
), first AS MATERIALIZED (
  SELECT min(position) AS position FROM (
    SELECT position FROM later
    UNION ALL
    SELECT position FROM history WHERE time > $1 AND position < (SELECT position FROM later)
  ) AS both_searches
)
SELECT ` + stateColumns + `, least(upto, first.position - 1) FROM ` + fromState + `, first`

// PositionAt takes one statement.
func (d *Driver) PositionAt(ctx context.Context, t time.Time) (at driver.Position, state driver.HistoryState, err error) {
	err = d.pools.Do(ctx, roundtrip.Read("find a position").Query(positionAtSQL, func(rows pgx.Rows) error {
		var s stateRow
		var position int64
		_, err := pgx.ForEachRow(rows, append(s.into(), &position), func() error {
			s.read(&state)
			at = driver.Position(position)
			return nil
		})
		return err
	}, t))
	return at, state, err
}
