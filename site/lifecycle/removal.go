package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// removedFor is how long the repository of a removed project is kept.
	removedFor = 30 * 24 * time.Hour
	// removedLayout is the format of the names of the directories that repositories are moved to:
	// the time of the move in UTC, by the database's clock. The prefix distinguishes them from
	// other directories there.
	removedLayout = "refdb-removed-20060102T150405Z"
	// lookForRemoved is the interval at which all projects are checked, and expired repositories
	// are deleted.
	lookForRemoved = time.Hour
)

// A notYet means that a repository will be moved, but not before this duration has passed. It is
// not a failure.
type notYet time.Duration

func (e notYet) Error() string { return "not before " + time.Duration(e).String() }

// RunRemovals moves the repositories of removed projects aside, if site.followRemoval is set, until
// ctx ends.
func (k *Lifecycle) RunRemovals(ctx context.Context) {
	consider := func(names []string) {
		for _, project := range names {
			k.removals.set(project, k.State.Config().RemovedTo != "")
		}
	}
	all := func() []string {
		k.deleteRemoved(ctx, k.State.Config())
		return k.projectNames()
	}
	k.removals.run(ctx, lookForRemoved, all, consider, func(project string) {
		c := k.State.Config()
		to, err := k.FollowRemoval(ctx, c, project)
		which := k.State.Digest(project, "")
		var wait notYet
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &wait):
			k.removals.later(project, time.Duration(wait))
			return
		case err != nil:
			k.removals.fail(project, "the project was removed, but its repository is still here: "+wire.OneLine(err.Error()), err)
			k.Logger.WarnContext(ctx, "the repository of a removed project could not be moved aside; trying again: see `refdbctl site status`", "project", which, "class", refdb.ClassOf(err).String())
			return
		case to != "":
			k.Logger.InfoContext(ctx, "the repository of a removed project was moved aside", "project", which)
		}
		k.removals.done(project)
	})
}

// FollowRemoval moves the repository of a project aside if the project that the repository was
// recorded for was removed. It returns the new path.
func (k *Lifecycle) FollowRemoval(ctx context.Context, c *config.Config, project string) (to string, err error) {
	p, ok := k.Projects.Get(project)
	if !ok || c.RemovedTo == "" {
		return "", nil
	}
	r, err := c.Repository(project)
	if err != nil && p.Mode == config.Removed && k.Follower.Knows(project) {
		k.Follower.Forget(ctx, project) // an earlier daemon was interrupted before this
	}
	if err != nil || !install.IsGuardedBy(c, r) {
		return "", nil
	}
	removed, err := k.wasRemoved(ctx, r, p)
	switch {
	case err != nil:
		k.logFailure(ctx, "can't determine whether a project was removed", err)
		return "", notYet(time.Minute)
	case !removed:
		return "", nil
	case p.Err != nil: // the rules are unknown, and so are the refs that would be lost
		return "", p.Err
	}
	switch now, err := projects.Uptime(); {
	case err != nil:
		return "", err
	case now < p.Settled:
		return "", notYet(p.Settled - now)
	}
	now, err := k.DB.Now(ctx)
	if err != nil {
		return "", err
	}
	dir, err := c.RemovedDir()
	if err != nil {
		return "", err
	}
	from, to, err := c.RemovedPath(r, filepath.Join(dir, now.UTC().Format(removedLayout)))
	if err != nil {
		return "", err
	}
	if err := k.moveAside(ctx, c, r, p, from, to); err != nil {
		return "", err
	}
	// The new directory first, then the old one.
	for below := filepath.Dir(to); err == nil; below = filepath.Dir(below) {
		if err = durable.SyncDir(below); below == dir {
			break
		}
	}
	return to, errors.Join(err, durable.SyncDir(filepath.Dir(from)))
}

// wasRemoved reports whether the project that a repository was recorded for was removed.
func (k *Lifecycle) wasRemoved(ctx context.Context, r config.Repository, p projects.Known) (bool, error) {
	id, err := k.Projects.IDs.Of(ctx, r)
	if err != nil || id == p.ID && p.Mode != config.Removed {
		return false, err
	}
	if err := k.State.AwaitServing(ctx); err != nil {
		return false, err
	}
	return projects.WasRemoved(ctx, k.DB, p.Project, id)
}

