package sqlite

import (
	"context"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// List implements refdb.RefStore.
func (d *Driver) List(ctx context.Context, q refdb.RefQuery) (refdb.RefPage, error) {
	var w where
	w.add("project = ?", q.Project)
	w.prefix("ref", q.Prefix)
	if q.After != "" {
		w.add("ref > ?", q.After)
	}
	if !q.Deleted {
		w.add("value NOT IN (?, ?)", string(refdb.Deleted), string(refdb.Deleted256))
	}
	refs, last, err := page(ctx, d, "list refs", "ref, value, time, op FROM refs", w, "ref", q.Limit, func(_ int64, r row) refdb.Ref {
		return refOf(r.text(0), r.text(1), r.int(2), r.text(3))
	})
	return refdb.RefPage{Refs: refs, Next: last.Name}, err
}

// page reads at most limit rows. If there are as many, it also returns the last of
// them, after which there may be more. Ages are those at ?1, now, which is read
// before the rows: a beat in between makes its lock younger, never older.
func page[T any](ctx context.Context, d *Driver, doing, table string, w where, order string, limit int, rowOf func(now int64, r row) T) (rows []T, last T, err error) {
	err = d.read(ctx, doing, func(c *conn) error {
		args := slices.Concat([]any{d.now()}, w.args, []any{int64(limit)})
		return c.query(ctx, func(r row) { rows = append(rows, rowOf(r.int(0), r[1:])) },
			"SELECT ?1, "+table+" WHERE "+strings.Join(w.conditions, " AND ")+" ORDER BY "+order+" LIMIT ?", args...)
	})
	if err != nil {
		return nil, last, err
	}
	if n := len(rows); n > 0 && n == limit {
		last = rows[n-1]
	}
	return rows, last, nil
}

// where is a WHERE clause of fixed conditions, with their arguments.
type where struct {
	conditions []string
	args       []any
}

func (w *where) add(condition string, args ...any) {
	w.conditions = append(w.conditions, condition)
	w.args = append(w.args, args...)
}

// prefix selects the texts that start with the bytes of prefix.
func (w *where) prefix(column, prefix string) {
	if prefix != "" {
		w.add(column+" >= ? AND "+column+" < ?", prefix, behind(prefix))
	}
}

// afterAll is greater than all texts, which are compared as bytes: in UTF-8 no byte is 0xFF.
const afterAll = "\xff"

// behind returns the first text after all that start with the bytes of prefix: prefix with
// its last byte incremented.
func behind(prefix string) string {
	n := len(prefix)
	if n == 0 {
		return afterAll
	}
	return prefix[:n-1] + string([]byte{prefix[n-1] + 1})
}

// filter selects rows by project, ref and owner, where the name of a site stands for all its
// processes. "" selects all.
func (w *where) filter(project, ref, owner string) {
	if project != "" {
		w.add("project = ?", project)
	}
	if ref != "" {
		w.add("ref = ?", ref)
	}
	if owner != "" {
		// What starts with "/" lies between "/" and the next byte.
		w.add("(owner = ? OR owner >= ? AND owner < ?)", owner, owner+"/", owner+string(rune('/'+1)))
	}
}
