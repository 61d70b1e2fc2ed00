package spanner

import (
	"context"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// zeros are the values of a tombstone.
var zeros = []string{string(refdb.Deleted), string(refdb.Deleted256)}

// Get reads the rows of refs by their keys.
func (d *Driver) Get(ctx context.Context, project string, refs []string) ([]refdb.Ref, error) {
	var sets []spanner.KeySet
	for chunk := range chunks(refs, func(ref string) int { return len(project) + len(ref) + 32 }) {
		keys := make([]spanner.Key, len(chunk))
		for i, ref := range chunk {
			keys[i] = spanner.Key{project, ref}
		}
		sets = append(sets, spanner.KeySetFromKeys(keys...))
	}
	var rows []refdb.Ref
	err := d.read(ctx, request{what: "read refs"}, func(ctx context.Context, c *client) error {
		rows = nil
		return d.snapshot(ctx, c, len(sets), func(txn *spanner.ReadOnlyTransaction) error {
			for _, set := range sets {
				found := txn.ReadWithOptions(ctx, "refs", set, []string{"ref", "value", "time", "op"}, &spanner.ReadOptions{RequestTag: "refdb.get"})
				if err := found.Do(func(r *spanner.Row) error { return readRef(r, &rows) }); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// List reads a page of a project's refs.
//
// Spanner orders STRING by code points, which in UTF-8 is the order of bytes,
// and reads STARTS_WITH and the rest as one range of the primary key.
func (d *Driver) List(ctx context.Context, q refdb.RefQuery) ([]refdb.Ref, error) {
	s := spanner.Statement{
		SQL:    `SELECT ref, value, time, op FROM refs WHERE project = @project AND ref > @after`,
		Params: map[string]any{"project": q.Project, "after": q.After, "limit": int64(q.Limit)},
	}
	if q.Prefix != "" {
		s.SQL += ` AND STARTS_WITH(ref, @prefix)`
		s.Params["prefix"] = q.Prefix
	}
	if !q.Deleted {
		s.SQL += ` AND value NOT IN UNNEST(@zeros)`
		s.Params["zeros"] = zeros
	}
	s.SQL += ` ORDER BY ref LIMIT @limit`
	var page []refdb.Ref
	err := d.query(ctx, request{tag: "refdb.list", what: "list refs"}, s, func(r *spanner.Row) error {
		return readRef(r, &page)
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

func readRef(r *spanner.Row, refs *[]refdb.Ref) error {
	var name string
	var row refRow
	if err := r.Columns(append([]any{&name}, row.columns()...)...); err != nil {
		return err
	}
	*refs = append(*refs, row.ref(name))
	return nil
}
