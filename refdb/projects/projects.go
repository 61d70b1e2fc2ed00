// Package projects manages the row of each project: which of its refs all sites guard, whether
// refusals are enforced, which objects the database stores, and whether the project is frozen. It
// also counts and removes projects. Site daemons and refdbctl use this package.
package projects

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
	"github.com/globalrefdb/globalrefdb/refdb/packs"
)

// A Handle manages the projects of a database: see refdb.DB.Projects. Its methods may be called
// concurrently.
type Handle struct{ engine *engine.Engine }

// New returns a Handle on e. Only package refdb calls it: programs get theirs from a refdb.DB.
func New(e *engine.Engine) *Handle { return &Handle{engine: e} }

// Get returns the row of a project; ok is false if the database has none.
func (h *Handle) Get(ctx context.Context, project string) (p driver.Project, ok bool, err error) {
	if err := driver.CheckProject(project); err != nil {
		return driver.Project{}, false, err
	}
	rows, err := h.read(ctx, driver.ProjectQuery{Project: project, Limit: 1})
	if err != nil || len(rows) == 0 {
		return driver.Project{}, false, err
	}
	return rows[0], true, nil
}

// After returns the rows of all projects that were changed after a revision, in the
// order of their changes. Revision 0 selects all.
func (h *Handle) After(ctx context.Context, revision int64) (all []driver.Project, err error) {
	for {
		rows, err := h.read(ctx, driver.ProjectQuery{After: revision, Limit: engine.PageSize})
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
		if len(rows) < engine.PageSize {
			return all, nil
		}
		revision = rows[len(rows)-1].Revision
	}
}

func (h *Handle) read(ctx context.Context, q driver.ProjectQuery) ([]driver.Project, error) {
	rows, err := engine.Retry(ctx, h.engine, func(d driver.Driver) ([]driver.Project, error) { return d.Projects(ctx, q) })
	if err != nil {
		return nil, fmt.Errorf("reading projects: %w", err)
	}
	for i, row := range rows {
		rows[i] = unpacked(row)
	}
	return rows, nil
}

// unpacked returns a driver's row with its freeze separated from the rules.
func unpacked(row driver.Project) driver.Project {
	row.Freeze, row.Rules, _ = driver.CutFreeze(row.Rules)
	return row
}

// Put replaces the row whose revision is p.Revision, or creates it if that is 0, and returns the
// new row. If the row has another revision, nothing is written and the error is a
// [*driver.ProjectChangedError]. Revision, Time, Age and Op of the new row are not taken from p.
//
// If p.Freeze is not zero, no ref of the project moves after Put has returned, except by the end of
// an intent: updates and preparations return a [*driver.FrozenError]. A frozen project stays frozen
// until its row is written with a zero Freeze.
func (h *Handle) Put(ctx context.Context, p driver.Project) (driver.Project, error) {
	if err := driver.CheckProject(p.Project); err != nil {
		return driver.Project{}, err
	}
	texts := []string{p.ID, p.Rules, p.Mode}
	if p.Store != "" {
		texts = append(texts, p.Store)
	}
	for _, text := range texts {
		if fault := driver.TextFault(strings.ReplaceAll(text, "\n", " ")); fault != "" {
			return driver.Project{}, fmt.Errorf("%w text %q of project %s: %s", driver.ErrInvalid, text, p.Project, fault)
		}
	}
	if p.Freeze != (driver.Freeze{}) {
		if err := driver.CheckFreezeReason(p.Freeze.Reason); err != nil {
			return driver.Project{}, fmt.Errorf("project %s: %w", p.Project, err)
		}
		if fault := driver.TextFault(p.Freeze.By); fault != "" && p.Freeze.By != "" {
			return driver.Project{}, fmt.Errorf("%w name %q of who freezes project %s: %s", driver.ErrInvalid, p.Freeze.By, p.Project, fault)
		}
	}
	if _, _, frozen := driver.CutFreeze(p.Rules); frozen {
		return driver.Project{}, fmt.Errorf("%w rules of project %s: a freeze is no rule", driver.ErrInvalid, p.Project)
	}
	op := rand.Text()
	if p.Revision == 0 && p.ID != "" {
		op = p.ID
	}
	if err := h.engine.SchemaError(); err != nil {
		return driver.Project{}, fmt.Errorf("writing project %s: %w", p.Project, err)
	}
	r := driver.ProjectRequest{Project: p.Project, ID: p.ID, Rules: driver.WithFreeze(p.Freeze, p.Rules),
		Mode: p.Mode, Store: p.Store, Revision: p.Revision, Op: op}
	row, err := engine.Retry(ctx, h.engine, func(d driver.Driver) (driver.Project, error) {
		row, err := d.PutProject(ctx, r)
		// A second request determines from the row's Op whether the first one wrote the row.
		for tries := 1; errors.Is(err, driver.ErrOutcomeUnknown) && !errors.Is(err, driver.ErrUnconfirmed) && tries < engine.RetryTries && ctx.Err() == nil; tries++ {
			row, err = d.PutProject(ctx, r)
			if err != nil && !errors.Is(err, driver.ErrOutcomeUnknown) {
				err = fmt.Errorf("%w: %w", driver.ErrOutcomeUnknown, err)
			}
		}
		return row, err
	})
	if err != nil {
		return driver.Project{}, fmt.Errorf("writing project %s: %w", p.Project, err)
	}
	return unpacked(row), nil
}

// summariesPage is the number of projects that one request counts. It reads all of their refs.
const summariesPage = 100

// Summaries iterates over all projects that have a ref, even a deleted one, or a lock, in byte
// order of their names. It reads page by page, each as of its own point in time. To count, the
// database reads each ref once. An error ends the iteration.
func (h *Handle) Summaries(ctx context.Context) iter.Seq2[driver.ProjectSummary, error] {
	return engine.Pages(ctx, h.engine, "projects", func(d driver.Driver, after string) ([]driver.ProjectSummary, string, error) {
		page, err := d.Summaries(ctx, driver.SummaryQuery{After: after, Limit: summariesPage})
		return page.Summaries, page.Next, err
	})
}

// A RemoveOption changes what [Handle.Remove] does.
type RemoveOption func(*driver.RemoveRequest)

// Force removes a project in spite of fresh locks on it, and removes those too.
func Force() RemoveOption { return func(r *driver.RemoveRequest) { r.Locks = driver.AdvisoryLocks } }

// Remove removes all refs and locks of a project and of no other, and returns the number of refs
// that it removed. It refuses with a [*driver.LockedError] while a ref of the project has a fresh
// lock. After the refs it removes the project's packs. It works in chunks: after an error some of
// them may have been removed, and calling it again removes the rest.
func (h *Handle) Remove(ctx context.Context, project string, opts ...RemoveOption) (int, error) {
	r := driver.RemoveRequest{Origin: h.engine.Origin(), Project: project, Limit: engine.PageSize}
	for _, o := range opts {
		o(&r)
	}
	n, err := h.engine.Remove(ctx, project, func(d driver.Driver) (int, error) { return d.Remove(ctx, r) })
	if err != nil {
		return n, err
	}
	// The driver may keep no packs.
	if _, err := packs.New(h.engine).Remove(ctx, project); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return n, err
	}
	return n, nil
}
