package spanner

import (
	"context"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// intentClaim is what r wants to write into the rows of locks.
func intentClaim(r *refdb.PrepareRequest) claim {
	return claim{r.Project, r.Owner, r.Nonce, refdb.NeverStale, refdb.Waiter{}}
}

// Prepare takes the locks and records the intents, or finds out what is in the way.
func (d *Driver) Prepare(ctx context.Context, r refdb.PrepareRequest) (refdb.Prepared, error) {
	a, err := d.acquire(ctx, request{tag: "refdb.prepare", what: "prepare updates"}, statesOf(unrevoked(&r), stateKeys(refsOf(r.Updates))),
		func(b *batch, states []state) (acquisition, error) { return planPrepare(b, &r, states) })
	return refdb.Prepared{Token: a.Token, Reclaimed: a.Reclaimed}, err
}

// planPrepare says what becomes of r in view of what stands on its refs. There
// are no states if it was revoked.
func planPrepare(b *batch, r *refdb.PrepareRequest, states []state) (a acquisition, refused error) {
	if len(states) == 0 {
		return a, refdb.ErrReleased
	}
	c := intentClaim(r)
	found := survey(c, states)
	if len(found.ours) == len(states) {
		a.Token = found.ours[0].Token
		return a, nil
	}
	// What is left of a preparation is its owner's to finish: it counts as a lock of somebody else.
	standing := locksOn(states)
	if slices.ContainsFunc(standing, fresh) {
		return a, &refdb.LockedError{Holders: standing}
	}
	if mismatch := compare(r.Project, r.Updates, false, byRef(states)); mismatch != nil {
		return a, mismatch
	}
	for _, u := range r.Updates {
		b.insertIntent(u, r)
	}
	a = c.take(b, states)
	for _, s := range states {
		if len(s.queue) > 0 {
			b.setQueue(r.Project, s.ref, s.queue.Overtaken())
		}
	}
	a.Reclaimed = standing
	return a, nil
}

// locksOn are the locks that were found, and what is kept for those whose turn it is.
func locksOn(states []state) (all []refdb.LockInfo) {
	for _, s := range states {
		if s.lock != nil && !(s.lock.Reserved() && s.lock.Stale()) {
			all = append(all, s.lock.LockInfo)
		}
	}
	return all
}

// Finish ends all of r's intents, or none.
func (d *Driver) Finish(ctx context.Context, r refdb.FinishRequest) error {
	refs := slices.Sorted(slices.Values(slices.Concat(refsOf(r.Done), r.Dropped)))
	_, err := decide(ctx, d, request{tag: "refdb.finish", what: "finish intents"}, statesOf(stateStatement(r.Project), updateKeys(r.Done, refs)),
		func(b *batch, states []state) error { return planFinish(b, &r, refs, states) })
	return err
}

// planFinish says what r, which ends the intents of refs, writes in view of what
// it found, or why it is refused.
func planFinish(b *batch, r *refdb.FinishRequest, refs []string, states []state) error {
	if carriedOut(r.ID, states) {
		return nil
	}
	found := byRef(states)
	if lost := lost(r.Project, refs, fence{r.Owner, r.Token, true}, found); lost != nil {
		return lost
	}
	if mismatch := compare(r.Project, r.Done, false, found); mismatch != nil {
		return mismatch
	}
	for _, u := range r.Done {
		b.putRef(r.Project, u.Ref, u.New, r.ID)
	}
	for _, ref := range refs {
		b.deleteIntent(r.Project, ref, r.Token)
	}
	b.end(endingsOf(r.Project, r.Owner, refs, found), refdb.Waiter{})
	return nil
}
