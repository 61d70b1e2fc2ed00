package site

import (
	"context"
	"errors"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// awaitInheritance waits until the daemon knows what its predecessor left, at most until ctx ends. No
// ref may move here before: see [Daemon.inherit].
func (d *Daemon) awaitInheritance(ctx context.Context) error {
	select {
	case <-d.started:
	case <-ctx.Done():
		return refusal.Because(refusal.Starting, errors.New(wire.DaemonStarting))
	}
	if d.inherited.Load() == nil {
		// It has not been read, because of that.
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
