package spanner

import (
	"context"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Get implements refdb.RefStore. It reads by keys.
func (d *Driver) Get(ctx context.Context, project string, refs []string) ([]refdb.Ref, error) {
	var parts []part
	for chunk := range chunks(refs, func(ref string) int { return len(project) + len(ref) + 32 }) {
		keys := make([]spanner.Key, len(chunk))
		for i, ref := range chunk {
			keys[i] = spanner.Key{project, ref}
		}
		parts = append(parts, func(ctx context.Context, txn *spanner.ReadOnlyTransaction) *spanner.RowIterator {
			return txn.ReadWithOptions(ctx, "refs", spanner.KeySetFromKeys(keys...), []string{"ref", "value", "time", "op"},
				&spanner.ReadOptions{RequestTag: "refdb.get"})
		})
	}
	return readRows(ctx, d, request{what: "read refs"}, readRef, parts...)
}

func readRef(r *spanner.Row) (refdb.Ref, error) {
	var name string
	var row refRow
	err := r.Columns(append([]any{&name}, row.columns()...)...)
	return row.ref(name), err
}

// States implements refdb.RefStore. It reads by keys.
func (d *Driver) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	r := request{tag: "refdb.states", what: "read refs and locks"}
	if err := d.requireAdmission(r); err != nil {
		return nil, err
	}
	var parts []part
	for chunk := range chunks(stateKeys(refs), key.bytes) {
		s := stateStatement(project)
		s.Params["keys"] = chunk
		parts = append(parts, r.query(s))
	}
	found, err := readRows(ctx, d, r, func(row *spanner.Row) (state, error) { return readState(project, row) }, parts...)
	var states []refdb.State
	for _, f := range found {
		if f.Lock == nil && f.Ref == nil {
			continue
		}
		s := refdb.State{Ref: f.Name, Lock: f.Lock}
		if f.Ref != nil {
			s.Value = f.Ref.Value
		}
		states = append(states, s)
	}
	return states, err
}
