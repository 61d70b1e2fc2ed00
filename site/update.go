package site

import (
	"context"
	"errors"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// update tells a pusher per ref what prepared would decide about it: only what
// this hook says reaches the pusher over HTTP. It changes nothing and
// promises nothing.
func (d *Daemon) update(ctx context.Context, hook peer, q wire.Request) error {
	c := d.config.Load()
	r, err := c.Find(q.Dir)
	if err != nil {
		return err
	}
	if err := noPeers(q.Body); err != nil {
		return err
	}
	lines, err := guarded(c, r.Project, q.Body)
	if err != nil || len(lines) == 0 || q.Replica {
		return err
	}
	if err := d.serving(ctx); err != nil {
		return err
	}
	moves, err := d.moves(ctx, r, lines, false)
	if err != nil {
		return err
	}
	p, err := d.pushing(c, hook, q.Process)
	if err != nil {
		return err
	}
	known := d.pushes.snapshot(p.agent)
	for _, u := range moves {
		if known.allows(r.Project, u) {
			continue
		}
		if err := d.movable(ctx, c, r.Project, u); err != nil {
			return p.remember(err)
		}
	}
	return p.admit(len(moves))
}

// movable reports why a ref can't be moved now, after a little patience with
// whoever moves it.
func (d *Daemon) movable(ctx context.Context, c *Config, project string, u refdb.Update) error {
	var state refdb.State
	err := d.patiently(ctx, c, func(ctx context.Context) error {
		states, err := d.db.States(ctx, project, []string{u.Ref})
		if err != nil {
			return err
		}
		state = states[0]
		if state.Lock != nil && !state.Lock.Stale() {
			return &refdb.LockedError{Holders: []refdb.LockInfo{*state.Lock}}
		}
		return nil
	})
	switch {
	case errors.Is(err, refdb.ErrLocked):
		return refused{locked(*state.Lock, c.Site)}
	case err != nil:
		return databaseFailed(err)
	case !same(u.Old, state.Value):
		return refused{mismatched(u.Ref, u.Old, state.Value)}
	}
	return nil
}
