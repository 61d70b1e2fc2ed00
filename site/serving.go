package site

import (
	"context"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
)

// openMoves opens the list of moves. It is called before anything can move.
func (d *Daemon) openMoves(ctx context.Context, c *config.Config) {
	d.list.Open(ctx, c.State, d.state.Boot, c.Socket+".moves", d.o.Logger)
	if d.list.IsNew() {
		d.recordEarlier(ctx, c)
	}
}

// recordEarlier records the repositories in which a git of an earlier daemon may move refs: these
// moves were on the list that was lost. It is called before readers are told to compare everything.
func (d *Daemon) recordEarlier(ctx context.Context, c *config.Config) {
	repositories, err := install.GuardedBy(c)
	if err != nil {
		d.o.Logger.WarnContext(ctx, "not all repositories could be looked at for gits that an earlier daemon has started")
	}
	for _, r := range repositories {
		if runs, err := d.mover.HasEarlier(r.Path); runs || err != nil {
			d.list.Inherit(r.Path)
		}
	}
}
