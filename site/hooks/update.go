package hooks

import (
	"context"
	"net"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/keepalive"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/policy"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// update tells a pusher for each ref what prepared would decide: over HTTP only this hook's text
// reaches the pusher. It changes no ref and promises nothing. If the database keeps the project's
// objects, update stores those of the push: git has them in place by then, and holds no lock yet.
func (h *Hooks) update(ctx context.Context, hook pusher.Hook, conn *net.UnixConn, q wire.Request) error {
	c := h.State.Config()
	r, err := c.Find(q.Dir)
	if err != nil {
		return err
	}
	if err := refusal.Reserved(q.Body); err != nil {
		return err
	}
	c, lines, err := h.Policy.GuardedLines(ctx, c, r, q.Body)
	if err != nil || len(lines) == 0 {
		return err
	}
	if err := h.State.AwaitDeciding(ctx); err != nil {
		return err
	}
	moves, err := policy.MovesOf(ctx, r, lines, false)
	if err == nil {
		err = refusal.Lookalikes(moves)
	}
	if err != nil {
		return err
	}
	if err := placeable(moves); err != nil {
		return err
	}
	if err := h.Policy.RefuseFrozen(r.Project, moves); err != nil {
		return err
	}
	p, err := h.pushOf(c, hook, q.Process)
	if err != nil {
		return err
	}
	var known *snapshot
	for _, u := range moves {
		if known, err = h.snapshotFor(ctx, c, p, r.Project, u.Ref); err != nil {
			return p.remember(err)
		}
		if known.allows(r.Project, u) {
			continue
		}
		if err := h.Moving.AwaitMovable(ctx, c, r.Project, []refdb.Update{u}, p.gone); err != nil {
			if refusal.ReasonOf(err) == refusal.Behind {
				h.Follower.LookAgain(r.Project, []refdb.Update{u})
			}
			return p.remember(err)
		}
	}
	var waits *keepalive.Client // nil: the hook does not wait on
	if q.Patient() {
		waits = h.Waiting(conn)
	}
	if err := h.storeInUpdate(ctx, c, p, r, moves, known, waits); err != nil {
		return p.remember(err)
	}
	return p.admit(len(moves))
}

// placeable refuses to create refs whose names are too long for the files of a repository: other
// sites could not place them.
func placeable(moves []refdb.Update) error {
	var why refusal.Lines
	for _, u := range moves {
		if !u.Old.IsAbsent() || u.New.IsAbsent() {
			continue
		}
		if err := driver.CheckPlaceable(u.Ref); err != nil {
			why = append(why, wire.UnguardableName(u.Ref, err.Error()))
		}
	}
	return refusal.Because(refusal.Unguardable, why.OrNil())
}

// storeInUpdate stores the objects of all refs of a push that may go on, before git locks any ref.
// Unless hook is nil, it tells the hook to wait.
func (h *Hooks) storeInUpdate(ctx context.Context, c *config.Config, p *push, r config.Repository, moves []refdb.Update, s *snapshot, hook *keepalive.Client) error {
	if !h.Storage.Keeps(c, r.Project) || len(p.objects.Lacking(moves)) == 0 {
		return nil
	}
	limits := packs.Limits{Bytes: objects.LockedPackLimit}
	if hook != nil {
		var stop context.CancelFunc
		ctx, stop = hook.KeepWaiting(h.State.Work)
		defer stop()
		limits = packs.Limits{Bytes: c.PackLimit, Stored: hook.Stored}
	}
	return h.Storage.Store(ctx, c, &p.objects, r, append(moves, s.others(r.Project, moves)...), limits)
}
