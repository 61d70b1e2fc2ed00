package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

const (
	projectColumns = `project, id, rules, mode, revision, time, op`

	// projectsSQL does for a schema without packs, too.
	projectsSQL = `
SELECT ` + projectColumns + `, coalesce(to_jsonb(projects) ->> 'store', ''), clock_timestamp() FROM projects
WHERE ($1 = '' OR project = $1) AND revision > $2 ORDER BY revision LIMIT $3`
)

var (
	putProjectSQL = putSQL(`, store`, `, $7`, `, store = excluded.store`, ``)

	// putStorelessSQL is for a schema without packs.
	putStorelessSQL = putSQL(``, ``, ``, `''::text, `)
)

// putSQL returns the row as it is afterwards. Nobody else writes a project meanwhile. It takes what a schema with packs
// has in addition, and what is read in the place of that.
func putSQL(column, argument, set, none string) string {
	return `
WITH clock AS MATERIALIZED (
  SELECT clock_timestamp() AS now
), old AS MATERIALIZED (
  SELECT ` + projectColumns + column + ` FROM projects WHERE project = $1
), new AS (
  INSERT INTO projects (` + projectColumns + column + `)
  SELECT $1, $2, $3, $4, (SELECT coalesce(max(revision), 0) + 1 FROM projects), now, $6` + argument + ` FROM clock
  WHERE coalesce((SELECT revision FROM old), 0) = $5 AND NOT EXISTS (SELECT FROM old WHERE op = $6)
  ON CONFLICT (project) DO UPDATE
  SET id = excluded.id, rules = excluded.rules, mode = excluded.mode, revision = excluded.revision, time = excluded.time, op = excluded.op` + set + `
  RETURNING ` + projectColumns + column + `
)
SELECT new.*, ` + none + `now FROM new, clock
UNION ALL
SELECT old.*, ` + none + `now FROM old, clock WHERE NOT EXISTS (SELECT FROM new)`
}

// optional makes a round trip that needs tables or columns which an older schema lacks. Everything
// else works with such a schema.
func (d *Driver) optional(ctx context.Context, work roundtrip.Pipeline) error {
	return oldSchema(work.What, d.pools.Do(ctx, work))
}

// oldSchema returns refdb.ErrOldSchema instead of err if err means that something is missing in the schema.
func oldSchema(what string, err error) error {
	switch roundtrip.Code(err) {
	case roundtrip.NoSuchTable, roundtrip.NoSuchFunction, roundtrip.NoSuchColumn:
		return fmt.Errorf("%s: %w", what, refdb.ErrOldSchema)
	}
	return err
}

// Projects reads in one statement.
func (d *Driver) Projects(ctx context.Context, q refdb.ProjectQuery) (all []refdb.Project, err error) {
	err = d.optional(ctx, roundtrip.Read("read projects").Query(projectsSQL, func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, projectOf)
		return err
	}, q.Project, q.After, q.Limit))
	if err != nil {
		return nil, err
	}
	return all, nil
}

// PutProject excludes all others who write a project, so that revisions are in the order
// of commits. In a schema without packs it takes a second round trip.
func (d *Driver) PutProject(ctx context.Context, r refdb.ProjectRequest) (refdb.Project, error) {
	p, err := d.putProject(ctx, putProjectSQL, r, r.Store)
	if r.Store == "" && errors.Is(err, refdb.ErrOldSchema) {
		p, err = d.putProject(ctx, putStorelessSQL, r)
	}
	if err == nil && (p.Revision == 0 || p.Op != r.Op) {
		err = fmt.Errorf("write a project: %w", &refdb.ProjectChangedError{Project: r.Project, Want: r.Revision, Have: p.Revision})
	}
	if err != nil {
		return refdb.Project{}, err
	}
	return p, nil
}

// putProject returns what the row is afterwards; none if there is none.
func (d *Driver) putProject(ctx context.Context, sql string, r refdb.ProjectRequest, more ...any) (p refdb.Project, err error) {
	args := append([]any{r.Project, r.ID, r.Rules, r.Mode, r.Revision, r.Op}, more...)
	err = d.optional(ctx, roundtrip.Write("write a project").
		Then(lockProject("")). // the name of no project
		Query(sql, func(rows pgx.Rows) (err error) {
			p, err = pgx.CollectExactlyOneRow(rows, projectOf)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		}, args...))
	return p, err
}

func projectOf(row pgx.CollectableRow) (p refdb.Project, err error) {
	var now time.Time
	err = row.Scan(&p.Project, &p.ID, &p.Rules, &p.Mode, &p.Revision, &p.Time, &p.Op, &p.Store, &now)
	p.Time, p.Age = p.Time.UTC(), now.Sub(p.Time)
	return p, err
}
