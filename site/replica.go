package site

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// replicated lets moves of p through that give refs their global values, while no push of this site moves them. It
// writes nothing to the database. The refs are claimed until p has ended: a guard gets its answer before it takes git's lock files. Then they are listed.
func (d *Daemon) replicated(ctx context.Context, c *config.Config, p *push, r config.Repository, moves []refdb.Update) error {
	claim, err := d.claims.Take(claims.ByFollower, r.Project, moves, nil)
	if err != nil {
		return err
	}
	if err := d.mayReplicate(ctx, c, r, moves); err != nil {
		d.claims.Release(claim)
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		d.claims.Release(claim)
		return pusher.ErrGone
	}
	p.follows = append(p.follows, followed{claim, d.list.About(r.Path, claim.Refs...)})
	return nil
}

func (d *Daemon) mayReplicate(ctx context.Context, c *config.Config, r config.Repository, moves []refdb.Update) error {
	if err := d.witness.MayAct(ctx); err != nil {
		d.state.RecordHealth(err)
		return refusal.DatabaseFailed(err)
	}
	names := make([]string, len(moves))
	for i, u := range moves {
		names[i] = u.Ref
	}
	states, err := d.states(ctx, c, r.Project, names)
	if err != nil {
		return err
	}
	var why refusal.Lines
	for i, s := range states {
		switch u := moves[i]; {
		case s.Lock != nil && !s.Lock.Stale() && s.Lock.Site() == c.Site:
			why = append(why, refusal.LockedBy(*s.Lock, c.Site))
		case s.Value == refdb.Unknown:
			why = append(why, wire.ReplicaNotInDatabase(u.Ref))
		case !s.Value.Equivalent(u.New):
			why = append(why, wire.ReplicaDiffers(u.Ref, s.Value.Abbrev(), u.New.Abbrev()))
		}
	}
	return refusal.Because(refusal.Replication, why.OrNil())
}

// states asks the database for values and locks.
func (d *Daemon) states(ctx context.Context, c *config.Config, project string, refs []string) ([]refdb.State, error) {
	var states []refdb.State
	err := d.state.RetryLocked(ctx, c, func(ctx context.Context) (err error) {
		states, err = d.db.States(ctx, project, refs)
		return err
	})
	if err != nil {
		return nil, refusal.DatabaseFailed(err)
	}
	return states, nil
}
