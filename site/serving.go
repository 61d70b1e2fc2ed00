package site

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/mover"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// awaitInheritance waits until the daemon knows what its predecessor left, at most until ctx ends. No
// ref may move here before: see [intent.Inherited].
func (d *Daemon) awaitInheritance(ctx context.Context) error {
	select {
	case <-d.started:
	case <-ctx.Done():
		return refusal.Because(refusal.Starting, errors.New(wire.DaemonStarting))
	}
	if !d.inherited.Known() {
		// The intents could not be read, for this reason.
		if err := d.presence.Lost(); errors.Is(err, refdb.ErrLostChanges) || errors.Is(err, refdb.ErrNotAdmitted) {
			return refusal.NotServed(err)
		}
		return refusal.Because(refusal.Starting, errors.New(wire.DaemonWaiting))
	}
	return nil
}

// awaitServing waits until the daemon can decide about pushes, at most until ctx ends.
func (d *Daemon) awaitServing(ctx context.Context) error {
	if err := d.awaitInheritance(ctx); err != nil {
		return err
	}
	if d.stopping.Load() {
		return refusal.Because(refusal.Stopping, errors.New(wire.DaemonStopping))
	}
	if err := d.presence.Lost(); err != nil {
		return refusal.NotServed(err)
	}
	return nil
}

// earlierPatience is how long a move waits for a git of an earlier daemon. Such a git ends within milliseconds, unless it stands still.
const earlierPatience = time.Second

// awaitEarlierFollowers returns an error while a git of an earlier daemon may move refs in the repository at path. It does not wait long.
func (d *Daemon) awaitEarlierFollowers(ctx context.Context, path string) error {
	limited, cancel := context.WithTimeout(ctx, earlierPatience)
	defer cancel()
	err := d.mover.AwaitEarlier(limited, path)
	if errors.Is(err, mover.ErrEarlier) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return refusal.Because(refusal.Locked, refusal.Lines{wire.EarlierFollower})
	}
	return err
}

// openMoves opens the list of moves. It is called before anything can move.
func (d *Daemon) openMoves(ctx context.Context, c *config.Config) {
	d.list.Open(ctx, c.State, d.boot, c.Socket+".moves", d.o.Logger)
	if d.list.IsNew() {
		d.recordEarlier(ctx, c)
	}
}

// recordEarlier records the repositories in which a git of an earlier daemon may move refs: these moves were on the list that was lost. It is
// called before readers are told to compare everything.
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
