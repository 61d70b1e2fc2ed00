package sqlite

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// List implements driver.RefStore.
func (d *Driver) List(ctx context.Context, q driver.RefQuery) (driver.RefPage, error) {
	var w where
	w.add("project = ?", q.Project)
	w.prefix("ref", q.Prefix)
	if q.After != "" {
		w.add("ref > ?", q.After)
	}
	if !q.Deleted {
		w.add("value NOT IN (?, ?)", string(driver.Deleted), string(driver.Deleted256))
	}
	refs, last, err := page(ctx, d, "list refs", "ref, value, time, op FROM refs", w, "ref", q.Limit, func(_ int64, r row) driver.Ref {
		return refOf(r.text(0), r.text(1), r.int(2), r.text(3))
	})
	return driver.RefPage{Refs: refs, Next: last.Name}, err
}

// page reads at most limit rows. If the page is full, it also returns its last row, after which
// there may be more. Ages are relative to ?1, now, which is read before the rows: a beat in between
// makes its lock younger, never older.
func page[T any](ctx context.Context, d *Driver, doing, table string, w where, order string, limit int, rowOf func(now int64, r row) T) (rows []T, last T, err error) {
	rows, err = read(ctx, d, doing, func(c *conn) (rows []T, err error) {
		args := slices.Concat([]any{d.now()}, w.args, []any{int64(limit)})
		err = c.query(ctx, func(r row) { rows = append(rows, rowOf(r.int(0), r[1:])) },
			"SELECT ?1, "+table+" WHERE "+strings.Join(w.conditions, " AND ")+" ORDER BY "+order+" LIMIT ?", args...)
		return rows, err
	})
	if n := len(rows); n > 0 && n == limit {
		last = rows[n-1]
	}
	return rows, last, err
}

// where is a WHERE clause of fixed conditions, with their arguments.
type where struct {
	conditions []string
	args       []any
}

func (w *where) add(condition string, args ...any) {
	w.conditions = append(w.conditions, condition)
	w.args = append(w.args, args...)
}

// prefix selects the values that start with the bytes of prefix.
func (w *where) prefix(column, prefix string) {
	if prefix != "" {
		w.add(column+" >= ? AND "+column+" < ?", prefix, behind(prefix))
	}
}

// afterAll is greater than all strings, which are compared as bytes: UTF-8 has no byte 0xFF.
const afterAll = "\xff"

// behind returns the first string after all that start with the bytes of prefix: prefix with its
// last byte incremented.
func behind(prefix string) string {
	n := len(prefix)
	if n == 0 {
		return afterAll
	}
	return prefix[:n-1] + string([]byte{prefix[n-1] + 1})
}

// filter selects rows by project, ref and owner. The name of a site selects all processes of the
// site, and "" selects all rows.
func (w *where) filter(project, ref, owner string) {
	if project != "" {
		w.add("project = ?", project)
	}
	if ref != "" {
		w.add("ref = ?", ref)
	}
	if owner != "" {
		// A string starts with owner+"/" if it is at least that, and less than owner plus the byte
		// after "/".
		w.add("(owner = ? OR owner >= ? AND owner < ?)", owner, owner+"/", owner+string(rune('/'+1)))
	}
}

// CROSS JOIN makes SQLite look up each name instead of reading the whole project.
const get = `
	SELECT r.ref, r.value, r.time, r.op
	FROM json_each(?2) AS name
	CROSS JOIN refs AS r ON r.project = ?1 AND r.ref = name.value`

// Get implements driver.RefStore.
func (d *Driver) Get(ctx context.Context, project string, refs []string) ([]driver.Ref, error) {
	return read(ctx, d, "read refs", func(c *conn) (found []driver.Ref, err error) {
		err = c.query(ctx, func(r row) {
			found = append(found, refOf(r.text(0), r.text(1), r.int(2), r.text(3)))
		}, get, project, asJSON(refs))
		return found, err
	})
}

// States implements driver.RefStore. Values and locks come from one statement, and so from one
// snapshot, in which the file is admitted. The time for the ages is read before.
func (d *Driver) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	return snapshot(ctx, d, "read refs and locks", func(c *conn) ([]driver.State, error) {
		now := d.now()
		if admitted, err := d.isAdmitted(ctx, c); err != nil || !admitted {
			return nil, cmp.Or(err, driver.ErrNotAdmitted)
		}
		rows, _, err := readRows(ctx, c, now, project, refs)
		return rules.States(rows), err
	})
}

// summariesSQL finds the names by skipping from each to the next in the primary keys, and reads
// only the refs of the projects on the page. ?1: after, ?2: how many, ?3: the prefix of markers, ?4
// and ?5: the values of deleted refs.
const summariesSQL = `
WITH RECURSIVE name (project, n) AS (
  SELECT (SELECT min(project) FROM (SELECT min(project) AS project FROM refs WHERE project > ?1 UNION ALL SELECT min(project) FROM ` + afterMarkers + `?1)), 1
  UNION ALL
  SELECT (SELECT min(project) FROM (SELECT min(project) AS project FROM refs WHERE project > name.project UNION ALL SELECT min(project) FROM ` + afterMarkers + `name.project)), n + 1
  FROM name WHERE name.project IS NOT NULL AND n < ?2
)
SELECT project,
  (SELECT count(*) FROM refs WHERE refs.project = name.project AND value NOT IN (?4, ?5)),
  (SELECT count(*) FROM refs WHERE refs.project = name.project AND value IN (?4, ?5)),
  (SELECT count(*) FROM locks WHERE locks.project = name.project),
  coalesce((SELECT max(time) FROM refs WHERE refs.project = name.project), 0)
FROM name WHERE project IS NOT NULL ORDER BY project`

const afterMarkers = `locks WHERE substr(project, 1, length(?3)) <> ?3 AND project > `

// Summaries implements driver.RefStore.
func (d *Driver) Summaries(ctx context.Context, q driver.SummaryQuery) (driver.SummaryPage, error) {
	return read(ctx, d, "list projects", func(c *conn) (page driver.SummaryPage, err error) {
		err = c.query(ctx, func(r row) {
			p := driver.ProjectSummary{Name: r.text(0), Refs: int(r.int(1)), Deleted: int(r.int(2)), Locks: int(r.int(3))}
			if at := r.int(4); at != 0 {
				p.Changed = time.UnixMicro(at).UTC()
			}
			page.Summaries = append(page.Summaries, p)
		}, summariesSQL, q.After, int64(q.Limit), driver.ReclaimPrefix, string(driver.Deleted), string(driver.Deleted256))
		if n := len(page.Summaries); n > 0 && n == q.Limit {
			page.Next = page.Summaries[n-1].Name
		}
		return page, err
	})
}
