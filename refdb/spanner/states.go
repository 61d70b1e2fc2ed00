package spanner

import (
	"context"
	"slices"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// States reads refs and the locks on them by their keys.
func (d *Driver) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	keys := make([]key, len(refs))
	for i, ref := range refs {
		keys[i] = key{Ref: ref, Lock: some(ref), Value: some(ref)}
	}
	parts := slices.Collect(chunks(keys, key.bytes))
	var states []refdb.State
	r := request{tag: "refdb.states", what: "read refs and locks"}
	err := d.read(ctx, r, func(ctx context.Context, c *client) error {
		states = nil
		return d.snapshot(ctx, c, len(parts), func(txn *spanner.ReadOnlyTransaction) error {
			for _, part := range parts {
				found := txn.QueryWithOptions(ctx, stateStatement(project, part), spanner.QueryOptions{RequestTag: r.tag})
				if err := found.Do(func(row *spanner.Row) error { return addState(&states, project, row) }); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return states, nil
}

// addState adds what a row says, unless that is nothing.
func addState(states *[]refdb.State, project string, row *spanner.Row) error {
	found, err := readState(project, row)
	if err != nil || found.lock == nil && found.value == nil {
		return err
	}
	s := refdb.State{Ref: found.ref}
	if found.value != nil {
		s.Value = found.value.Value
	}
	if found.lock != nil {
		s.Lock = &found.lock.LockInfo
	}
	*states = append(*states, s)
	return nil
}
