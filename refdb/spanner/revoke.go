package spanner

import (
	"context"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Revoke undoes what r did, and leaves a record that r reads before it does anything.
func (d *Driver) Revoke(ctx context.Context, r refdb.AcquireRequest) error {
	keys := make([]key, len(r.Refs))
	for i, ref := range r.Refs {
		keys[i] = key{Ref: ref, Lock: some(ref)}
	}
	_, err := d.transact(ctx, request{tag: "refdb.revoke", what: "revoke intents"}, func(ctx context.Context, t *transaction) error {
		states, err := t.states(ctx, r.Project, keys)
		if err != nil {
			return err
		}
		var b batch
		for _, s := range states {
			if s.lock != nil && s.lock.of(&r) {
				b.deleteLock(r.Project, s.ref)
				b.deleteIntent(r.Project, s.ref, s.lock.Token)
			}
		}
		b.insertRevocation(&r)
		return t.write(&b)
	})
	return err
}

// unrevokedSQL selects nothing if the request was revoked.
const unrevokedSQL = stateSQL + `
WHERE NOT EXISTS (SELECT 1 FROM intents WHERE project = @project AND ref = @first AND nonce = @nonce)`

// unrevoked are the states that a request for intents reads; none, if it was revoked.
func (t *transaction) unrevoked(ctx context.Context, r *refdb.AcquireRequest, keys []key) ([]state, error) {
	var states []state
	for chunk := range chunks(keys, key.bytes) {
		s := spanner.Statement{SQL: unrevokedSQL, Params: map[string]any{
			"project": r.Project, "keys": chunk, "first": r.Refs[0], "nonce": r.Nonce,
		}}
		err := t.query(ctx, s, func(row *spanner.Row) error {
			s, err := readState(r.Project, row)
			states = append(states, s)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return states, nil
}
