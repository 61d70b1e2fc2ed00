package spanner

import (
	"context"
	"fmt"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

var projectRowColumns = []string{"project", "id", "rules", "mode", "revision", "time", "op"}

const (
	projectRowSQL = `project, id, rules, mode, revision, time, op, CURRENT_TIMESTAMP()`

	projectsSQL = `
SELECT ` + projectRowSQL + ` FROM projects
WHERE (@project = '' OR project = @project) AND revision > @after ORDER BY revision LIMIT @limit`

	oneProjectSQL = `SELECT ` + projectRowSQL + ` FROM projects WHERE project = @project`

	// Read in the transaction that increments it, it excludes all other writers of projects.
	lastRevisionSQL = `SELECT IFNULL(MAX(revision), 0) FROM projects`
)

// Projects implements refdb.ProjectStore.
func (d *Driver) Projects(ctx context.Context, q refdb.ProjectQuery) ([]refdb.Project, error) {
	r := request{tag: "refdb.projects", what: "read projects"}
	return readRows(ctx, d, r, projectOf, r.query(spanner.Statement{SQL: projectsSQL, Params: map[string]any{
		"project": q.Project, "after": q.After, "limit": int64(q.Limit),
	}}))
}

// registered is what PutProject reads.
type registered struct {
	row  refdb.Project
	last int64
}

// PutProject implements refdb.ProjectStore.
func (d *Driver) PutProject(ctx context.Context, r refdb.ProjectRequest) (p refdb.Project, err error) {
	one := spanner.Statement{SQL: oneProjectSQL, Params: map[string]any{"project": r.Project}}
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
	wrote := false
	q := request{tag: "refdb.putproject", what: "write a project"}
	at, err := decide(ctx, d, q, read, func(b *batch, found registered) error {
		p, wrote = found.row, false
		written, refused := rules.PutProject(r, p)
		if written || refused != nil {
			return refused
		}
		wrote = true
		p = refdb.Project{Project: r.Project, ID: r.ID, Rules: r.Rules, Mode: r.Mode, Revision: found.last + 1, Op: r.Op}
		b.add(len(projectRowColumns)+2, spanner.InsertOrUpdate("projects", projectRowColumns,
			[]any{p.Project, p.ID, p.Rules, p.Mode, p.Revision, spanner.CommitTimestamp, p.Op}))
		return nil
	})
	if err != nil {
		return refdb.Project{}, err
	}
	if wrote {
		p.Time = at.UTC()
	}
	return p, nil
}

func projectOf(row *spanner.Row) (p refdb.Project, err error) {
	var now time.Time
	if err := row.Columns(&p.Project, &p.ID, &p.Rules, &p.Mode, &p.Revision, &p.Time, &p.Op, &now); err != nil {
		return p, fmt.Errorf("read a project: %w", err)
	}
	p.Time, p.Age = p.Time.UTC(), now.Sub(p.Time)
	return p, nil
}
