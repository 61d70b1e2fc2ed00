package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

const (
	projectColumns = `project, id, rules, mode, revision, time, op, store`

	projectsSQL = `
SELECT ` + projectColumns + `, clock_timestamp() FROM projects
WHERE ($1 = '' OR project = $1) AND revision > $2 ORDER BY revision LIMIT $3`

	// putProjectSQL returns the row after the write. No other transaction writes projects
	// meanwhile.
	putProjectSQL = `
WITH clock AS MATERIALIZED (
  SELECT clock_timestamp() AS now
), old AS MATERIALIZED (
  SELECT ` + projectColumns + ` FROM projects WHERE project = $1
), new AS (
  INSERT INTO projects (` + projectColumns + `)
  SELECT $1, $2, $3, $4, (SELECT coalesce(max(revision), 0) + 1 FROM projects), now, $6, $7 FROM clock
  WHERE coalesce((SELECT revision FROM old), 0) = $5 AND NOT EXISTS (SELECT FROM old WHERE op = $6)
  ON CONFLICT (project) DO UPDATE
  SET id = excluded.id, rules = excluded.rules, mode = excluded.mode, revision = excluded.revision, time = excluded.time, op = excluded.op,
      store = excluded.store
  RETURNING ` + projectColumns + `
)
SELECT new.*, now FROM new, clock
UNION ALL
SELECT old.*, now FROM old, clock WHERE NOT EXISTS (SELECT FROM new)`
)

// Projects takes one statement.
func (d *Driver) Projects(ctx context.Context, q driver.ProjectQuery) (all []driver.Project, err error) {
	err = d.pools.Do(ctx, roundtrip.Read("read projects").Query(projectsSQL, func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, projectOf)
		return err
	}, q.Project, q.After, q.Limit))
	if err != nil {
		return nil, err
	}
	return all, nil
}

// PutProject excludes all other writers of projects, so that revisions are in the order of commits.
// To freeze a project, it also takes the project's key exclusively: it waits for requests that move
// refs of the project and whose statements have not read the freeze, and later requests read it.
func (d *Driver) PutProject(ctx context.Context, r driver.ProjectRequest) (p driver.Project, err error) {
	first := lockProject("") // the name of no project
	if _, _, frozen := driver.CutFreeze(r.Rules); frozen {
		first = roundtrip.Guarded(lockKeysSQL, []int64{int64(keyOf("", "")), int64(keyOf(r.Project, ""))}, []bool{false, false})
	}
	err = d.pools.Do(ctx, roundtrip.Write("write a project").
		Then(first).
		Query(putProjectSQL, func(rows pgx.Rows) (err error) {
			p, err = pgx.CollectExactlyOneRow(rows, projectOf)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		}, r.Project, r.ID, r.Rules, r.Mode, r.Revision, r.Op, r.Store))
	if err == nil && (p.Revision == 0 || p.Op != r.Op) {
		err = fmt.Errorf("write a project: %w", &driver.ProjectChangedError{Project: r.Project, Want: r.Revision, Have: p.Revision})
	}
	if err != nil {
		return driver.Project{}, err
	}
	return p, nil
}

func projectOf(row pgx.CollectableRow) (p driver.Project, err error) {
	var now time.Time
	err = row.Scan(&p.Project, &p.ID, &p.Rules, &p.Mode, &p.Revision, &p.Time, &p.Op, &p.Store, &now)
	p.Time, p.Age = p.Time.UTC(), now.Sub(p.Time)
	return p, err
}
