package site

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// silenceLimit is for how long a guard that lives may have no session while it has work, before that is an alarm.
const silenceLimit = time.Minute

// adoptTransactions gets to know the transactions that have intents, pending or decided, of earlier daemons, or of a request whose reply was
// lost. What its guard has not listed is over. At the first look nothing can have been settled since the database was asked.
func (d *Daemon) adoptTransactions(ctx context.Context, intents []refdb.Intent, first bool) error {
	byTransaction := map[pusher.Transaction][]refdb.Intent{}
	for _, i := range intents {
		if id, is := pusher.ParseTransaction(i.Agent); is && i.Decision != refdb.Revoked {
			byTransaction[id] = append(byTransaction[id], i)
		}
	}
	var failures []error
	for id, some := range byTransaction {
		err := error(nil)
		if !first {
			some, err = d.unsettled(ctx, id, some)
		}
		if failures = append(failures, err); len(some) > 0 {
			d.adoptTransaction(id, some)
		}
	}
	return errors.Join(failures...)
}

// unsettled returns those of a transaction's intents, as they were listed, that stand. If the transaction is not known, and its guard is, it
// may have been settled since.
func (d *Daemon) unsettled(ctx context.Context, id pusher.Transaction, intents []refdb.Intent) ([]refdb.Intent, error) {
	d.guards.lock()
	known := d.guards.find(id) != nil
	d.guards.unlock()
	if known || intents[0].Decision != refdb.Pending {
		return intents, nil
	}
	moves := make([]*pendingMove, len(intents))
	for i, intent := range intents {
		moves[i] = moveOf(intent)
	}
	still, err := d.stillPending(ctx, moves)
	if err != nil {
		return nil, err
	}
	var stand []refdb.Intent
	for i, m := range moves {
		if slices.Contains(still, m) {
			stand = append(stand, intents[i])
		}
	}
	return stand, nil
}

func (d *Daemon) adoptTransaction(id pusher.Transaction, intents []refdb.Intent) {
	gs := &d.guards
	gs.lock()
	if gs.all[id.Guard] == nil {
		gs.get(id.Guard).inherited = true
	}
	g := gs.get(id.Guard)
	t := g.transactions[id.TX]
	if t != nil && !t.listed && (!t.adopted || t.phase == over) {
		gs.unlock()
		return // what is known here is no less than what the database had
	}
	if t == nil {
		t = &transaction{id: id, guard: g, began: time.Now().Add(-intents[0].Age), phase: granted, mayHaveLocks: true, mayHaveMoved: true, adopted: true}
		g.transactions[id.TX] = t
	}
	if r, err := d.config.Load().Repository(intents[0].Project); err == nil && t.repo.Path == "" {
		t.repo = r
	}
	var refs []string
	for _, i := range intents {
		if t.claim != nil && slices.Contains(t.claim.refs, i.Ref) {
			continue
		}
		refs = append(refs, i.Ref)
		if i.Decision == refdb.Pending {
			t.moves = append(t.moves, moveOf(i))
		} else {
			t.endedByOthers = true
		}
	}
	if len(refs) > 0 {
		t.claim = d.claims.extend(t.claim, intents[0].Project, refs, t.began)
	}
	if g.begun && !t.listed || g.dead {
		t.finish()
	}
	gs.wake()
	gs.unlock()
	d.watchGuard(g)
}

// settleTransactions settles what is over and could not be settled before.
func (d *Daemon) settleTransactions(ctx context.Context) {
	gs := &d.guards
	var left []*transaction
	gs.lock()
	all := gs.list()
	for _, g := range all {
		if g.dead && !g.settling {
			g.settling = true
			d.tasks.Go(func() { d.settleDead(d.work, g) })
		}
		for _, t := range g.transactions {
			if !g.dead && t.phase == over && len(t.moves) > 0 {
				left = append(left, t)
			}
		}
	}
	gs.unlock()
	for _, g := range all {
		d.watchGuard(g)
	}
	for _, t := range left {
		d.settle(ctx, t)
	}
}

// forgetSettled forgets the transactions that are over and of which the database had nothing when it was asked, after start.
func (d *Daemon) forgetSettled(start time.Time, intents []refdb.Intent) {
	still := map[string]bool{}
	for _, i := range intents {
		if i.Decision != refdb.Revoked {
			still[i.Agent] = true
		}
	}
	gs := &d.guards
	var settled []*transaction
	gs.lock()
	for _, g := range gs.all {
		for _, t := range g.transactions {
			if t.phase == over && !t.settling && t.ended.Before(start) && !still[t.id.String()] && !d.claims.isUnknown(t.claim) && (!g.dead || len(t.moves) == 0) {
				gs.forget(t)
				settled = append(settled, t)
			}
		}
	}
	gs.unlock()
	for _, t := range settled {
		d.clearAlarms(t.moves)
		d.free(t)
	}
}

// claimOf returns the claim of the transaction that an intent is of; nil if it is none's.
func (d *Daemon) claimOf(i refdb.Intent) *claim {
	id, is := pusher.ParseTransaction(i.Agent)
	if !is {
		return nil
	}
	d.guards.lock()
	defer d.guards.unlock()
	if t := d.guards.find(id); t != nil {
		return t.claim
	}
	return nil
}

// raiseSilence raises an alarm about guards that live, have work and no session, once for each.
func (d *Daemon) raiseSilence(ctx context.Context) {
	gs := &d.guards
	gs.lock()
	defer gs.unlock()
	for _, g := range gs.list() {
		if g.silent() && !g.alarmed {
			g.alarmed = true
			d.counters.alarms.Add(1)
			d.o.Logger.ErrorContext(ctx, "a guard lives, and has had no session for a minute: what it was let do waits for it: see `refdbctl site status`",
				"process", g.id.PID, "open", len(g.transactions))
		}
	}
}

// silent reports whether a guard lives, has work and has had no session for too long. The guards are locked.
func (g *guard) silent() bool {
	return !g.dead && g.session == nil && len(g.transactions) > 0 && time.Since(g.since) > silenceLimit
}
