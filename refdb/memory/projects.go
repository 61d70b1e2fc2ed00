package memory

import (
	"cmp"
	"context"
	"slices"

	refdbdriver "github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

func (d *driver) Projects(ctx context.Context, q refdbdriver.ProjectQuery) ([]refdbdriver.Project, error) {
	return transact(ctx, d, "read projects", func(t *tx) (rows []refdbdriver.Project, _ error) {
		for _, p := range t.projects {
			if (q.Project == "" || p.Project == q.Project) && p.Revision > q.After {
				p.Age = t.now.Sub(p.Time)
				rows = append(rows, p)
			}
		}
		slices.SortFunc(rows, func(a, b refdbdriver.Project) int { return cmp.Compare(a.Revision, b.Revision) })
		rows = rows[:min(len(rows), q.Limit)]
		return rows, nil
	})
}

func (d *driver) PutProject(ctx context.Context, r refdbdriver.ProjectRequest) (refdbdriver.Project, error) {
	return write(ctx, d, "write a project", func(t *tx) (p refdbdriver.Project, _ error) {
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
		p = refdbdriver.Project{Project: r.Project, ID: r.ID, Rules: r.Rules, Mode: r.Mode, Store: r.Store, Revision: last + 1, Time: t.now, Op: r.Op}
		t.projects[r.Project] = p
		return p, nil
	})
}
