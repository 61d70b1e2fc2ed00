package sessions

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/claims"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// AdoptTransactions adopts the transactions of intents, pending or decided, that earlier daemons
// have recorded, or a request whose reply was lost. A transaction that its guard has not listed is
// over. First says that the daemon looks for the first time: then nothing can have been settled
// since the database was asked.
func (gs *Guards) AdoptTransactions(ctx context.Context, intents []driver.Intent, first bool) error {
	byTransaction := map[pusher.Transaction][]driver.Intent{}
	for _, i := range intents {
		if id, is := pusher.ParseTransaction(i.Agent); is && i.Decision != driver.Revoked {
			byTransaction[id] = append(byTransaction[id], i)
		}
	}
	var failures []error
	for id, some := range byTransaction {
		err := error(nil)
		if !first {
			some, err = gs.unsettled(ctx, id, some)
		}
		if failures = append(failures, err); len(some) > 0 {
			gs.adoptTransaction(id, some)
		}
	}
	return errors.Join(failures...)
}

// unsettled returns the intents of a transaction that are still pending. If the transaction is not
// known and its guard is, the transaction may have been settled since the intents were listed.
func (gs *Guards) unsettled(ctx context.Context, id pusher.Transaction, intents []driver.Intent) ([]driver.Intent, error) {
	gs.lock()
	known := gs.find(id) != nil
	gs.unlock()
	if known || intents[0].Decision != driver.Pending {
		return intents, nil
	}
	moves := moving.MovesOfIntents(intents)
	still, err := gs.Moving.StillPending(ctx, moves)
	if err != nil {
		return nil, err
	}
	var stand []driver.Intent
	for i, m := range moves {
		if slices.Contains(still, m) {
			stand = append(stand, intents[i])
		}
	}
	return stand, nil
}

func (gs *Guards) adoptTransaction(id pusher.Transaction, intents []driver.Intent) {
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
	isNew := t == nil
	if isNew {
		t = &transaction{
			request: request{id: id, phase: granted, mayHaveMoved: true},
			guard:   g, began: time.Now().Add(-intents[0].Age), mayHaveLocks: true, adopted: true,
		}
		g.transactions[id.TX] = t
	}
	if r, err := gs.State.Config().Repository(intents[0].Project); err == nil && t.repo.Path == "" {
		t.repo = r
	}
	var refs []string
	for _, i := range intents {
		if t.claim != nil && slices.Contains(t.claim.Refs, i.Ref) {
			continue
		}
		refs = append(refs, i.Ref)
		if i.Decision == driver.Pending {
			t.moves = append(t.moves, moving.MoveOf(i))
		} else {
			t.endedByOthers = true
		}
	}
	if len(refs) > 0 {
		t.claim = gs.Claims.Extend(t.claim, intents[0].Project, refs, t.began)
	}
	// What was known when the session began has been ended then, unless the guard listed it.
	if isNew && g.begun || g.dead {
		t.finish()
	}
	gs.wake()
	gs.unlock()
	gs.watchGuard(g)
}

// SettleTransactions settles what is over and could not be settled before.
func (gs *Guards) SettleTransactions(ctx context.Context) {
	var left []*transaction
	gs.lock()
	all := gs.list()
	for _, g := range all {
		if g.dead && !g.settling {
			g.settling = true
			gs.State.Tasks.Go(func() { gs.settleDead(gs.State.Work, g) })
		}
		for _, t := range g.transactions {
			if !g.dead && t.phase == over && len(t.moves) > 0 {
				left = append(left, t)
			}
		}
	}
	gs.unlock()
	for _, g := range all {
		gs.watchGuard(g)
	}
	for _, t := range left {
		gs.settle(ctx, t)
	}
}

// ForgetSettled forgets the transactions that are over and had no intents when the database was
// asked, after start.
func (gs *Guards) ForgetSettled(start time.Time, intents []driver.Intent) {
	still := map[string]bool{}
	for _, i := range intents {
		if i.Decision != driver.Revoked {
			still[i.Agent] = true
		}
	}
	var settled []*transaction
	gs.lock()
	for _, g := range gs.all {
		for _, t := range g.transactions {
			if t.phase == over && !t.settling && t.ended.Before(start) && !still[t.id.String()] && !gs.Claims.IsUnknown(t.claim) && (!g.dead || len(t.moves) == 0) {
				gs.forget(t)
				settled = append(settled, t)
			}
		}
	}
	gs.unlock()
	for _, t := range settled {
		gs.Moving.ClearAlarms(t.moves)
		gs.free(t)
	}
}

// ClaimOf returns the claim of the transaction that an intent is of; nil if it is none's.
func (gs *Guards) ClaimOf(i driver.Intent) *claims.Claim {
	id, is := pusher.ParseTransaction(i.Agent)
	if !is {
		return nil
	}
	gs.lock()
	defer gs.unlock()
	if t := gs.find(id); t != nil {
		return t.claim
	}
	return nil
}
