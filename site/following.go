package site

import (
	"context"
	"fmt"
	"net"

	"github.com/globalrefdb/globalrefdb/site/install"
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

// catchUpAsked brings refs of the repository that q names to the database's values, for a `site sync`
// or a `site check --repair`, which it tells to wait.
func (d *Daemon) catchUpAsked(conn *net.UnixConn, q wire.Request) wire.Response {
	waits := d.hooks.Waiting(conn)
	ctx, stop := waits.KeepWaiting(d.state.Upkeep)
	lines, err := d.catchUp(ctx, q)
	stop()
	if err != nil {
		lines = append(lines, wire.OneLine(err.Error()))
	}
	return wire.Response{OK: err == nil, Lines: lines}
}

func (d *Daemon) catchUp(ctx context.Context, q wire.Request) (lines []string, err error) {
	c := d.state.Config()
	r, err := c.Find(q.Dir)
	if err == nil && !install.IsGuardedBy(c, r) {
		err = fmt.Errorf("%s is not guarded by this daemon", q.Dir)
	}
	if err == nil {
		err = d.state.AwaitServing(ctx)
	}
	if err == nil {
		c, err = d.policy.Ruled(ctx, c, r)
	}
	if err != nil {
		return nil, err
	}
	return d.follower.Answer(ctx, c, r, q.Body)
}
