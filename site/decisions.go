package site

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/lockfiles"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// applyDecisions moves refs to their global values if an operator has resolved their intents, and
// then removes the decisions. A ref whose object is not here yet waits for `refdbctl site sync`. It
// returns the decisions that are not applied yet.
func (d *Daemon) applyDecisions(ctx context.Context, c *config.Config, decided []driver.Intent) (unheeded []driver.Intent, err error) {
	var failures []error
	var heeded []driver.Intent
	for _, i := range decided {
		if i.Decision == driver.Revoked {
			// The daemon's own decision, not an operator's: it keeps a late request out.
			if i.Age-i.DecidedAt.Sub(i.Time) > lateRequests {
				heeded = append(heeded, i)
			}
			continue
		}
		if d.lives(i.Agent) {
			unheeded = append(unheeded, i)
			continue // it may move the ref yet
		}
		if !d.withoutAbandonedLocks(c, i) {
			unheeded = append(unheeded, i)
			continue // the next time
		}
		d.hooks.DropResolved(i)
		ok, err := d.moving.ApplyDecision(ctx, c, i, d.guards.ClaimOf(i))
		failures = append(failures, err)
		if ok {
			d.listHeeded(c, i)
			d.state.Counts.Heeded.Add(1)
			heeded = append(heeded, i)
		} else {
			unheeded = append(unheeded, i)
		}
	}
	maps.DeleteFunc(d.removals, func(k moving.Key, _ <-chan struct{}) bool {
		return !slices.ContainsFunc(decided, func(i driver.Intent) bool { return moving.KeyOf(i) == k })
	})
	if len(heeded) > 0 {
		ctx, cancel := context.WithTimeout(ctx, reconcileEvery)
		defer cancel()
		err := d.db.Intents().Forget(ctx, heeded)
		d.state.RecordHealth(err)
		failures = append(failures, err)
		if err == nil {
			d.moving.ClearAlarms(moving.MovesOfIntents(heeded))
		} else {
			unheeded = append(unheeded, heeded...)
		}
	}
	return unheeded, errors.Join(failures...)
}

// listHeeded lists a ref that an operator has decided about, before the database forgets the
// decision: a daemon that dies in between finds the decision again. The ref's transaction may have
// moved it, too.
func (d *Daemon) listHeeded(c *config.Config, i driver.Intent) {
	if r, err := c.Repository(i.Project); err == nil {
		d.list.Moved("", r.Path, i.Ref)
	}
}

// withoutAbandonedLocks reports whether the lock files of the process that announced i are gone, or
// can't be removed now. That process has ended. Until the lock files are gone, git can't move the
// ref. They are removed in the background, once.
func (d *Daemon) withoutAbandonedLocks(c *config.Config, i driver.Intent) bool {
	r, err := c.Repository(i.Project)
	if err != nil {
		return true
	}
	if _, is := pusher.ParseTransaction(i.Agent); is {
		return !d.guards.MayHaveLeftLocksIn(r.Path)
	}
	files := lockfiles.There(d.moving.LockFiles([]*moving.Move{moving.MoveOf(i)})[r.Path])
	if len(files) == 0 {
		return true
	}
	removal, begun := d.removals[moving.KeyOf(i)]
	if !begun {
		ended := make(chan struct{})
		removal = ended
		d.removals[moving.KeyOf(i)] = removal
		d.state.Tasks.Go(func() {
			<-d.guards.RemoveLeft(d.state.Work, r.Path, files)
			d.state.Reconcile.Request()
			close(ended)
		})
	}
	select {
	case <-removal:
		return true
	default:
		return false
	}
}

// awaitRemovals waits for the removals of lock files in progress, until a time at most.
func (d *Daemon) awaitRemovals(ctx context.Context, until time.Time) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for _, removal := range d.removals {
		select {
		case <-removal:
		case <-ctx.Done():
			return
		}
	}
}

// lives reports whether the process that announced a move may still make it.
func (d *Daemon) lives(agent string) bool {
	if t, ok := pusher.ParseTransaction(agent); ok {
		return d.guards.MayMove(t, d.state.Boot)
	}
	return pusher.Running(agent, d.state.Boot)
}
