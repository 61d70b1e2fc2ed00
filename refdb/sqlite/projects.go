package sqlite

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	projectColumns = `project, id, rules, mode, revision, time, op`

	oneProject = `SELECT ` + projectColumns + ` FROM projects WHERE project = ?1`

	putProject = `
		INSERT OR REPLACE INTO projects (` + projectColumns + `)
		VALUES (?1, ?2, ?3, ?4, (SELECT coalesce(max(revision), 0) + 1 FROM projects), ?5, ?6)`
)

// Projects implements refdb.ProjectStore.
func (d *Driver) Projects(ctx context.Context, q refdb.ProjectQuery) ([]refdb.Project, error) {
	var w where
	w.add("revision > ?", q.After)
	w.filter(q.Project, "", "")
	all, _, err := page(ctx, d, "read projects", projectColumns+" FROM projects", w, "revision", q.Limit, projectOf)
	return all, err
}

// PutProject implements refdb.ProjectStore.
func (d *Driver) PutProject(ctx context.Context, r refdb.ProjectRequest) (p refdb.Project, err error) {
	const doing = "write a project"
	err = d.decide(ctx, doing, 1, func(t *tx) (refused, err error) {
		look := func() error {
			p = refdb.Project{}
			return t.query(func(r row) { p = projectOf(t.now, r) }, oneProject, r.Project)
		}
		if err := look(); err != nil {
			return nil, err
		}
		written, refused := rules.PutProject(r, p)
		if refused != nil {
			return fmt.Errorf("%s: %w", doing, refused), nil
		}
		if written {
			return nil, nil
		}
		if _, err := t.exec(putProject, r.Project, r.ID, r.Rules, r.Mode, t.now, r.Op); err != nil {
			return nil, err
		}
		return nil, look()
	})
	if err != nil {
		return refdb.Project{}, err
	}
	return p, nil
}

// projectOf reads projectColumns.
func projectOf(now int64, r row) refdb.Project {
	return refdb.Project{
		Project: r.text(0), ID: r.text(1), Rules: r.text(2), Mode: r.text(3), Revision: r.int(4),
		Time: timeOf(r.int(5)), Age: durationOf(now - r.int(5)), Op: r.text(6),
	}
}
