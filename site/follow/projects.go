package follow

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/head"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

// followed returns the repositories to keep up to date: those that are guarded here, of projects whose
// objects the database keeps.
func (f *Follower) followed() (all []config.Repository, err error) {
	guarded, err := install.GuardedBy(f.o.State.Config())
	for _, r := range guarded {
		if f.follows(r.Project) {
			all = append(all, r)
		}
	}
	return all, err
}

// follows reports whether the database keeps the objects of a project.
func (f *Follower) follows(project string) bool {
	p, ok := f.o.Projects.Get(project)
	return ok && packs.Stored(p.Project)
}

// FindProjects looks for the repositories of projects whose rows have changed: a repository may be new
// here, or be followed from now on.
func (f *Follower) FindProjects(names []string) {
	c := f.o.State.Config()
	for _, project := range names {
		if !f.follows(project) {
			continue
		}
		if r, err := c.Repository(project); err == nil && install.IsGuardedBy(c, r) {
			f.Found(r)
			f.queue.add(project, head.Ref) // a freeze may have refused it
		}
	}
}

// ruled returns the repository of a project and the configuration with its rules. The error says why
// the repository can't be brought up to date now; it wraps [config.ErrNotConfigured] if the site does
// not follow the project.
func (f *Follower) ruled(ctx context.Context, project string) (*config.Config, config.Repository, error) {
	c := f.o.State.Config()
	r, err := c.Repository(project)
	if err != nil {
		return nil, r, err
	}
	p, ok := f.o.Projects.Get(project)
	switch {
	case !install.IsGuardedBy(c, r), ok && !packs.Stored(p.Project):
		return nil, r, fmt.Errorf("%w: %s is not followed here", config.ErrNotConfigured, project)
	case !ok: // it is read within seconds
		return nil, r, fmt.Errorf("the database's row of project %s was not read yet", project)
	case p.Err != nil:
		return nil, r, fmt.Errorf("project %s: %w", project, p.Err)
	}
	id, err := f.o.Projects.IDs.Of(ctx, r)
	if err == nil && id != p.ID {
		err = fmt.Errorf("%s is a copy of another project: see git's setting refdb.projectid there", r.Path)
	}
	return c.Under(p.Rules), r, err
}

// LookAgain checks the refs of moves that were refused because this site is behind.
func (f *Follower) LookAgain(project string, moves []refdb.Update) {
	if !f.follows(project) {
		return
	}
	refs := make([]string, len(moves))
	for i, m := range moves {
		refs[i] = m.Ref
	}
	f.Look(project, refs...)
}
