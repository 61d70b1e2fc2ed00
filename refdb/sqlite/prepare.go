package sqlite

import (
	"context"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// Prepare implements refdb.IntentStore.
func (d *Driver) Prepare(ctx context.Context, r refdb.PrepareRequest) (refdb.Prepared, error) {
	c := claim{r.Project, refsOf(r.Updates), r.Owner, r.Nonce, refdb.NeverStale, refdb.Waiter{}}
	var prepared refdb.Prepared
	glance := func() error {
		return d.glance(ctx, c, func(found findings, _ int64) error { return locked(found.rows) })
	}
	err := d.contend(c, glance, func() error {
		return d.decide(ctx, "prepare updates", len(c.refs), func(t *tx) (refused, err error) {
			prepared, refused, err = t.prepare(c, r)
			return refused, err
		})
	})
	return prepared, err
}

// prepare has written nothing if it is refused.
func (t *tx) prepare(c claim, r refdb.PrepareRequest) (prepared refdb.Prepared, refused, err error) {
	states, err := t.look(c.project, c.refs)
	if err != nil {
		return refdb.Prepared{}, nil, err
	}
	if found := survey(c, states); len(found.ours) == len(c.refs) {
		return refdb.Prepared{Token: found.newest}, nil, nil
	}
	// What is left of a preparation is its owner's to finish: it counts as a lock of somebody else.
	found := survey(claim{}, states)
	if refused = locked(found.rows); refused == nil {
		refused = compare(r.Project, r.Updates, false, states)
	}
	if refused == nil {
		refused, err = t.revoked(r)
	}
	if err != nil || refused != nil {
		return refdb.Prepared{}, refused, err
	}
	queues := make([]queue.Queue, len(states))
	var reclaimed []refdb.LockInfo
	for i, s := range states {
		queues[i] = s.queue.Overtaken()
		if s.lock != nil && !s.lock.Reserved() {
			reclaimed = append(reclaimed, *s.lock)
		}
	}
	token, err := t.take(c, found.newest, queues)
	if err != nil {
		return refdb.Prepared{}, nil, err
	}
	moves := make([][3]string, len(r.Updates))
	for i, u := range r.Updates {
		moves[i] = [3]string{u.Ref, string(u.Old), string(u.New)}
	}
	_, err = t.exec(putIntents, r.Project, asJSON(moves), int64(token), r.Owner, r.Agent, t.now)
	return refdb.Prepared{Token: token, Reclaimed: reclaimed}, nil, err
}

// locked returns a *refdb.LockedError if something fresh stands in rows, be it a lock or
// kept for somebody who waits.
func locked(rows []queue.Row) error {
	var holders []refdb.LockInfo
	fresh := false
	for _, r := range rows {
		if r.Lock != nil && !(r.Lock.Reserved() && r.Lock.Stale()) {
			holders = append(holders, *r.Lock)
			fresh = fresh || !r.Lock.Stale()
		}
	}
	if !fresh {
		return nil
	}
	return &refdb.LockedError{Holders: holders}
}

// Finish implements refdb.IntentStore.
func (d *Driver) Finish(ctx context.Context, r refdb.FinishRequest) error {
	return d.decide(ctx, "finish intents", 2*len(r.Done)+len(r.Dropped), func(t *tx) (refused, err error) { return t.finish(r) })
}

// finish has written nothing if it is refused.
func (t *tx) finish(r refdb.FinishRequest) (refused, err error) {
	refs := slices.Sorted(slices.Values(slices.Concat(refsOf(r.Done), r.Dropped)))
	lost, err := t.lost(r.Project, refdb.Fence{Refs: refs, Owner: r.Owner, Token: r.Token}, true)
	if err != nil || lost != nil {
		return lost, err
	}
	if len(r.Done) > 0 {
		states, err := t.look(r.Project, refsOf(r.Done))
		if err != nil {
			return nil, err
		}
		if mismatch := compare(r.Project, r.Done, false, states); mismatch != nil {
			return mismatch, nil
		}
	}
	if err := t.put(r.Project, r.ID, r.Done); err != nil {
		return nil, err
	}
	if err := t.end(r.Project, refs, refdb.Waiter{}); err != nil {
		return nil, err
	}
	_, err = t.exec(dropIntents, r.Project, asJSON(refs), int64(r.Token))
	return nil, err
}
