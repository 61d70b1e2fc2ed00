package site

import (
	"context"
	"sync"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// earlierFollowers are the repositories in which no git follows the database any more that an earlier daemon has let through.
type earlierFollowers struct{ ended sync.Map }

// awaitEarlierFollowers returns an error while a git moves refs to what the database holds that an earlier daemon has let through. It does
// not wait long.
func (d *Daemon) awaitEarlierFollowers(ctx context.Context, path string) error {
	if _, none := d.earlier.ended.Load(path); none {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if pusher.FollowsSince(d.state.Locked, path, d.state.Config().GitPrograms) {
		return refusal.Because(refusal.Locked, refusal.Lines{wire.EarlierFollower})
	}
	d.earlier.ended.Store(path, true)
	return nil
}

// openMoves opens the list of moves. It is called before anything can move.
func (d *Daemon) openMoves(ctx context.Context, c *config.Config) {
	d.list.Open(ctx, c.State, d.state.Boot, c.Socket+".moves", d.o.Logger)
	if d.list.IsNew() {
		d.recordEarlier(ctx, c)
	}
}

// recordEarlier records the repositories in which a git follows the database that an earlier daemon has let through: what it moves was recorded
// in the list before. It is called before readers are told to compare everything.
func (d *Daemon) recordEarlier(ctx context.Context, c *config.Config) {
	if !pusher.AnyFollowsSince(d.state.Locked, c.GitPrograms) {
		return
	}
	repositories, err := install.GuardedBy(c)
	if err != nil {
		d.o.Logger.WarnContext(ctx, "not all repositories could be looked at for gits that an earlier daemon has let through")
	}
	for _, r := range repositories {
		if pusher.FollowsSince(d.state.Locked, r.Path, c.GitPrograms) {
			d.list.Inherit(r.Path)
		}
	}
}
