package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// These are the values of an absent ref. This package never writes the empty one.
const (
	zeroIDs = `('` + string(driver.Deleted) + `', '` + string(driver.Deleted256) + `')`
	absent  = `('', '` + string(driver.Deleted) + `', '` + string(driver.Deleted256) + `')`
)

// refColumns are the columns of refs without the key, all of them NULL if there is no row.
type refColumns struct {
	value pgtype.Text
	time  pgtype.Timestamptz
	op    pgtype.Text
}

func (c refColumns) ref(name string) driver.Ref {
	r := driver.Ref{Name: name, Value: driver.Value(c.value.String), Op: operation.ID(c.op.String)}
	if c.time.Valid {
		r.Time = c.time.Time.UTC()
	}
	return r
}

// refs are read from rows with name, value, time and op.
type refs []driver.Ref

func (r *refs) read(rows pgx.Rows) error {
	*r = nil
	for rows.Next() {
		var name string
		var c refColumns
		if err := rows.Scan(&name, &c.value, &c.time, &c.op); err != nil {
			return err
		}
		*r = append(*r, c.ref(name))
	}
	return rows.Err()
}

// refOfAsked selects the row of asked.ref of project $1, and its location.
const refOfAsked = `SELECT *, ctid AS tid FROM refs WHERE project = $1 AND ref = asked.ref LIMIT 1`

const getSQL = `
SELECT refs.ref, value, time, op FROM unnest($2::text[]) AS asked (ref), LATERAL (` + refOfAsked + `) AS refs`

// Get takes one statement, so it returns the refs as of one moment.
func (d *Driver) Get(ctx context.Context, project string, names []string) ([]driver.Ref, error) {
	var found refs
	err := d.pools.Do(ctx, roundtrip.Read("get refs").Query(getSQL, found.read, project, names))
	return found, err
}

const statesSQL = `
SELECT asked.ref, value, owner, token, heartbeat, stale_after, now
FROM unnest($2::text[]) AS asked (ref) CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) AS clock
LEFT JOIN LATERAL (` + refOfAsked + `) AS refs ON true
LEFT JOIN LATERAL (` + lockOfAsked + `) AS lock ON true
WHERE refs.ref IS NOT NULL OR lock.ref IS NOT NULL`

// States reads values and locks in one statement, as of one moment at which the server was
// admitted.
func (d *Driver) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	const what = "get refs and locks"
	var states []driver.State
	var named bool
	names := func(rows pgx.Rows) error {
		named = rows.Next()
		return rows.Err()
	}
	err := d.pools.Do(ctx, roundtrip.Read(what).Query(requireNamedSQL, names).Query(statesSQL, func(rows pgx.Rows) error {
		states = nil
		for rows.Next() {
			var (
				s     driver.State
				value *driver.Value
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
	if err == nil && !named {
		return nil, fmt.Errorf("%s: %w: the table admission is empty, as while a dump is being restored", what, driver.ErrNotAdmitted)
	}
	return states, err
}

// A page starts at the index entry of its first ref.
const (
	listSQL = `
SELECT ref, value, time, op FROM refs
WHERE project = $1 AND ref >= $2 AND ref > $3 AND ($4 OR value NOT IN ` + zeroIDs + `)
ORDER BY ref LIMIT $5`

	listPrefixSQL = `
SELECT ref, value, time, op FROM refs
WHERE project = $1 AND ref >= $2 AND ref < $6 AND ref > $3 AND ($4 OR value NOT IN ` + zeroIDs + `)
ORDER BY ref LIMIT $5`
)

// List reads one page.
func (d *Driver) List(ctx context.Context, q driver.RefQuery) (page driver.RefPage, err error) {
	sql, args := listSQL, []any{q.Project, q.Prefix, q.After, q.Deleted, q.Limit}
	if end, ok := prefixEnd(q.Prefix); ok {
		sql, args = listPrefixSQL, append(args, end)
	}
	var found refs
	err = d.pools.Do(ctx, roundtrip.Read("list refs").Query(sql, found.read, args...))
	page.Refs = found
	if n := len(found); err == nil && n > 0 && n == q.Limit {
		page.Next = found[n-1].Name
	}
	return page, err
}

// prefixEnd returns the smallest string that is greater, by bytes, than all strings with the
// prefix. No string is greater than all that begin with the last code point.
func prefixEnd(prefix string) (end string, ok bool) {
	prefix = strings.TrimRight(prefix, string(utf8.MaxRune))
	last, size := utf8.DecodeLastRuneInString(prefix)
	if size == 0 {
		return "", false
	}
	next := last + 1
	if !utf8.ValidRune(next) { // UTF-8 has no surrogates
		next = 0xE000
	}
	return prefix[:len(prefix)-size] + string(next), true
}

// summariesSQL finds the projects by skipping through the primary keys from each name to the next,
// and reads only the refs of the projects on the page.
const summariesSQL = `
WITH RECURSIVE name (project, n) AS (
  SELECT least((SELECT min(project) FROM refs WHERE project > $1), (SELECT min(project) FROM locks WHERE project > $1 AND ` + noMarker + `)), 1
  UNION ALL
  SELECT least((SELECT min(project) FROM refs WHERE project > name.project), (SELECT min(project) FROM locks WHERE project > name.project AND ` + noMarker + `)), n + 1
  FROM name WHERE name.project IS NOT NULL AND n < $2
)
SELECT name.project, refs.present, refs.deleted, locks.n, refs.changed FROM name
CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE value NOT IN ` + zeroIDs + `) AS present, count(*) FILTER (WHERE value IN ` + zeroIDs + `) AS deleted, max(time) AS changed
  FROM refs WHERE refs.project = name.project
) AS refs
CROSS JOIN LATERAL (SELECT count(*) AS n FROM locks WHERE locks.project = name.project) AS locks
WHERE name.project IS NOT NULL ORDER BY name.project`

const noMarker = `NOT starts_with(locks.project, '` + driver.ReclaimPrefix + `')`

// Summaries reads one page.
func (d *Driver) Summaries(ctx context.Context, q driver.SummaryQuery) (page driver.SummaryPage, err error) {
	err = d.pools.Do(ctx, roundtrip.Read("list projects").Query(summariesSQL, func(rows pgx.Rows) error {
		page = driver.SummaryPage{}
		for rows.Next() {
			var p driver.ProjectSummary
			var changed pgtype.Timestamptz
			if err := rows.Scan(&p.Name, &p.Refs, &p.Deleted, &p.Locks, &changed); err != nil {
				return err
			}
			if changed.Valid {
				p.Changed = changed.Time.UTC()
			}
			page.Summaries = append(page.Summaries, p)
		}
		return rows.Err()
	}, q.After, q.Limit))
	if n := len(page.Summaries); err == nil && n > 0 && n == q.Limit {
		page.Next = page.Summaries[n-1].Name
	}
	return page, err
}
