package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/clone"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/pause"
	"github.com/globalrefdb/globalrefdb/site/maker"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// lookForUncloned is the interval at which all projects are checked for a missing repository. A
// project whose row changes is checked within seconds.
const lookForUncloned = time.Minute

// RunClones clones projects that have no repository here, if site.autoClone is set, until ctx ends.
func (k *Lifecycle) RunClones(ctx context.Context) {
	consider := func(names []string) {
		c := k.State.Config()
		for _, project := range names {
			k.cloner.set(project, c.AutoClone && k.isToBeCloned(ctx, c, project))
		}
	}
	k.cloner.run(ctx, lookForUncloned, k.projectNames, consider, func(project string) {
		k.cloneOne(ctx, k.State.Config(), project)
		consider([]string{project})
	})
}

func (k *Lifecycle) projectNames() (names []string) {
	for _, p := range k.Projects.All() {
		names = append(names, p.Project.Project)
	}
	return names
}

// isToBeCloned reports whether a project should have a repository here, but has none, or only one
// that is not under guard.
func (k *Lifecycle) isToBeCloned(ctx context.Context, c *config.Config, project string) bool {
	p, ok := k.Projects.Get(project)
	if !ok || p.Err != nil || !packs.Stored(p.Project) || !c.GuardsProject(project) || c.Names(project) {
		return false
	}
	if k.deletions.has(project) || k.Projects.Creating.Has(project) {
		return false
	}
	r, err := c.Repository(project)
	return err != nil || !install.IsGuardedBy(c, r) && !install.IsDisabled(ctx, r)
}

// cloneOne clones a project, and records the result.
func (k *Lifecycle) cloneOne(ctx context.Context, c *config.Config, project string) {
	rep, err := k.Clone(ctx, c, project)
	which := k.State.Digest(project, "")
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, config.ErrExists): // another process was faster: the next check decides
		k.cloner.done(project)
	case errors.Is(err, errNoRef):
		k.cloner.wait(project)
	case err != nil:
		k.cloner.fail(project, "the project has no repository here, and can't be cloned: "+wire.OneLine(err.Error()), err)
		k.Logger.WarnContext(ctx, "a project can't be cloned; trying again: see `refdbctl site status`", "project", which, "class", refdb.ClassOf(err).String(), "pack", packs.HeldBy(err))
	default:
		k.cloner.done(project)
		k.Logger.InfoContext(ctx, "a project was cloned", "project", which, "refs", rep.Refs, "packs", rep.Packs)
	}
}

// errNoRef means that the database has no ref of a project. A guard may be about to create one, but
// may also fail to.
var errNoRef = errors.New("it has no refs yet")

// Clone creates the repository of a project that never had one here. If the project had a
// repository here, an operator has to decide: its disk may only be unmounted, and cloning the
// project again decides what becomes of pushes that were in progress.
func (k *Lifecycle) Clone(ctx context.Context, c *config.Config, project string) (rep clone.Report, err error) {
	if k.Hook == "" {
		return rep, errors.New("refdb-hook is neither beside the daemon's program nor in PATH")
	}
	if err := errors.Join(k.State.AwaitServing(ctx), k.Witness.MayAct(ctx)); err != nil {
		return rep, err
	}
	if r, err := c.Repository(project); err == nil && !install.IsGuardedBy(c, r) {
		return rep, fmt.Errorf("%s is a repository that is not guarded: put it under guard with `refdbctl site enable`, or move it away", r.Path)
	}
	if _, err := c.NewPath(project); err != nil {
		return rep, err
	}
	if k.Follower.Knows(project) {
		return rep, errors.New(wire.ProjectVanished(project))
	}
	for i, err := range k.DB.Intents().All(ctx, driver.IntentFilter{Project: project, Owner: c.Site}) {
		if err != nil {
			return rep, err
		}
		return rep, fmt.Errorf("a push of %s was in progress in a repository that is gone: run `refdbctl site clone %s`", i.Ref, project)
	}
	switch has, err := k.hasRef(ctx, project); {
	case err != nil:
		return rep, err
	case !has:
		return rep, errNoRef
	}
	return clone.CloneAndGuard(ctx, c, k.DB, clone.Options{Project: project, Site: c.Site, By: k.DB.Owner(), Hook: k.Hook,
		Malformed: func(p driver.Pack, objection string) { k.Follower.FoundMalformed(ctx, project, p, objection) }})
}

// hasRef reports whether the database has a value for any ref of a project.
func (k *Lifecycle) hasRef(ctx context.Context, project string) (bool, error) {
	for _, err := range k.DB.Refs(ctx, project, "refs/") {
		return err == nil, err
	}
	return false, nil
}

// removeAbandonedEvery is the interval at which the daemon looks for unfinished repositories of
// killed processes.
const removeAbandonedEvery = time.Minute

// RunAbandoned removes unfinished repositories of interrupted clones, until ctx ends. Another clone
// of the same project does so, too, but may never happen.
func (k *Lifecycle) RunAbandoned(ctx context.Context) {
	for {
		removed, err := maker.RemoveAbandoned(ctx, k.State.Config())
		if err != nil {
			k.logFailure(ctx, "an unfinished repository can't be removed", err)
		}
		if removed > 0 {
			k.Logger.InfoContext(ctx, "unfinished repositories were removed, whose creating processes had ended", "repositories", removed)
		}
		if !pause.For(ctx, removeAbandonedEvery) {
			return
		}
	}
}
