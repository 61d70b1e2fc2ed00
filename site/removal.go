package site

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
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/durable"
	"github.com/globalrefdb/globalrefdb/site/maintenance"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	// removedFor is how long the repository of a removed project is kept.
	removedFor = 30 * 24 * time.Hour
	// removedLayout names the directories that repositories are moved to at a time, in UTC, by the database's clock.
	removedLayout = "20060102T150405Z"
	// lookForRemoved is how often all projects are looked at, and repositories that were kept long enough.
	lookForRemoved = time.Hour
)

// A notYet says that a repository will be moved, but only after that time. That is no failure.
type notYet time.Duration

func (e notYet) Error() string { return "not before " + time.Duration(e).String() }

// keepFollowingRemovals moves the repositories of removed projects aside, if the configuration says where to, until ctx ends.
func (d *Daemon) keepFollowingRemovals(ctx context.Context) {
	consider := func(names []string) {
		for _, project := range names {
			if d.config.Load().RemovedTo != "" {
				d.removals.add(project)
			} else {
				d.removals.remove(project)
			}
		}
	}
	all := func() []string {
		d.deleteRemoved(ctx, d.config.Load().RemovedTo)
		return d.projectNames()
	}
	d.removals.run(ctx, lookForRemoved, all, consider, func(project string) {
		c := d.config.Load()
		to, err := d.followRemoval(ctx, c, project)
		which := d.digest(project, "")
		var wait notYet
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &wait):
			d.removals.later(project, time.Duration(wait))
			return
		case err != nil:
			d.removals.failed(project, "the project was removed, and its repository is still here: "+wire.OneLine(err.Error()))
			d.o.Logger.WarnContext(ctx, "the repository of a removed project stays; trying again: see `refdbctl site status`", "project", which, "class", refdb.ClassOf(err).String())
			return
		case to != "":
			d.o.Logger.InfoContext(ctx, "the repository of a removed project was moved aside", "project", which)
		}
		d.removals.remove(project)
	})
}

// followRemoval moves the repository of a project aside if the project that it was recorded for was removed, and returns where to.
func (d *Daemon) followRemoval(ctx context.Context, c *config.Config, project string) (to string, err error) {
	p, ok := d.projects.Get(project)
	r, err := c.Repository(project)
	if !ok || c.RemovedTo == "" || err != nil || !isGuardedHere(c, r) {
		return "", nil
	}
	removed, err := d.wasRemoved(ctx, r, p)
	switch {
	case err != nil:
		d.logFailure(ctx, "whether a project was removed can't be told", err)
		return "", notYet(time.Minute)
	case !removed:
		return "", nil
	}
	switch now, err := projects.Uptime(); {
	case err != nil:
		return "", err
	case now < p.Settled:
		return "", notYet(p.Settled - now)
	}
	now, err := d.db.Now(ctx)
	if err != nil {
		return "", err
	}
	from, to, err := c.RemovedPath(r, filepath.Join(c.RemovedTo, now.UTC().Format(removedLayout)))
	if err != nil {
		return "", err
	}
	return to, d.moveAside(ctx, c, r, p, from, to)
}

// wasRemoved reports whether the project that a repository was recorded for was removed.
func (d *Daemon) wasRemoved(ctx context.Context, r config.Repository, p projects.Known) (bool, error) {
	id, err := d.projects.IDs.Of(ctx, r)
	if err != nil || id == p.ID && p.Mode != config.Removed {
		return false, err
	}
	if err := d.awaitServing(ctx); err != nil {
		return false, err
	}
	return projects.WasRemoved(ctx, d.db, p.Project, id)
}

// moveAside moves a repository while nothing else works on it, if the database knows all that it holds.
func (d *Daemon) moveAside(ctx context.Context, c *config.Config, r config.Repository, p projects.Known, from, to string) error {
	if err := d.mayAct(ctx); err != nil {
		return err
	}
	if pusher.RunsSince(d.locked, r.Path, c.GitPrograms) {
		return errors.New("a git has been running there since before the daemon started")
	}
	patience, cancel := context.WithTimeoutCause(ctx, pruneWait, errors.New("there was always a push or a sync under way"))
	defer cancel()
	if err := d.awaitInheritedPrune(patience, r.Path); err != nil {
		return err
	}
	lock, err := maintenance.Alone(patience, r.Path)
	if err != nil {
		return err
	}
	defer lock.Close()
	release, err := d.pruning.alone(patience, r.Path)
	if err != nil {
		return err
	}
	defer release()
	if err := d.isAllKnown(ctx, c.Under(p.Rules), r, p.Project); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	switch _, err := os.Lstat(to); {
	case err == nil:
		return notYet(time.Second) // another has gone there in this one
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	d.follower.Forget(ctx, r.Project)
	d.cloner.rowsChanged([]string{r.Project}) // another project may have its name now
	return errors.Join(durable.SyncDir(filepath.Dir(from)), durable.SyncDir(filepath.Dir(to)))
}

// isAllKnown returns an error if something of a repository would be lost with it: a push that is not settled, or a guarded ref with a
// value that the project's history does not have.
func (d *Daemon) isAllKnown(ctx context.Context, c *config.Config, r config.Repository, p refdb.Project) error {
	// Since the row was read the project may have been brought back.
	if row, ok, err := d.db.Project(ctx, r.Project); err != nil || !ok || row.Op != p.Op {
		return errors.Join(err, errors.New("the project's row has just changed"))
	}
	for i, err := range d.db.Intents(ctx, refdb.IntentFilter{Project: r.Project, Owner: c.Site}) {
		if err != nil {
			return err
		}
		return fmt.Errorf("a push of %s is not settled", i.Ref)
	}
	if p.Mode == config.Removed {
		for ref, err := range d.db.Refs(ctx, r.Project, "refs/") {
			if err != nil {
				return err
			}
			return fmt.Errorf("the database has refs of it, as %s: run `refdbctl project remove %s` again", ref.Name, r.Project)
		}
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
		if c.Guards(r.Project, ref.Name) {
			local[ref.Name] = refdb.Value(ref.Value)
		}
	}
	if len(local) == 0 {
		return nil
	}
	for change, err := range d.db.History(ctx, r.Project, "") {
		if err != nil {
			return err
		}
		// The removal itself comes first: it has all values.
		if here, ok := local[change.Ref]; ok && (here.Equivalent(change.Old) || here.Equivalent(change.New)) {
			delete(local, change.Ref)
			if len(local) == 0 {
				return nil
			}
		}
	}
	for name := range local {
		return fmt.Errorf("%s holds what the database never had (of such refs there are %d): look at that, and move the repository away by hand", name, len(local))
	}
	return nil
}

// deleteRemoved deletes the repositories that were kept in a directory for long enough.
func (d *Daemon) deleteRemoved(ctx context.Context, dir string) {
	if dir == "" {
		return
	}
	// This machine's clock may be wrong.
	now, err := d.db.Now(ctx)
	if err != nil {
		return
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		at, notOurs := time.Parse(removedLayout, e.Name())
		if notOurs != nil || now.Sub(at) < removedFor {
			continue
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		d.o.Logger.InfoContext(ctx, "repositories of removed projects were deleted", "removed", at)
	}
	if err != nil {
		d.o.Logger.WarnContext(ctx, "repositories of removed projects could not be deleted: look at site.followRemoval", "error", d.digest(err.Error(), ""))
	}
}
