package site

import (
	"context"
	"slices"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
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
		d.o.Logger.WarnContext(ctx, "some repositories could not be checked for git processes started by an earlier daemon")
	}
	for _, r := range repositories {
		if runs, err := d.mover.HasEarlier(r.Path); runs || err != nil {
			d.list.Inherit(r.Path)
		}
	}
}

// removeLeft removes the lock files that a git of this daemon or of an earlier one has left at refs
// of the repository at path because it was killed.
func (d *Daemon) removeLeft(path string, refs []string) {
	d.state.Go(func(work context.Context) {
		select {
		case <-d.state.Started(): // guards, which make lock files, too, are known
			d.guards.RemoveLeft(work, path, gitrepo.LocksOf(path, slices.Concat(refs, []string{"HEAD"}), true))
		case <-work.Done():
		}
	})
}
