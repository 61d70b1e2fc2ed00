package site

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
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
	if err := noPeers(q.Body); err != nil {
		return err
	}
	c, lines, err := d.guardedLines(ctx, c, r, q.Body)
	if err != nil || len(lines) == 0 || q.Replica {
		return err
	}
	if err := d.awaitServing(ctx); err != nil {
		return err
	}
	moves, err := d.movesOf(ctx, r, lines, false)
	if err != nil {
		return err
	}
	p, err := d.pushOf(c, hook, q.Process)
	if err != nil {
		return err
	}
	known := d.pushes.snapshot(p.agent)
	for _, u := range moves {
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
	var waits *waiting // nil: the hook does not wait on
	if q.Patient() {
		waits = waitingHook(conn)
	}
	if err := d.storeInUpdate(ctx, c, p, r, moves, known, waits); err != nil {
		return p.remember(err)
	}
	return p.admit(len(moves))
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

// below reports whether a ref is in a namespace, or in its way.
func below(prefix, ref string) bool {
	return ref+"/" == prefix || strings.HasPrefix(ref, prefix)
}

// noPeers refuses pushes to the refs of peers, and to those of the daemon.
func noPeers(body []byte) error {
	lines, err := wire.ParseLines(body)
	if err != nil {
		return err
	}
	var why refusal.Lines
	for _, l := range lines {
		switch {
		case below(config.PeerPrefix, l.Ref):
			why = append(why, wire.PeerRef(l.Ref, config.PeerPrefix))
		case below(config.OwnPrefix, l.Ref):
			why = append(why, wire.OwnRef(l.Ref, config.OwnPrefix))
		}
	}
	return refusal.Because(refusal.PeerRefs, why.OrNil())
}
