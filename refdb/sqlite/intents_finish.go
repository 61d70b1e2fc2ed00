package sqlite

import (
	"context"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const deleteIntents = `
	DELETE FROM intents
	WHERE project = ?1 AND ref IN (SELECT value FROM json_each(?2)) AND token = ?3 AND decision IS NULL`

// Finish implements refdb.IntentStore.
func (d *Driver) Finish(ctx context.Context, r refdb.FinishRequest) error {
	return d.decide(ctx, "finish intents", 2*len(r.Done)+len(r.Dropped), func(t *tx) (refused, err error) { return t.finish(r) })
}

// finish writes nothing if it is refused.
func (t *tx) finish(r refdb.FinishRequest) (refused, err error) {
	if refused, err := t.requireWitness(r.Owner); refused != nil || err != nil {
		return refused, err
	}
	refs := slices.Sorted(slices.Values(slices.Concat(refsOf(r.Done), r.Dropped)))
	lost, err := t.checkFence(r.Project, refdb.Fence{Refs: refs, Owner: r.Owner, Token: r.Token}, rules.Intent)
	if err != nil || lost != nil {
		return lost, err
	}
	if len(r.Done) > 0 {
		rows, err := t.rows(r.Project, refsOf(r.Done))
		if err != nil {
			return nil, err
		}
		if mismatch := rules.Compare(refdb.UpdateRequest{Project: r.Project, Updates: r.Done}, rows); mismatch != nil {
			return mismatch, nil
		}
	}
	if err := t.put(r.Project, r.Origin, r.Done); err != nil {
		return nil, err
	}
	if err := t.end(r.Project, refs, refdb.Waiter{}); err != nil {
		return nil, err
	}
	_, err = t.exec(deleteIntents, r.Project, asJSON(refs), int64(r.Token))
	return nil, err
}
