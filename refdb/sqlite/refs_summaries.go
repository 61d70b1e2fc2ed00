package sqlite

import (
	"context"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// The names are found by jumping from each to the next in the primary keys, and
// only the refs of the projects on the page are read. ?1: after, ?2: how many, ?3: the prefix of
// markers, ?4 and ?5: the values of deleted refs. min(x, y) of a NULL is NULL.
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

// Summaries implements refdb.RefStore.
func (d *Driver) Summaries(ctx context.Context, q refdb.SummaryQuery) (page refdb.SummaryPage, err error) {
	err = d.read(ctx, "list projects", func(c *conn) error {
		return c.query(ctx, func(r row) {
			p := refdb.ProjectSummary{Name: r.text(0), Refs: int(r.int(1)), Deleted: int(r.int(2)), Locks: int(r.int(3))}
			if at := r.int(4); at != 0 {
				p.Changed = time.UnixMicro(at).UTC()
			}
			page.Summaries = append(page.Summaries, p)
		}, summariesSQL, q.After, int64(q.Limit), refdb.ReclaimPrefix, string(refdb.Deleted), string(refdb.Deleted256))
	})
	if err != nil {
		return refdb.SummaryPage{}, err
	}
	if n := len(page.Summaries); n > 0 && n == q.Limit {
		page.Next = page.Summaries[n-1].Name
	}
	return page, nil
}
