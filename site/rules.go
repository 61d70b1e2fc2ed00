package site

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/failure"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// keepProjects refreshes what is known of the projects, and acts on their modes, until ctx ends.
func (d *Daemon) keepProjects(ctx context.Context) {
	tick := time.NewTicker(projects.RefreshEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.refreshProjects(ctx)
			changed := d.projects.Changed()
			d.follower.FindProjects(changed)
			d.lifecycle.RowsChanged(changed)
			d.logFailure(ctx, "what this site does about projects that are not enforced could not be written", d.modes.Adopt(ctx))
			d.logFailure(ctx, "the database could not follow what was let through", d.modes.WriteBack(ctx))
		case <-d.logged.Changed:
			d.logFailure(ctx, "the database could not follow what was let through", d.modes.WriteBack(ctx))
		case <-ctx.Done():
			return
		}
	}
}

func (d *Daemon) logFailure(ctx context.Context, what string, err error) {
	failure.Log(ctx, d.o.Logger, what, err)
}

func (d *Daemon) refreshProjects(ctx context.Context) {
	d.projects.Asking.Lock()
	defer d.projects.Asking.Unlock()
	limited, cancel := context.WithTimeout(ctx, d.state.Config().Timeout)
	defer cancel()
	d.logFailure(ctx, "the projects' rules could not be read", d.projects.Refresh(limited, d.db))
}

// askProjects refreshes the projects if the last answer is too old, as after an outage.
func (d *Daemon) askProjects(ctx context.Context, c *config.Config) error {
	if valid, err := d.projects.Valid(); valid || err != nil {
		return err
	}
	d.projects.Asking.Lock()
	defer d.projects.Asking.Unlock()
	if valid, err := d.projects.Valid(); valid || err != nil {
		return err // another push has asked meanwhile
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := d.projects.Refresh(ctx, d.db); err != nil {
		return refusal.DatabaseFailed(err)
	}
	return nil
}

// ruled returns the configuration with the rules that the database has for r's project. The error
// says why the daemon can't decide about pushes to it now.
func (d *Daemon) ruled(ctx context.Context, c *config.Config, r config.Repository) (*config.Config, error) {
	if err := d.state.AwaitInheritance(ctx); err != nil {
		return nil, err
	}
	if _, free := d.projects.Logs(r.Project); !free {
		if err := d.askProjects(ctx, c); err != nil {
			return nil, err
		}
	}
	now, err := projects.Uptime()
	if err != nil {
		return nil, err
	}
	k := &d.projects
	known, ok := k.Get(r.Project)
	if !ok && !c.GuardsProject(r.Project) {
		return c, nil
	}
	id, err := k.IDs.Of(ctx, r)
	if err != nil {
		return nil, err
	}
	if !ok || id == "" {
		row, err := d.register(ctx, c, r, id)
		if err != nil {
			return nil, err
		}
		if now, err = projects.Uptime(); err != nil {
			return nil, err
		}
		known = k.Read(row, now)
		id = row.ID
	}
	switch {
	case known.Err != nil:
		return nil, fmt.Errorf("project %s: %w: %s", r.Project, known.Err, wire.NothingWasChanged)
	case id != known.ID:
		return nil, projects.OtherID(r, k.NameOf(id))
	case known.Mode == config.Removed:
		return nil, refusal.Lines{wire.RemovedProject(r.Project)}
	case known.Mode == config.Comparing:
		return nil, errors.New(wire.Comparing(r.Project))
	case now < known.Settled:
		return nil, errors.New(wire.RulesChanged(r.Project, known.Settled-now))
	}
	return c.Under(known.Rules), nil
}

// register finds or creates the project of a repository that no command has put under guard for the database: its hooks are from before there were
// projects, or git's template brought them when it was made.
func (d *Daemon) register(ctx context.Context, c *config.Config, r config.Repository, id string) (row refdb.Project, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	// Of several first pushes one makes the project. The others find what the repository records by then.
	select {
	case d.registering <- struct{}{}:
		defer func() { <-d.registering }()
	case <-ctx.Done():
		return row, refusal.DatabaseFailed(context.Cause(ctx))
	}
	if id == "" {
		if id, err = d.projects.IDs.Of(ctx, r); err != nil {
			return row, err
		}
	}
	if id == "" {
		id = d.unrecorded[r.Path]
	}
	empty, failed := projects.HasNoRefs(ctx, r)
	first := *c
	if failed != nil || !empty || packs.CheckSource(ctx, r.Path) != nil {
		first.NewProjectStore = "" // nobody stores a base here, which an empty repository does not need
	}
	row, created, err := projects.FindOrCreate(ctx, &first, d.db, r, id, projects.NoClaim, func() (bool, error) {
		if failed != nil {
			return false, refusal.Lines{wire.OneLine(failed.Error())}
		}
		return empty, nil
	})
	if err != nil {
		return row, projects.NotRegistered(err)
	}
	if err = d.projects.IDs.Record(ctx, r, row.ID); err == nil {
		delete(d.unrecorded, r.Path)
	} else if created {
		d.unrecorded[r.Path] = row.ID
	}
	return row, err
}
