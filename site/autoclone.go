package site

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/clone"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// lookForUncloned is how often all projects are looked at for those that have no repository here. One whose row changes is
	// looked at within seconds.
	lookForUncloned = time.Minute
	// cloneMaker begins the names of directories that this daemon makes. So the next one knows them.
	cloneMaker = "daemon-"
)

// keepCloning clones projects that have no repository here, if the configuration says so, until ctx ends.
func (d *Daemon) keepCloning(ctx context.Context) {
	consider := func(names []string) {
		c := d.config.Load()
		for _, project := range names {
			if c.AutoClone && d.isToBeCloned(c, project) {
				d.cloner.add(project)
			} else {
				d.cloner.remove(project)
			}
		}
	}
	d.cloner.run(ctx, lookForUncloned, d.projectNames, consider, func(project string) {
		d.cloneOne(ctx, d.config.Load(), project)
		consider([]string{project})
	})
}

func (d *Daemon) projectNames() (names []string) {
	for _, p := range d.projects.All() {
		names = append(names, p.Project.Project)
	}
	return names
}

// isToBeCloned reports whether a project is to have a repository here and has none, or one that is not guarded.
func (d *Daemon) isToBeCloned(c *config.Config, project string) bool {
	p, ok := d.projects.Get(project)
	if !ok || p.Err != nil || !packs.Stored(p.Project) || !c.GuardsProject(project) || c.Names(project) {
		return false
	}
	if d.deletions.has(project) || d.isBeingCreated(project) {
		return false
	}
	r, err := c.Repository(project)
	return err != nil || !isGuardedHere(c, r) || clone.Unguarded(r)
}

// cloneOne makes the repository of a project.
func (d *Daemon) cloneOne(ctx context.Context, c *config.Config, project string) {
	rep, err := d.clone(ctx, c, project)
	which := d.digest(project, "")
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errNoRef):
		d.cloner.waits(project)
	case err != nil:
		d.cloner.failed(project, "it has no repository here, and can't be cloned: "+wire.OneLine(err.Error()))
		d.o.Logger.WarnContext(ctx, "a project can't be cloned; trying again: see `refdbctl site status`", "project", which, "class", refdb.ClassOf(err).String())
	default:
		d.o.Logger.InfoContext(ctx, "a project was cloned", "project", which, "refs", rep.Refs, "packs", rep.Packs)
	}
}

// errNoRef: the database has no ref of a project. A guard may be about to create it, and that may come to nothing.
var errNoRef = errors.New("it has no refs yet")

// clone makes the repository of a project that never had one here. One that had is left to an operator: its disk may be away, and
// what was pushed into it is decided by cloning it again.
func (d *Daemon) clone(ctx context.Context, c *config.Config, project string) (rep clone.Report, err error) {
	if d.o.Hook == "" {
		return rep, errors.New("refdb-hook is neither beside the daemon's program nor in PATH")
	}
	if err := errors.Join(d.awaitServing(ctx), d.mayAct(ctx)); err != nil {
		return rep, err
	}
	if r, err := c.Repository(project); err == nil {
		if !clone.Unguarded(r) {
			return rep, fmt.Errorf("%s is a repository that is not guarded: put it under guard with `refdbctl site enable`, or move it away", r.Path)
		}
		p, _ := d.projects.Get(project)
		if id, err := d.projects.IDs.Of(ctx, r); err != nil || id != p.ID {
			return rep, errors.Join(err, fmt.Errorf("%s is a copy of another project: move it away", r.Path))
		}
		return rep, clone.Guard(ctx, c, r, d.o.Hook) // an earlier daemon did not come to that
	}
	if d.follower.Knows(project) {
		return rep, errors.New(wire.ProjectVanished(project))
	}
	for i, err := range d.db.Intents(ctx, refdb.IntentFilter{Project: project, Owner: c.Site}) {
		if err != nil {
			return rep, err
		}
		return rep, fmt.Errorf("a push of %s was under way in a repository that is gone: run `refdbctl site clone %s`", i.Ref, project)
	}
	path, err := c.NewPath(project)
	if err != nil {
		return rep, err
	}
	switch has, err := d.hasRef(ctx, project); {
	case err != nil:
		return rep, err
	case !has:
		return rep, errNoRef
	}
	if err := removeUnfinished(filepath.Dir(path)); err != nil {
		return rep, fmt.Errorf("removing what a daemon before left: %w", err)
	}
	return clone.Guarded(ctx, c, d.db, clone.Options{Project: project, Site: c.Site, By: d.db.Owner(), Maker: cloneMaker}, d.o.Hook)
}

// hasRef reports whether a ref of a project holds anything in the database.
func (d *Daemon) hasRef(ctx context.Context, project string) (bool, error) {
	for _, err := range d.db.Refs(ctx, project, "refs/") {
		return err == nil, err
	}
	return false, nil
}

// removeUnfinished removes what a daemon that was killed has left in a directory. Nobody else makes such directories, and this daemon one at
// a time.
func removeUnfinished(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), config.Unfinished+cloneMaker) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
