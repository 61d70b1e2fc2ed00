package spanner

import (
	"context"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// States reads refs and the locks on them by their keys.
func (d *Driver) States(ctx context.Context, project string, refs []string) ([]refdb.State, error) {
	r := request{tag: "refdb.states", what: "read refs and locks"}
	var parts []part
	for chunk := range chunks(stateKeys(refs), key.bytes) {
		s := stateStatement(project)
		s.Params["keys"] = chunk
		parts = append(parts, r.query(s))
	}
	found, err := readRows(ctx, d, r, func(row *spanner.Row) (state, error) { return readState(project, row) }, parts...)
	var states []refdb.State
	for _, f := range found {
		if f.lock == nil && f.value == nil {
			continue
		}
		s := refdb.State{Ref: f.ref}
		if f.value != nil {
			s.Value = f.value.Value
		}
		if f.lock != nil {
			s.Lock = &f.lock.LockInfo
		}
		states = append(states, s)
	}
	return states, err
}
