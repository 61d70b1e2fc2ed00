package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// rowsAround finds the refs above the created ones and, of the refs below each, the first that
// holds a value and the first whose lock stands for an intent. It leaves out the refs that the
// request moves.
//
//	?1 project  ?2 names above  ?3 created refs  ?4 moved refs  ?5 driver.NeverStale
const (
	rowsAround = `
	SELECT name.ref, ` + stateColumns + `
	FROM (
		SELECT above.value AS ref FROM json_each(?2) AS above
		UNION SELECT (
			SELECT ref FROM refs WHERE project = ?1` + below + ` AND value NOT IN ('', '` + string(driver.Deleted) + `', '` + string(driver.Deleted256) + `') ORDER BY ref LIMIT 1
		) FROM json_each(?3) AS created
		UNION SELECT (
			SELECT ref FROM locks WHERE project = ?1` + below + ` AND coalesce(stale_after, 0) >= ?5 ORDER BY ref LIMIT 1
		) FROM json_each(?3) AS created
	) AS name
	LEFT JOIN refs  AS r ON r.project = ?1 AND r.ref = name.ref
	LEFT JOIN locks AS l ON l.project = ?1 AND l.ref = name.ref
	WHERE name.ref` + notMoved

	below    = ` AND ref > created.value || '/' AND ref < created.value || '0' AND ref` + notMoved // 0 comes after the slash
	notMoved = ` NOT IN (SELECT value FROM json_each(?4))`
)

// around returns the rows that decide about the names of the refs that updates create.
func (t *tx) around(project string, updates []driver.Update) ([]rules.Row, error) {
	return readRowsAround(context.Background(), t.conn, t.now, project, updates)
}

// readRowsAround is around with ages up to now.
func readRowsAround(ctx context.Context, c *conn, now int64, project string, updates []driver.Update) (rows []rules.Row, err error) {
	created := rules.Created(updates)
	if len(created) == 0 {
		return nil, nil
	}
	err = c.query(ctx, func(r row) {
		found := rules.Row{Name: r.text(0)}
		readRow(&found, now, project, r[1:])
		rows = append(rows, found)
	}, rowsAround, project, asJSON(rules.Above(created)), asJSON(created), asJSON(rules.RefsOf(updates)), microsOf(driver.NeverStale))
	return rows, err
}
