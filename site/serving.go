package site

import (
	"context"
	"errors"
	"sync"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/pusher"
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
	if pusher.FollowsSince(d.locked, path, d.config.Load().GitPrograms) {
		return refusal.Because(refusal.Locked, refusal.Lines{wire.EarlierFollower})
	}
	d.earlier.ended.Store(path, true)
	return nil
}

// openMoves opens the list of moves. It is called before anything can move.
func (d *Daemon) openMoves(ctx context.Context, c *config.Config) {
	d.list.Open(ctx, c.State, d.boot, c.Socket+".moves", d.o.Logger)
	if d.list.IsNew() {
		d.recordEarlier(ctx, c)
	}
}

// recordEarlier records the repositories in which a git follows the database that an earlier daemon has let through: what it moves was recorded
// in the list before. It is called before readers are told to compare everything.
func (d *Daemon) recordEarlier(ctx context.Context, c *config.Config) {
	if !pusher.AnyFollowsSince(d.locked, c.GitPrograms) {
		return
	}
	repositories, err := install.GuardedBy(c)
	if err != nil {
		d.o.Logger.WarnContext(ctx, "not all repositories could be looked at for gits that an earlier daemon has let through")
	}
	for _, r := range repositories {
		if pusher.FollowsSince(d.locked, r.Path, c.GitPrograms) {
			d.list.Inherit(r.Path)
		}
	}
}
