package site

import (
	"context"

	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// followAsked checks the repository that q names: a command has put it under guard, or has found that it
// is not what the database holds.
func (d *Daemon) followAsked(ctx context.Context, q wire.Request) wire.Response {
	r, err := d.state.Config().Find(q.Dir)
	if err != nil {
		return wire.Response{Lines: []string{wire.OneLine(err.Error())}}
	}
	d.policy.Refresh(ctx)
	d.follower.FindProjects([]string{r.Project})
	if p, ok := d.projects.Get(r.Project); !ok || !packs.Stored(p.Project) {
		d.list.Repository(r.Path) // the follower does not
	} else {
		d.follower.Compare(r.Project)
	}
	return wire.Response{OK: true}
}
