package hooks

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/lockfiles"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/policy"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// prepared decides about a transaction of git, which holds the locks of its refs. If it returns
// nil, the database has an intent for each guarded ref that the transaction may move.
func (h *Hooks) prepared(ctx context.Context, hook pusher.Hook, q wire.Request) error {
	c := h.State.Config()
	r, err := c.Find(q.Dir)
	if err != nil {
		return err
	}
	looked, err := projects.Uptime()
	if err != nil {
		return err
	}
	c, lines, err := h.Policy.GuardedLines(ctx, c, r, q.Body)
	if err != nil || len(lines) == 0 {
		return err
	}
	if err := h.State.AwaitDeciding(ctx); err != nil {
		return err
	}
	p, err := h.pushOf(c, hook, q.Process)
	if err != nil {
		return err
	}
	p.resetAdmitted()
	if err := p.pending.Enter(ctx); err != nil {
		return refusal.DatabaseFailed(err)
	}
	defer p.pending.Leave()
	if p.dead || hook.RunBy(p.agent) != nil {
		return pusher.ErrGone
	}
	p.dir, p.locks = r.Path, nil
	if all, err := wire.ParseLines(q.Body); err == nil {
		p.locks = lockfiles.HeldBy(r.Path, all)
	}
	moves, err := policy.MovesOf(ctx, r, lines, true)
	if err == nil {
		err = refusal.Lookalikes(moves)
	}
	if err == nil {
		err = refuseTracking(p.agent, moves)
	}
	if err == nil {
		moves, err = h.Moving.Unannounced(ctx, p.pending, r.Project, moves)
	}
	if err == nil {
		err = h.Policy.RefuseFrozen(r.Project, moves)
	}
	if err != nil || len(moves) == 0 {
		return err
	}
	// Git runs the update hook for pushes only.
	stored := h.storedFor(p, r, moves)
	if err := h.Storage.Store(ctx, c, stored, r, moves, packs.Limits{Bytes: objects.LockedPackLimit}); err != nil {
		return p.remember(err)
	}
	announced, err := h.announce(ctx, c, p, stored, hook, r, moves)
	if refusal.ReasonOf(err) == refusal.Behind {
		h.Follower.LookAgain(r.Project, moves)
	}
	if err != nil {
		return p.remember(err)
	}
	if hook.RunBy(p.agent) != nil {
		// The hook gave up before it had the answer, and so vetoed. Git may have reported the abort
		// before there was anything to end.
		h.Moving.End(ctx, p.pending, announced)
		return pusher.ErrGone
	}
	if err := h.Policy.RulesStand(ctx, r, q.Body, lines, looked); err != nil {
		h.Moving.End(ctx, p.pending, announced)
		return p.remember(err)
	}
	return nil
}

// announce records the moves as intents, with the objects that were stored for them. For a short
// time it waits for other sites that have locked the refs.
func (h *Hooks) announce(ctx context.Context, c *config.Config, p *push, stored *objects.Pushed, hook pusher.Hook, r config.Repository, moves []refdb.Update) ([]*moving.Move, error) {
	announced, claim, err := h.Moving.Announce(ctx, c, moving.Announcement{
		Announcement: objects.Announcement{Repo: r, Moves: moves, Agent: p.agent.String(), By: p.agent.PushedBy(c.PusherEnv)},
		Objects:      stored,
		Gone:         p.gone,
		// If git no longer has its locks, others may have moved the refs and moved them back. The
		// claim keeps others from doing so from here on.
		Recheck: func(context.Context) error { return hook.RunBy(p.agent) },
	})
	if err != nil {
		return nil, err
	}
	p.pending.Add(announced...)
	h.Claims.Release(claim)
	return announced, nil
}
