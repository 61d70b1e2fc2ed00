package hooks

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// replicated lets moves of p through that give refs their global values, while no push of this site
// moves them. It writes nothing to the database. The refs stay claimed until p has ended, because a
// guard gets its answer before it takes git's lock files. Then they are listed.
func (h *Hooks) replicated(ctx context.Context, c *config.Config, p *push, r config.Repository, moves []refdb.Update) error {
	claim, err := h.Claims.Take(claims.ByFollower, r.Project, moves, nil)
	if err != nil {
		return err
	}
	if err := h.mayReplicate(ctx, c, r, moves); err != nil {
		h.Claims.Release(claim)
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		h.Claims.Release(claim)
		return pusher.ErrGone
	}
	p.follows = append(p.follows, followed{r.Project, claim, h.List.About(r.Path, claim.Refs...)})
	return nil
}

func (h *Hooks) mayReplicate(ctx context.Context, c *config.Config, r config.Repository, moves []refdb.Update) error {
	if err := h.Witness.MayAct(ctx); err != nil {
		h.State.RecordHealth(err)
		return refusal.DatabaseFailed(err)
	}
	names := make([]string, len(moves))
	for i, u := range moves {
		names[i] = u.Ref
	}
	states, err := h.Moving.States(ctx, c, r.Project, names)
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
