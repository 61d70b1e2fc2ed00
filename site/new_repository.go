package site

import (
	"context"
	"errors"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// newRepositories puts repositories under guard, one at a time, that guards have made.
type newRepositories struct{ one sync.Mutex }

// adoptNew puts a repository under guard that a guard has just made: it has no refs, and nobody else may know of it. One with refs an
// administrator has to look at.
func (d *Daemon) adoptNew(ctx context.Context, c *config.Config, r config.Repository) error {
	if isGuardedHere(c, r) {
		return nil
	}
	if _, known := d.projects.Get(r.Project); !known && !c.GuardsProject(r.Project) {
		return nil
	}
	d.made.one.Lock()
	defer d.made.one.Unlock()
	if isGuardedHere(c, r) {
		return nil
	}
	empty, err := projects.HasNoRefs(ctx, r)
	if err == nil && (!empty || d.o.Hook == "") {
		err = refusal.Because(refusal.NotConfigured, errors.New(wire.NotUnderGuard(r.Path)))
	}
	if err != nil {
		return err
	}
	id, err := d.projects.IDs.Of(ctx, r)
	if err != nil {
		return err
	}
	row, err := d.rowOfNew(ctx, c, r, id)
	if err != nil {
		return err
	}
	if err := d.projects.IDs.Record(ctx, r, row.ID); err != nil {
		return err
	}
	if _, known := d.projects.Get(r.Project); !known {
		now, err := projects.Uptime()
		if err != nil {
			return err
		}
		d.projects.Read(row, now)
	}
	if err := install.Enable(ctx, c, r, d.o.Hook, func(install.Step) {}); err != nil {
		return err
	}
	d.o.Logger.InfoContext(ctx, "a repository that a guard has made was put under guard", "repository", d.digest(r.Project, ""))
	return nil
}

// rowOfNew returns the project of a repository that a guard has made: the one that was reserved for it or, of a guard that does not ask before
// it makes repositories, the one that there is of that name, or a new one.
func (d *Daemon) rowOfNew(ctx context.Context, c *config.Config, r config.Repository, id string) (row refdb.Project, err error) {
	d.guards.lock()
	reserved := ""
	if cr := d.guards.creationAt(r.Path); cr != nil {
		reserved = cr.id
	}
	d.guards.unlock()
	if reserved == "" {
		row, _, err = projects.FindOrCreate(ctx, c, d.db, r, id, false, func() (bool, error) { return true, nil })
		if err != nil {
			err = notRegistered(err)
		}
		return row, err
	}
	row, ok, err := d.db.Project(ctx, r.Project)
	switch {
	case err != nil:
		return row, refusal.DatabaseFailed(err)
	case !ok || row.ID != reserved || id != "" && id != reserved:
		return row, projects.Exists(r.Project)
	}
	return row, nil
}
