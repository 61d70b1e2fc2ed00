package site

import (
	"context"
	"slices"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/head"
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

// lookAtHead has the follower check HEAD of a repository if git has moved it.
func (d *Daemon) lookAtHead(r config.Repository, q wire.Request, lines []wire.Line) {
	moved := slices.ContainsFunc(lines, func(l wire.Line) bool { return l.Ref == head.Ref && l.Symbolic() })
	if !moved || q.State != wire.StateCommitted || q.Replica {
		return
	}
	if p, ok := d.projects.Get(r.Project); ok && packs.Stored(p.Project) {
		d.follower.Look(r.Project, head.Ref)
	}
}
