package spanner

import (
	"context"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// Finish implements refdb.IntentStore.
func (d *Driver) Finish(ctx context.Context, r refdb.FinishRequest) error {
	const what = "finish intents"
	if err := d.requireWitness(what, r.Owner); err != nil {
		return err
	}
	refs := slices.Sorted(slices.Values(slices.Concat(refsOf(r.Done), r.Dropped)))
	_, err := decide(ctx, d, request{tag: "refdb.finish", what: what}, statesOf(stateStatement(r.Project), updateKeys(r.Done, refs)),
		func(b *batch, states []state) error { return planFinish(b, &r, refs, states) })
	return err
}

// planFinish says what r, which ends the intents of refs, writes in view of what
// it found, or why it is refused.
func planFinish(b *batch, r *refdb.FinishRequest, refs []string, states []state) error {
	if rules.Updated(r.ID, rowsOf(states)) {
		return nil
	}
	found := byRef(states)
	f := refdb.Fence{Refs: refs, Owner: r.Owner, Token: r.Token}
	if lost := rules.CheckFence(r.Project, f, rules.Intent, found.fence); lost != nil {
		return lost
	}
	done := refdb.UpdateRequest{Project: r.Project, Updates: r.Done}
	if mismatch := rules.Compare(done, found.rows(r.Done)); mismatch != nil {
		return mismatch
	}
	if len(r.Done) > MaxRefs {
		// A program from before the history prepared it, and git has moved the refs: better without a
		// record, as if that program had finished it, than never.
		b.unrecorded = true
	}
	for _, u := range r.Done {
		b.putRef(r.Project, u.Ref, found[u.Ref].value(), u.New, r.Origin)
	}
	for _, ref := range refs {
		b.deleteIntent(r.Project, ref, r.Token)
	}
	b.end(found.endings(refs), refdb.Waiter{})
	return nil
}
