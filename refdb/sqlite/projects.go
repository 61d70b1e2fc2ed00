package sqlite

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	projectColumns = `project, id, rules, mode, revision, time, op, store`

	putProject = `
		INSERT OR REPLACE INTO projects (` + projectColumns + `)
		VALUES (?1, ?2, ?3, ?4, (SELECT coalesce(max(revision), 0) + 1 FROM projects), ?5, ?6, ?7)`
)

// Projects implements driver.ProjectStore.
func (d *Driver) Projects(ctx context.Context, q driver.ProjectQuery) ([]driver.Project, error) {
	return snapshot(ctx, d, "read projects", func(c *conn) ([]driver.Project, error) { return c.projects(ctx, d.now(), q) })
}

func (c *conn) projects(ctx context.Context, now int64, q driver.ProjectQuery) (all []driver.Project, err error) {
	err = c.query(ctx, func(r row) { all = append(all, projectOf(now, r)) },
		`SELECT `+projectColumns+` FROM projects WHERE (?1 = '' OR project = ?1) AND revision > ?2 ORDER BY revision LIMIT ?3`, q.Project, q.After, int64(q.Limit))
	return all, err
}

// PutProject implements driver.ProjectStore.
func (d *Driver) PutProject(ctx context.Context, r driver.ProjectRequest) (driver.Project, error) {
	const doing = "write a project"
	return decide(ctx, d, doing, 1, func(t *tx) (_ driver.Project, refused, err error) {
		p, err := t.project(r.Project)
		if err != nil {
			return p, nil, err
		}
		written, refused := rules.PutProject(r, p)
		switch {
		case refused != nil:
			return driver.Project{}, fmt.Errorf("%s: %w", doing, refused), nil
		case written:
			return p, nil, nil
		}
		if _, err := t.exec(putProject, r.Project, r.ID, r.Rules, r.Mode, t.now, r.Op, r.Store); err != nil {
			return p, nil, err
		}
		p, err = t.project(r.Project)
		return p, nil, err
	})
}

// project returns the row of a project, zero if there is none.
func (t *tx) project(name string) (p driver.Project, err error) {
	all, err := t.conn.projects(context.Background(), t.now, driver.ProjectQuery{Project: name, Limit: 1})
	if len(all) > 0 {
		p = all[0]
	}
	return p, err
}

// projectOf reads projectColumns.
func projectOf(now int64, r row) driver.Project {
	return driver.Project{
		Project: r.text(0), ID: r.text(1), Rules: r.text(2), Mode: r.text(3), Revision: r.int(4),
		Time: timeOf(r.int(5)), Age: durationOf(now - r.int(5)), Op: r.text(6), Store: r.text(7),
	}
}
