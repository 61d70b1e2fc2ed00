package memory

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

func (d *connection) Get(ctx context.Context, project string, refs []string) ([]driver.Ref, error) {
	return transact(ctx, d, "read refs", func(t *tx) ([]driver.Ref, error) { return rules.Refs(t.rows(project, refs)), nil })
}

func (d *connection) List(ctx context.Context, q driver.RefQuery) (driver.RefPage, error) {
	return transact(ctx, d, "list refs", func(t *tx) (p driver.RefPage, _ error) {
		for _, k := range sorted(t.refs) {
			row := t.refs[k]
			if k.Project == q.Project && k.Ref > q.After && strings.HasPrefix(k.Ref, q.Prefix) &&
				(q.Deleted || !row.Value.IsDeleted()) && len(p.Refs) < q.Limit {
				p.Refs = append(p.Refs, row)
			}
		}
		if n := len(p.Refs); n == q.Limit {
			p.Next = p.Refs[n-1].Name
		}
		return p, nil
	})
}

func (d *connection) Summaries(ctx context.Context, q driver.SummaryQuery) (driver.SummaryPage, error) {
	return transact(ctx, d, "list projects", func(t *tx) (page driver.SummaryPage, _ error) {
		all := t.summaries()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if name > q.After && len(page.Summaries) < q.Limit {
				page.Summaries = append(page.Summaries, *all[name])
			}
		}
		if n := len(page.Summaries); n == q.Limit {
			page.Next = page.Summaries[n-1].Name
		}
		return page, nil
	})
}

func (t *tx) summaries() map[string]*driver.ProjectSummary {
	all := make(map[string]*driver.ProjectSummary)
	of := func(name string) *driver.ProjectSummary {
		if all[name] == nil {
			all[name] = &driver.ProjectSummary{Name: name}
		}
		return all[name]
	}
	for k, row := range t.refs {
		p := of(k.Project)
		if row.Value.IsDeleted() {
			p.Deleted++
		} else {
			p.Refs++
		}
		if row.Time.After(p.Changed) {
			p.Changed = row.Time
		}
	}
	for k := range t.locks {
		if !strings.HasPrefix(k.Project, driver.ReclaimPrefix) {
			of(k.Project).Locks++
		}
	}
	return all
}

func (d *connection) States(ctx context.Context, project string, refs []string) ([]driver.State, error) {
	return write(ctx, d, "read refs and locks", func(t *tx) ([]driver.State, error) { return rules.States(t.rows(project, refs)), nil })
}

func (d *connection) Update(ctx context.Context, r driver.UpdateRequest) error {
	return d.write(ctx, "update refs", func(t *tx) error {
		var fence driver.Fence // of nothing
		if r.Fence != nil {
			fence = *r.Fence
		}
		refs := rules.RefsOf(r.Updates)
		var around []rules.Row
		if r.GitNames {
			around = t.around(r.Project, r.Updates)
		}
		missing := rules.Missing(r.Project, fence, rules.Lease, t.locksIn(r.Project))
		after, err := rules.Update(r, t.projects[r.Project].Rules, missing, t.rows(r.Project, refs), around, t.now)
		if err != nil {
			return err
		}
		t.apply(r.Project, refs, after)
		t.write(r.Project, r.Updates, r.Origin)
		if fence.Release {
			t.end(r.Project, fence.Refs, fence.Next)
		}
		return nil
	})
}

func (t *tx) write(project string, updates []driver.Update, by driver.Origin) {
	for _, u := range updates {
		t.change(key{project, u.Ref}, u.New, by)
	}
}

func (d *connection) Remove(ctx context.Context, r driver.RemoveRequest) (int, error) {
	return write(ctx, d, "remove a project", func(t *tx) (removed int, _ error) {
		locks := t.locksWhere(func(l driver.LockInfo) bool { return l.Project == r.Project })
		if err := rules.Remove(r, locks); err != nil {
			return removed, err
		}
		var whole bool
		removed, whole = t.remove(r.Project, r.Limit, r.Origin, func(driver.Ref) bool { return true })
		if whole {
			t.unlock(locks)
		}
		return removed, nil
	})
}

func (d *connection) PurgeTombstones(ctx context.Context, r driver.TombstoneRequest) (int, error) {
	return write(ctx, d, "purge tombstones", func(t *tx) (purged int, _ error) {
		purged, _ = t.remove(r.Project, r.Limit, driver.Origin{}, func(row driver.Ref) bool {
			return row.Value.IsDeleted() && t.now.Sub(row.Time) >= r.OlderThan
		})
		return purged, nil
	})
}

// remove deletes unwanted rows of a project up to a limit, and reports whether none is left.
func (t *tx) remove(project string, limit int, by driver.Origin, unwanted func(driver.Ref) bool) (n int, all bool) {
	for _, k := range sorted(t.refs) {
		switch {
		case k.Project != project || !unwanted(t.refs[k]):
		case n == limit:
			return n, false
		default:
			if old := t.refs[k].Value; !old.IsDeleted() {
				t.noteChange(k, old, driver.Unknown, by)
			}
			delete(t.refs, k)
			n++
		}
	}
	return n, true
}

// without returns the refs that are not among others, which are sorted.
func without(refs, others []string) []string {
	return slices.DeleteFunc(slices.Clone(refs), func(ref string) bool { return contains(others, ref) })
}
