package site

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/site/internal/failure"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

// keepProjects refreshes the cache of the projects and acts on their modes, until ctx ends.
func (d *Daemon) keepProjects(ctx context.Context, failed func(error)) {
	tick := time.NewTicker(projects.RefreshEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.policy.Refresh(ctx)
			changed := d.projects.Changed()
			d.follower.FindProjects(changed)
			d.lifecycle.RowsChanged(changed)
			adopted, written := d.modes.Adopt(ctx), d.modes.WriteBack(ctx)
			d.logFailure(ctx, "this site's record of projects that are not enforced could not be written", adopted)
			d.logFailure(ctx, "the database could not follow an accepted transaction", written)
			failed(errors.Join(adopted, written))
		case <-d.logged.Changed:
			written := d.modes.WriteBack(ctx)
			d.logFailure(ctx, "the database could not follow an accepted transaction", written)
			failed(written)
		case <-ctx.Done():
			return
		}
	}
}

func (d *Daemon) logFailure(ctx context.Context, what string, err error) {
	failure.Log(ctx, d.o.Logger, what, err)
}
