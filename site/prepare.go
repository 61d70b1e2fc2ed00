package site

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/intent"
	"github.com/globalrefdb/globalrefdb/site/internal/lockfiles"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// prepared decides about a transaction of git, which holds the locks of its refs. A nil error lets the
// transaction through: then the database has an intent for each guarded ref that it may move.
func (d *Daemon) prepared(ctx context.Context, hook pusher.Hook, q wire.Request) error {
	c := d.config.Load()
	r, err := c.Find(q.Dir)
	if err != nil {
		return err
	}
	looked, err := projects.Uptime()
	if err != nil {
		return err
	}
	c, lines, err := d.guardedLines(ctx, c, r, q.Body)
	if err != nil || len(lines) == 0 {
		return err
	}
	if err := d.awaitServing(ctx); err != nil {
		return err
	}
	p, err := d.pushOf(c, hook, q.Process)
	if err != nil {
		return err
	}
	p.resetAdmitted()
	if err := p.enter(ctx); err != nil {
		return refusal.DatabaseFailed(err)
	}
	defer p.leave()
	if p.dead || hook.RunBy(p.agent) != nil {
		return pusher.ErrGone
	}
	p.dir, p.locks = r.Path, nil
	if all, err := wire.ParseLines(q.Body); err == nil {
		p.locks = lockfiles.HeldBy(r.Path, all)
	}
	moves, err := d.movesOf(ctx, r, lines, true)
	if err == nil {
		err = refusal.Lookalikes(moves)
	}
	if err == nil {
		err = refuseTracking(p.agent, moves)
	}
	if err == nil {
		moves, err = d.unannounced(ctx, p, r.Project, moves)
	}
	if err != nil || len(moves) == 0 {
		return err
	}
	// Git runs no update hook for what is no push.
	stored := d.storedFor(p, r, moves)
	if err := d.storage.Store(ctx, c, stored, r, moves, packs.Limits{Bytes: objects.LockedPackLimit}); err != nil {
		return p.remember(err)
	}
	announced, err := d.announce(ctx, c, p, stored, hook, r, moves)
	if refusal.ReasonOf(err) == refusal.Behind {
		d.lookAgain(r, moves)
	}
	if err != nil {
		return p.remember(err)
	}
	if hook.RunBy(p.agent) != nil {
		// The hook gave up before it had the answer, and so vetoed. Git may have reported the abort
		// before there was anything to end.
		d.end(ctx, p, announced)
		return pusher.ErrGone
	}
	if err := d.rulesStand(ctx, r, q.Body, lines, looked); err != nil {
		d.end(ctx, p, announced)
		return p.remember(err)
	}
	return nil
}

// unannounced returns the moves that p has not announced yet: git runs transactions within others,
// and both announce the same moves. A different move of an announced ref shows that the earlier
// transaction has ended, because git runs one at a time.
func (d *Daemon) unannounced(ctx context.Context, p *push, project string, moves []refdb.Update) ([]refdb.Update, error) {
	var over, again []*intent.Move
	var left []refdb.Update
	for _, u := range moves {
		m := p.find(project, u.Ref)
		switch {
		case m == nil:
			left = append(left, u)
		case m.Over.Load() || m.Adopted || !m.Old.Equivalent(u.Old) || !m.New.Equivalent(u.New):
			over = append(over, m)
			left = append(left, u)
		default:
			again = append(again, m)
		}
	}
	if len(again) > 0 {
		// An operator may have ended some of them.
		still, err := d.stillPending(ctx, again)
		if err != nil {
			return nil, refusal.DatabaseFailed(err)
		}
		for _, m := range again {
			if !slices.Contains(still, m) {
				p.drop([]*intent.Move{m})
				left = append(left, m.Update)
			}
		}
	}
	if len(over) > 0 {
		if err := d.end(ctx, p, over); err != nil {
			return nil, refusal.DatabaseFailed(err)
		}
	}
	return left, nil
}

// announce records the moves as intents, with the objects that were stored for them. For a short time it waits for other pushes that have
// locked the refs.
func (d *Daemon) announce(ctx context.Context, c *config.Config, p *push, stored *objects.Pushed, hook pusher.Hook, r config.Repository, moves []refdb.Update) (announced []*intent.Move, err error) {
	if err := d.awaitEarlierFollowers(ctx, r.Path); err != nil {
		return nil, err
	}
	claim, err := d.claims.Take(ctx, claims.ByPush, r.Project, moves, nil)
	if err != nil {
		return nil, err
	}
	by := p.agent.PushedBy(c.PusherEnv)
	// If git no longer has its locks, others may have moved the refs and moved them back. From here
	// on, the claim keeps others from that.
	if err := hook.RunBy(p.agent); err != nil {
		d.claims.Release(claim)
		return nil, err
	}
	preparation, carried, err := d.storage.Prepare(ctx, c, stored, objects.Announcement{Repo: r, Moves: moves, Agent: p.agent.String(), By: by})
	if errors.Is(err, refdb.ErrOutcomeUnknown) {
		d.claims.MarkUnknown(claim, preparation)
		d.requestReconcile()
		return nil, refusal.DatabaseFailed(err)
	}
	// Until this push has its answer, no other asks for these refs: git has their locks.
	defer d.claims.Release(claim)
	if err != nil {
		return nil, err
	}
	d.follower.Made(r.Project, r.Path, carried)
	announced = intent.MovesOf(preparation, r.Path, time.Now())
	p.add(announced...)
	d.open.Begin(announced)
	return announced, nil
}

// retryLocked repeats a request while refs are locked, for at most c.LockWait; while the database's server is not
// admitted, which takes as long as a site that is idle needs to notice, a heartbeat; and while the server is away,
// unless it has been for longer than a restart takes: then it is refused at once.
func (d *Daemon) retryLocked(ctx context.Context, c *config.Config, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 20*time.Millisecond, 200*time.Millisecond
	last := time.Now().Add(c.LockWait)
	for {
		err := request(ctx)
		d.recordHealth(err)
		locked := errors.Is(err, refdb.ErrLocked) && !time.Now().After(last)
		away := errors.Is(err, refdb.ErrUnavailable) && d.health.failingFor() < d.limits.outage
		if !locked && !away && !errors.Is(err, refdb.ErrNotAdmitted) {
			return err
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return err
		}
	}
}
