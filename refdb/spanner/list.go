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

// List reads a page of a project's refs.
//
// Spanner orders STRING by code points, which in UTF-8 is the order of bytes,
// and reads STARTS_WITH and the rest as one range of the primary key.
func (d *Driver) List(ctx context.Context, q refdb.RefQuery) (refdb.RefPage, error) {
	s := spanner.Statement{
		SQL:    `SELECT ref, value, time, op FROM refs WHERE project = @project AND ref > @after`,
		Params: map[string]any{"project": q.Project, "after": q.After},
	}
	if q.Prefix != "" {
		and(&s, `STARTS_WITH(ref, @prefix)`, "prefix", q.Prefix)
	}
	if !q.Deleted {
		and(&s, `value NOT IN UNNEST(@zeros)`, "zeros", zeros)
	}
	s.SQL += ` ORDER BY ref`
	refs, last, err := page(ctx, d, request{tag: "refdb.list", what: "list refs"}, s, q.Limit, readRef)
	return refdb.RefPage{Refs: refs, Next: last.Name}, err
}

// and adds a condition with a parameter to a query's last clause.
func and(s *spanner.Statement, condition, name string, value any) {
	s.SQL += ` AND ` + condition
	s.Params[name] = value
}

// andNamed adds the conditions that are not empty, of one owner or of all
// processes of a site.
func andNamed(s *spanner.Statement, project, ref, owner string) {
	if project != "" {
		and(s, `project = @project`, "project", project)
	}
	if ref != "" {
		and(s, `ref = @ref`, "ref", ref)
	}
	if owner != "" {
		and(s, `(owner = @owner OR STARTS_WITH(owner, CONCAT(@owner, '/')))`, "owner", owner)
	}
}

// page runs a strong query for that many rows. If there are as many, it also
// returns the last of them, behind which there may be more.
func page[T any](ctx context.Context, d *Driver, r request, s spanner.Statement, limit int, rowOf func(*spanner.Row) (T, error)) (rows []T, last T, err error) {
	s.SQL += ` LIMIT @limit`
	s.Params["limit"] = int64(limit)
	rows, err = readRows(ctx, d, r, rowOf, r.query(s))
	if n := len(rows); n > 0 && n == limit {
		last = rows[n-1]
	}
	return rows, last, err
}

func readRef(r *spanner.Row) (refdb.Ref, error) {
	var name string
	var row refRow
	err := r.Columns(append([]any{&name}, row.columns()...)...)
	return row.ref(name), err
}