// moveAside moves a repository while no other process works on it, provided that the database knows
// everything in it.
func (k *Lifecycle) moveAside(ctx context.Context, c *config.Config, r config.Repository, p projects.Known, from, to string) error {
	if err := k.Witness.MayAct(ctx); err != nil {
		return err
	}
	if pusher.RunsSince(k.State.Locked, r.Path, c.GitPrograms) {
		return errors.New("a git process from before the daemon's start is running there")
	}
	if k.Guards.OpenIn(r.Path) {
		return errors.New("a guard has an unsettled transaction there")
	}
	patience, cancel := context.WithTimeoutCause(ctx, maintenance.PruneWait, errors.New("a push, a sync or maintenance was in progress all the time"))
	defer cancel()
	if err := k.Maintainer.Enter(patience, func() {}); err != nil {
		return err
	}
	defer k.Maintainer.Leave()

	if err := k.Pruning.AwaitInherited(patience, r.Path); err != nil {
		return err
	}
	lock, err := maintenance.Exclusive(patience, r.Path)
	if err != nil {
		return err
	}
	defer lock.Close()
	release, err := k.Pruning.Exclusive(patience, r.Path)
	if err != nil {
		return err
	}
	defer release()
	if err := k.isAllKnown(ctx, c, r, p); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	switch _, err := os.Lstat(to); {
	case err == nil:
		return notYet(time.Second) // another repository was moved there within this second
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	// The last check before the move: the project may have been brought back meanwhile.
	switch row, ok, err := k.DB.Projects().Get(ctx, r.Project); {
	case err != nil:
		return err
	case !ok || row.Op != p.Op:
		return notYet(projects.RefreshEvery)
	}
	gone := k.Moves.About(r.Path, "")
	err = os.Rename(from, to)
	gone.End()
	if err != nil {
		return errors.Join(err, os.Remove(filepath.Dir(to)))
	}
	k.Follower.Forget(ctx, r.Project)
	k.cloner.rowsChanged([]string{r.Project}) // another project may have its name now
	return nil
}

// isAllKnown returns an error if moving a repository would lose something: a push that is not
// settled, or a ref with a value that is not in the project's history. If the repository belongs to
// an earlier project with this name, its rules are unknown, so all refs that rules may guard count.
func (k *Lifecycle) isAllKnown(ctx context.Context, c *config.Config, r config.Repository, p projects.Known) error {
	for i, err := range k.DB.Intents().All(ctx, driver.IntentFilter{Project: r.Project, Owner: c.Site}) {
		if err != nil {
			return err
		}
		return fmt.Errorf("a push of %s is not settled", i.Ref)
	}
	guards := func(ref string) bool { return config.Guardable(ref) }
	if id, err := k.Projects.IDs.Of(ctx, r); err != nil {
		return err
	} else if id == p.ID {
		for ref, err := range k.DB.Refs(ctx, r.Project, "refs/") {
			if err != nil {
				return err
			}
			return fmt.Errorf("the database still has refs of the project, such as %s: run `refdbctl project remove %s` again, unless it is running now", ref.Name, r.Project)
		}
		ruled := c.Under(p.Rules)
		guards = func(ref string) bool { return ruled.Guards(r.Project, ref) }
	}
	repo, err := gitrepo.OpenDir(r.Path)
	if err != nil {
		return err
	}
	local := map[string]refdb.Value{}
	for ref, err := range repo.Refs(ctx, func(string) {}) {
		if err != nil {
			return err
		}
		if guards(ref.Name) {
			local[ref.Name] = refdb.Value(ref.Value)
		}
	}
	if len(local) == 0 {
		return nil
	}
	for change, err := range k.DB.History(ctx, r.Project, "") {
		if err != nil {
			return err
		}
		// The first entry is the removal itself, which has all values.
		if here, ok := local[change.Ref]; ok && (here.Equivalent(change.Old) || here.Equivalent(change.New)) {
			delete(local, change.Ref)
			if len(local) == 0 {
				return nil
			}
		}
	}
	for name := range local {
		return fmt.Errorf("%s has a value that the database never had (refs with such values: %d): inspect them, and move the repository away by hand", name, len(local))
	}
	return nil
}

// deleteRemoved deletes the repositories that were moved aside long enough ago, both by the
// database's clock and by this machine's, because either clock may be wrong.
func (k *Lifecycle) deleteRemoved(ctx context.Context, c *config.Config) {
	if c.RemovedTo == "" {
		return
	}
	failed := func(err error) {
		if err != nil && ctx.Err() == nil {
			k.Logger.WarnContext(ctx, "repositories of removed projects could not be deleted: check site.followRemoval", "class", refdb.ClassOf(err).String())
		}
	}
	dir, err := c.RemovedDir()
	if err != nil {
		failed(err)
		return
	}
	now, err := k.DB.Now(ctx)
	if err != nil {
		failed(err)
		return
	}
	entries, err := os.ReadDir(dir)
	failed(err)
	for _, e := range entries {
		at, notOurs := time.Parse(removedLayout, e.Name())
		if notOurs != nil || now.Sub(at) < removedFor {
			continue
		}
		made, err := e.Info()
		if err == nil && time.Since(made.ModTime()) < removedFor {
			continue
		}
		if err == nil {
			err = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
		failed(err)
		if err == nil {
			k.Logger.InfoContext(ctx, "repositories of removed projects were deleted", "removed", at)
		}
	}
}
