package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

func (d *connection) Projects(ctx context.Context, q driver.ProjectQuery) ([]driver.Project, error) {
	return transact(ctx, d, "read projects", func(t *tx) (rows []driver.Project, _ error) {
		for _, p := range t.projects {
			if (q.Project == "" || p.Project == q.Project) && p.Revision > q.After {
				p.Age = t.now.Sub(p.Time)
				rows = append(rows, p)
			}
		}
		slices.SortFunc(rows, func(a, b driver.Project) int { return cmp.Compare(a.Revision, b.Revision) })
		rows = rows[:min(len(rows), q.Limit)]
		return rows, nil
	})
}

func (d *connection) PutProject(ctx context.Context, r driver.ProjectRequest) (driver.Project, error) {
	return write(ctx, d, "write a project", func(t *tx) (p driver.Project, _ error) {
		p = t.projects[r.Project]
		written, err := rules.PutProject(r, p)
		if err != nil {
			return p, err
		}
		if written {
			p.Age = t.now.Sub(p.Time)
			return p, nil
		}
		var last int64
		for _, other := range t.projects {
			last = max(last, other.Revision)
		}
		p = driver.Project{Project: r.Project, ID: r.ID, Rules: r.Rules, Mode: r.Mode, Store: r.Store, Revision: last + 1, Time: t.now, Op: r.Op}
		t.projects[r.Project] = p
		return p, nil
	})
}
