package page

import (
	"context"
	"net/http"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/service/access"
)

const (
	// mostFound is how many results of each kind a search has.
	mostFound = 50
	// mostSearched is in how many projects a search looks for a ref: each takes a request to the database.
	mostSearched = 100
)

// found is what a search has found.
type found struct {
	Text     string
	Projects []string
	Refs     []foundRef
	Locks    []lockRow
	Notes    []string // what was left out
}

type foundRef struct{ Project, Name, Value string }

// showSearch finds projects by a part of their names, refs by their names, and locks by a part of their
// refs or owners.
func (p *Page) showSearch(w http.ResponseWriter, r *http.Request, caller access.Identity) error {
	f := found{Text: r.URL.Query().Get("q")}
	if f.Text == "" || driver.TextFault(f.Text) != "" {
		p.render(w, r, http.StatusOK, "search", "Search", f)
		return nil
	}
	known, err := p.knownProjects(r.Context(), caller)
	if err != nil {
		return err
	}
	f.inProjects(known, caller)
	err = p.read(r.Context(), func(ctx context.Context, caller access.Identity) error {
		if err := f.inLocks(ctx, p, caller); err != nil {
			return err
		}
		return f.inRefs(ctx, p.o.DB, caller, known)
	})
	if err != nil {
		return err
	}
	p.render(w, r, http.StatusOK, "search", "Search", f)
	return nil
}

// inProjects finds projects by a part of their names, and one that has exactly that name: it may not be among
// the known ones. That says only that the caller may read it.
func (f *found) inProjects(known []string, caller access.Identity) {
	if driver.CheckProject(f.Text) == nil && caller.May(access.Read, f.Text) == nil {
		f.Projects = append(f.Projects, f.Text)
	}
	for _, name := range known {
		if name == f.Text || !strings.Contains(name, f.Text) {
			continue
		}
		if len(f.Projects) == mostFound {
			f.note("There are more projects.")
			return
		}
		f.Projects = append(f.Projects, name)
	}
}

func (f *found) note(text string) { f.Notes = append(f.Notes, text) }

func (f *found) inLocks(ctx context.Context, p *Page, caller access.Identity) error {
	list, err := p.locksOf(ctx, caller, lockQuery{matches: func(l refdb.LockInfo) bool {
		return strings.Contains(l.Ref, f.Text) || strings.Contains(l.Owner, f.Text) || strings.Contains(ownerText(l.Owner), f.Text)
	}})
	if err != nil {
		return err
	}
	f.Locks = list.Rows[:min(len(list.Rows), mostFound)]
	switch {
	case list.Cut:
		f.note("There are so many locks that not all were looked at.")
	case len(list.Rows) > mostFound:
		f.note("There are more locks.")
	}
	return nil
}

// inRefs finds refs by their names, with or without what such names begin with.
func (f *found) inRefs(ctx context.Context, db *refdb.DB, caller access.Identity, known []string) error {
	var names []string
	for _, name := range []string{f.Text, "refs/heads/" + f.Text, "refs/tags/" + f.Text, "refs/" + f.Text} {
		if driver.CheckRef(name) == nil {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	for i, project := range known {
		if i == mostSearched {
			f.note("There are so many projects that refs were looked for in the first of them only.")
			return nil
		}
		if err := f.inProject(ctx, db, caller, project, names); err != nil {
			return err
		}
		if len(f.Refs) >= mostFound {
			f.Refs = f.Refs[:mostFound]
			f.note("There may be more refs.")
			return nil
		}
	}
	return nil
}

func (f *found) inProject(ctx context.Context, db *refdb.DB, caller access.Identity, project string, names []string) error {
	var readable []string
	for _, name := range names {
		if driver.CheckKey(project, name) == nil && caller.May(access.Read, project, name) == nil {
			readable = append(readable, name)
		}
	}
	if len(readable) == 0 {
		return nil
	}
	rows, err := db.GetAll(ctx, project, readable...)
	for _, row := range rows {
		if !row.Value.IsAbsent() {
			f.Refs = append(f.Refs, foundRef{project, row.Name, string(row.Value)})
		}
	}
	return err
}
