package refdb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
)

// A Project is the row that tells all sites how to guard one project.
type Project struct {
	Project string
	ID      string // random; every copy of its repository records it
	Rules   string // which refs are guarded, a rule per line
	Mode    string // whether refusals count
	Store   string // which of its objects the database keeps

	Revision int64         // larger than that of any earlier change of any project
	Time     time.Time     // the database's, of that change
	Age      time.Duration // the database's now − Time
	Op       string        // the request that wrote the row
}

// IsNew reports whether the row is as it was created: the database had no rules before.
func (p Project) IsNew() bool { return p.Op == p.ID }

// A ProjectQuery selects rows for [ProjectStore.Projects].
type ProjectQuery struct {
	Project string // "" for all
	After   int64  // revisions larger than that
	Limit   int
}

// A ProjectRequest is what [ProjectStore.PutProject] writes.
type ProjectRequest struct {
	Project, ID, Rules, Mode, Store string
	Revision                        int64  // the row's present one; 0 for no row
	Op                              string // names this request
}

// A ProjectChangedError says that a project's row does not have the expected
// revision. It wraps [ErrMismatch].
type ProjectChangedError struct {
	Project string
	Want    int64 // the revision that was expected; 0 for no row
	Have    int64
}

func (e *ProjectChangedError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf("project %s: not in the database", e.Project)
	}
	return fmt.Sprintf("project %s was changed meanwhile: revision %d instead of %d", e.Project, e.Have, e.Want)
}

func (e *ProjectChangedError) Unwrap() error { return ErrMismatch }

// Project returns the row of a project; ok is false if the database has none.
func (db *DB) Project(ctx context.Context, project string) (p Project, ok bool, err error) {
	if err := CheckProject(project); err != nil {
		return Project{}, false, err
	}
	rows, err := db.projects(ctx, ProjectQuery{Project: project, Limit: 1})
	if err != nil || len(rows) == 0 {
		return Project{}, false, err
	}
	return rows[0], true, nil
}

// ProjectsAfter returns the rows of all projects that were changed after a revision, in the
// order of their changes. Revision 0 selects all.
func (db *DB) ProjectsAfter(ctx context.Context, revision int64) (all []Project, err error) {
	for {
		rows, err := db.projects(ctx, ProjectQuery{After: revision, Limit: pageSize})
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
		if len(rows) < pageSize {
			return all, nil
		}
		revision = rows[len(rows)-1].Revision
	}
}

func (db *DB) projects(ctx context.Context, q ProjectQuery) ([]Project, error) {
	rows, err := retry(ctx, db, func(d Driver) ([]Project, error) { return d.Projects(ctx, q) })
	if err != nil {
		return nil, fmt.Errorf("reading projects: %w", err)
	}
	return rows, nil
}

// PutProject replaces the row whose revision is p.Revision, or creates it if that is 0, and
// returns the new row. If the row has another revision, nothing is written and the error is a
// [*ProjectChangedError]. Revision, Time, Age and Op of the new row are not taken from p.
func (db *DB) PutProject(ctx context.Context, p Project) (Project, error) {
	if err := CheckProject(p.Project); err != nil {
		return Project{}, err
	}
	texts := []string{p.ID, p.Rules, p.Mode}
	if p.Store != "" {
		texts = append(texts, p.Store)
	}
	for _, text := range texts {
		if fault := textFault(strings.ReplaceAll(text, "\n", " ")); fault != "" {
			return Project{}, fmt.Errorf("%w text %q of project %s: %s", ErrInvalid, text, p.Project, fault)
		}
	}
	op := rand.Text()
	if p.Revision == 0 && p.ID != "" {
		op = p.ID
	}
	if err := db.schemaError(); err != nil {
		return Project{}, fmt.Errorf("writing project %s: %w", p.Project, err)
	}
	r := ProjectRequest{Project: p.Project, ID: p.ID, Rules: p.Rules, Mode: p.Mode, Store: p.Store, Revision: p.Revision, Op: op}
	row, err := retry(ctx, db, func(d Driver) (Project, error) {
		row, err := d.PutProject(ctx, r)
		// A second request finds by the row's Op whether the first one wrote it.
		for tries := 1; errors.Is(err, ErrOutcomeUnknown) && !errors.Is(err, ErrUnconfirmed) && tries < retryTries && ctx.Err() == nil; tries++ {
			row, err = d.PutProject(ctx, r)
			if err != nil && !errors.Is(err, ErrOutcomeUnknown) {
				err = fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
			}
		}
		return row, err
	})
	if err != nil {
		return Project{}, fmt.Errorf("writing project %s: %w", p.Project, err)
	}
	return row, nil
}

// projectPageSize is how many projects one request counts. It reads all of their refs.
const projectPageSize = 100

// Projects iterates over all projects that have a ref, even a deleted one, or a
// lock, in byte order of their names. It reads page by page, each as of its own point
// in time. To count, the database reads each ref once. An error ends it.
func (db *DB) Projects(ctx context.Context) iter.Seq2[ProjectSummary, error] {
	return pages(ctx, db, "projects", func(d Driver, after string) ([]ProjectSummary, string, error) {
		page, err := d.Summaries(ctx, SummaryQuery{After: after, Limit: projectPageSize})
		return page.Summaries, page.Next, err
	})
}
