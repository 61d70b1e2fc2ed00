package site

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/follow"
	"github.com/globalrefdb/globalrefdb/site/head"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// newFollower returns what brings this site's repositories to what the database holds.
func (d *Daemon) newFollower(c *config.Config) *follow.Follower {
	return follow.New(d.db, follow.Options{
		Site: followedSite{d}, State: c.State, Name: presence.FollowerName(c.Site),
		Logger: d.o.Logger, Digest: d.digest, Parallel: max(2, runtime.NumCPU()),
	})
}

// followedSite is the daemon's part of a [follow.Follower].
type followedSite struct{ *Daemon }

// Followed is part of [follow.Site].
func (d followedSite) Followed(context.Context) ([]config.Repository, error) {
	var followed []config.Repository
	guarded, err := install.GuardedBy(d.config.Load())
	for _, r := range guarded {
		if p, ok := d.projects.Get(r.Project); ok && packs.Stored(p.Project) {
			followed = append(followed, r)
		}
	}
	return followed, err
}

// findFollowed lets the follower look at the repositories of some projects, whose rows have changed: one may be new here, or be
// followed from now on.
func (d *Daemon) findFollowed(names []string) {
	c := d.config.Load()
	for _, project := range names {
		p, ok := d.projects.Get(project)
		if !ok || !packs.Stored(p.Project) {
			continue
		}
		if r, err := c.Repository(project); err == nil && install.IsGuardedBy(c, r) {
			d.follower.Found(r)
		}
	}
}

// followAsked looks at the repository that q names: a command has put it under guard, or has found that it is not what the database holds.
func (d *Daemon) followAsked(ctx context.Context, q wire.Request) wire.Response {
	r, err := d.config.Load().Find(q.Dir)
	if err != nil {
		return wire.Response{Lines: []string{wire.OneLine(err.Error())}}
	}
	d.refreshProjects(ctx)
	d.findFollowed([]string{r.Project})
	if p, ok := d.projects.Get(r.Project); !ok || !packs.Stored(p.Project) {
		d.list.Repository(r.Path) // the follower does not
	} else {
		d.follower.Compare(r.Project)
	}
	return wire.Response{OK: true}
}

// Ruled is part of [follow.Site].
func (d followedSite) Ruled(ctx context.Context, project string) (*config.Config, config.Repository, error) {
	c := d.config.Load()
	r, err := c.Repository(project)
	if err != nil {
		return nil, r, err
	}
	p, ok := d.projects.Get(project)
	switch {
	case !install.IsGuardedBy(c, r), ok && !packs.Stored(p.Project):
		return nil, r, fmt.Errorf("%w: %s is not followed here", config.ErrNotConfigured, project)
	case !ok: // it is read within seconds
		return nil, r, fmt.Errorf("the database's row of project %s was not read yet", project)
	case p.Err != nil:
		return nil, r, fmt.Errorf("project %s: %w", project, p.Err)
	}
	id, err := d.projects.IDs.Of(ctx, r)
	if err == nil && id != p.ID {
		err = fmt.Errorf("%s is a copy of another project: see git's setting refdb.projectid there", r.Path)
	}
	return c.Under(p.Rules), r, err
}

// MayAct is part of [follow.Site].
func (d followedSite) MayAct(ctx context.Context) error {
	if err := d.awaitInheritance(ctx); err != nil {
		return err
	}
	return d.witness.MayAct(ctx)
}

// Share is part of [follow.Site].
func (d followedSite) Share(ctx context.Context, path string) (release func(), err error) {
	if err := d.awaitEarlierFollowers(ctx, path); err != nil { // HEAD has no claim
		return nil, err
	}
	return d.share(ctx, path)
}

// Appeared is part of [follow.Site].
func (d followedSite) Appeared(r config.Repository) { d.list.Repository(r.Path) }

// BeingCreated is part of [follow.Site].
func (d followedSite) BeingCreated(project string) bool { return d.guards.IsBeingCreated(project) }

// Mover is part of [follow.Site].
func (d followedSite) Mover(r config.Repository, repo *gitrepo.Repo) catchup.Mover {
	return &followedMoves{d.Daemon, r, repo}
}

// MoveHead is part of [follow.Site].
func (d followedSite) MoveHead(ctx context.Context, r config.Repository, repo *gitrepo.Repo, target string) error {
	defer d.list.About(r.Path, head.Ref)()
	return d.mover.Head(context.WithoutCancel(ctx), repo, target, catchup.Message)
}

// lookAtHead lets the follower look at HEAD of a repository if git has moved it.
func (d *Daemon) lookAtHead(r config.Repository, q wire.Request, lines []wire.Line) {
	moved := slices.ContainsFunc(lines, func(l wire.Line) bool { return l.Ref == head.Ref && l.Symbolic() })
	if !moved || q.State != wire.StateCommitted {
		return
	}
	if p, ok := d.projects.Get(r.Project); ok && packs.Stored(p.Project) {
		d.follower.Look(r.Project, head.Ref)
	}
}

// lookAgain lets the follower look at the refs of a push that was refused because this site is behind.
func (d *Daemon) lookAgain(r config.Repository, moves []refdb.Update) {
	refs := make([]string, len(moves))
	for i, m := range moves {
		refs[i] = m.Ref
	}
	if p, ok := d.projects.Get(r.Project); ok && packs.Stored(p.Project) {
		d.follower.Look(r.Project, refs...)
	}
}
