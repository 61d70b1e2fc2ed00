package site

import (
	"context"
	"errors"
	"net"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/keepalive"
	"github.com/globalrefdb/globalrefdb/site/objects"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// update tells a pusher for each ref what prepared would decide: over HTTP only this hook's text reaches the
// pusher. It changes no ref and promises nothing. It stores the push's objects in the database if that is to keep
// them: git has them in place by then, and holds no lock yet.
func (d *Daemon) update(ctx context.Context, hook pusher.Hook, conn *net.UnixConn, q wire.Request) error {
	c := d.config.Load()
	r, err := c.Find(q.Dir)
	if err != nil {
		return err
	}
	if err := refusal.Reserved(q.Body); err != nil {
		return err
	}
	c, lines, err := d.guardedLines(ctx, c, r, q.Body)
	if err != nil || len(lines) == 0 {
		return err
	}
	if err := d.awaitServing(ctx); err != nil {
		return err
	}
	moves, err := d.movesOf(ctx, r, lines, false)
	if err == nil {
		err = refusal.Lookalikes(moves)
	}
	if err != nil {
		return err
	}
	if err := placeable(moves); err != nil {
		return err
	}
	p, err := d.pushOf(c, hook, q.Process)
	if err != nil {
		return err
	}
	var known *snapshot
	for _, u := range moves {
		if known, err = d.snapshotFor(ctx, c, p, r.Project, u.Ref); err != nil {
			return p.remember(err)
		}
		if known.allows(r.Project, u) {
			continue
		}
		if err := d.movable(ctx, c, r.Project, u); err != nil {
			if refusal.ReasonOf(err) == refusal.Behind {
				d.lookAgain(r, []refdb.Update{u})
			}
			return p.remember(err)
		}
	}
	var waits *keepalive.Client // nil: the hook does not wait on
	if q.Patient() {
		waits = d.waitingHook(conn)
	}
	if err := d.storeInUpdate(ctx, c, p, r, moves, known, waits); err != nil {
		return p.remember(err)
	}
	return p.admit(len(moves))
}

// placeable refuses to create refs whose names are too long for the files of a repository: another site could not place them.
func placeable(moves []refdb.Update) error {
	var why refusal.Lines
	for _, u := range moves {
		if !u.Old.IsAbsent() || u.New.IsAbsent() {
			continue
		}
		if err := refdb.CheckPlaceable(u.Ref); err != nil {
			why = append(why, wire.UnguardableName(u.Ref, err.Error()))
		}
	}
	return refusal.Because(refusal.Unguardable, why.OrNil())
}

// movable returns why a ref can't be moved now. If another push has it locked, movable waits for a
// short time.
func (d *Daemon) movable(ctx context.Context, c *config.Config, project string, u refdb.Update) error {
	var state refdb.State
	err := d.retryLocked(ctx, c, func(ctx context.Context) error {
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
		return refusal.Because(refusal.Locked, refusal.Lines{refusal.LockedBy(*state.Lock, c.Site)})
	case err != nil:
		return refusal.DatabaseFailed(err)
	case !u.Old.Equivalent(state.Value):
		return refusal.Because(refusal.MismatchReason(state.Value), refusal.Lines{refusal.Mismatch(u.Ref, u.Old, state.Value)})
	}
	return nil
}

// storeInUpdate stores the objects of all refs of a push, as far as it may go on, before git locks any ref. The hook is
// told to wait, unless it is nil.
func (d *Daemon) storeInUpdate(ctx context.Context, c *config.Config, p *push, r config.Repository, moves []refdb.Update, s *snapshot, hook *keepalive.Client) error {
	if !d.storage.Keeps(c, r.Project) || len(p.objects.Lacking(moves)) == 0 {
		return nil
	}
	limits := packs.Limits{Bytes: objects.LockedPackLimit}
	if hook != nil {
		var stop context.CancelFunc
		ctx, stop = hook.KeepWaiting(d.work)
		defer stop()
		limits = packs.Limits{Bytes: c.PackLimit, Stored: hook.Stored}
	}
	return d.storage.Store(ctx, c, &p.objects, r, append(moves, s.others(r.Project, moves)...), limits)
}
