package postgres

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

// A page starts at the index's entry for its first ref.
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
func (d *Driver) List(ctx context.Context, q refdb.RefQuery) (page refdb.RefPage, err error) {
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

// prefixEnd returns the smallest text that is greater, by bytes, than all that
// start with prefix. Nothing is greater than the last code point.
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

// summariesSQL finds the names by jumping through the primary keys, from each name to
// the next, and reads only the refs of the projects on the page.
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

const noMarker = `NOT starts_with(locks.project, '` + refdb.ReclaimPrefix + `')`

// Summaries reads one page.
func (d *Driver) Summaries(ctx context.Context, q refdb.SummaryQuery) (page refdb.SummaryPage, err error) {
	err = d.pools.Do(ctx, roundtrip.Read("list projects").Query(summariesSQL, func(rows pgx.Rows) error {
		page = refdb.SummaryPage{}
		for rows.Next() {
			var p refdb.ProjectSummary
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
