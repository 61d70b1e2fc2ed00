package spanner

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	projectRowsSQL = `SELECT project, id, rules, mode, store, revision, time, op, CURRENT_TIMESTAMP() FROM projects`

	projectsSQL = projectRowsSQL + `
WHERE (@project = '' OR project = @project) AND revision > @after ORDER BY revision LIMIT @limit`

	// Read in the transaction that increments the revision, it excludes all other writers of
	// projects.
	lastRevisionSQL = `SELECT IFNULL(MAX(revision), 0) FROM projects`
)

// Projects implements driver.ProjectStore.
func (d *Driver) Projects(ctx context.Context, q driver.ProjectQuery) ([]driver.Project, error) {
	r := request{tag: "refdb.projects", what: "read projects"}
	return readRows(ctx, d, r, projectOf, r.query(spanner.Statement{SQL: projectsSQL, Params: map[string]any{
		"project": q.Project, "after": q.After, "limit": int64(q.Limit),
	}}))
}

// registered holds the rows that PutProject reads.
type registered struct {
	row  driver.Project
	last int64
}

// PutProject implements driver.ProjectStore.
func (d *Driver) PutProject(ctx context.Context, r driver.ProjectRequest) (driver.Project, error) {
	q := request{tag: "refdb.putproject", what: "write a project"}
	one := spanner.Statement{SQL: projectRowsSQL + ` WHERE project = @project`, Params: map[string]any{"project": r.Project}}
	read := func(ctx context.Context, t *transaction) (found registered, err error) {
		err = t.query(ctx, one, func(row *spanner.Row) (err error) {
			found.row, err = projectOf(row)
			return err
		})
		if err == nil {
			err = t.query(ctx, spanner.NewStatement(lastRevisionSQL), func(row *spanner.Row) error { return row.Columns(&found.last) })
		}
		return found, err
	}
	p, at, err := decide(ctx, d, q, read, func(b *batch, found registered) (driver.Project, error) {
		written, refused := rules.PutProject(r, found.row)
		if written || refused != nil {
			return found.row, refused
		}
		p := driver.Project{Project: r.Project, ID: r.ID, Rules: r.Rules, Mode: r.Mode, Store: r.Store, Revision: found.last + 1, Op: r.Op}
		row := map[string]any{
			"project": p.Project, "id": p.ID, "rules": p.Rules, "mode": p.Mode, "revision": p.Revision, "time": spanner.CommitTimestamp, "op": p.Op,
			"store": p.Store,
		}
		b.add(len(row)+2, spanner.InsertOrUpdateMap("projects", row))
		return p, nil
	})
	if err != nil {
		return driver.Project{}, err
	}
	if p.Time.IsZero() { // the row was just written
		p.Time = at.UTC()
	}
	return p, nil
}

func projectOf(row *spanner.Row) (p driver.Project, err error) {
	var now time.Time
	if err := row.Columns(&p.Project, &p.ID, &p.Rules, &p.Mode, &p.Store, &p.Revision, &p.Time, &p.Op, &now); err != nil {
		return p, fmt.Errorf("read a project: %w", err)
	}
	p.Time, p.Age = p.Time.UTC(), now.Sub(p.Time)
	return p, nil
}
