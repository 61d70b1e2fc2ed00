package sessions

import (
	"context"
	"errors"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// adoptNew puts a repository under guard that a guard has just created: it has no refs, and nobody
// else may know it. A repository with refs is left to an administrator.
func (gs *Guards) adoptNew(ctx context.Context, c *config.Config, r config.Repository) error {
	if install.IsGuardedBy(c, r) {
		return nil
	}
	if _, known := gs.Projects.Get(r.Project); !known && !c.GuardsProject(r.Project) {
		return nil
	}
	gs.making.Lock()
	defer gs.making.Unlock()
	if install.IsGuardedBy(c, r) {
		return nil
	}
	empty, err := projects.HasNoRefs(ctx, r)
	if err == nil && (!empty || gs.Hook == "") {
		err = refusal.Because(refusal.NotConfigured, errors.New(wire.NotUnderGuard(r.Path)))
	}
	if err != nil {
		return err
	}
	id, err := gs.Projects.IDs.Of(ctx, r)
	if err != nil {
		return err
	}
	row, err := gs.rowOfNew(ctx, c, r, id)
	if err != nil {
		return err
	}
	if err := gs.Projects.IDs.Record(ctx, r, row.ID); err != nil {
		return err
	}
	if _, known := gs.Projects.Get(r.Project); !known {
		now, err := projects.Uptime()
		if err != nil {
			return err
		}
		gs.Projects.Read(row, now)
	}
	if err := install.Enable(ctx, c, r, gs.Hook, func(install.Step) {}); err != nil {
		return err
	}
	gs.Logger.InfoContext(ctx, "a repository created by a guard was put under guard", "repository", gs.State.Digest(r.Project, ""))
	return nil
}

// rowOfNew returns the project of a repository that a guard has created: the one that was reserved
// for it. If the guard has not asked before it created the repository, that is the existing project
// of that name, or a new one.
func (gs *Guards) rowOfNew(ctx context.Context, c *config.Config, r config.Repository, id string) (row driver.Project, err error) {
	gs.lock()
	reserved := ""
	if cr := gs.creationAt(r.Path); cr != nil {
		reserved = cr.project
	}
	gs.unlock()
	if reserved == "" {
		row, _, err = projects.FindOrCreate(ctx, c, gs.DB, r, id, projects.NoClaim, func() (bool, error) { return true, nil })
		if err != nil {
			err = projects.NotRegistered(err)
		}
		return row, err
	}
	row, ok, err := gs.DB.Projects().Get(ctx, r.Project)
	switch {
	case err != nil:
		return row, refusal.DatabaseFailed(err)
	case !ok || row.ID != reserved || id != "" && id != reserved:
		return row, projects.Exists(r.Project)
	}
	return row, nil
}
