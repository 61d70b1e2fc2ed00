package spanner

import (
	"context"
	"maps"
	"slices"
	"strings"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// Remove implements driver.RefStore.
func (d *Driver) Remove(ctx context.Context, r driver.RemoveRequest) (int, error) {
	q := request{tag: "refdb.remove", what: "remove refs"}
	removed, _, err := decide(ctx, d, q, contentsOf(&r), func(b *batch, found contents) (removed int, refused error) {
		if refused := rules.Remove(r, found.locks); refused != nil {
			return 0, refused
		}
		if removed = min(len(found.refs), r.Limit); removed == len(found.refs) {
			b.deleteLocks(r.Project)
		}
		for _, ref := range found.refs[:removed] {
			b.removeRef(r.Project, ref.name, ref.value, r.Origin)
		}
		return removed, nil
	})
	return removed, err
}

// contents holds the rows of a project.
type contents struct {
	refs  []refValue // the first ones, and one more than the limit if there are that many
	locks []driver.LockInfo
}

type refValue struct {
	name  string
	value driver.Value
}

const projectSQL = `
SELECT l.ref, '', ` + lockSQL + ` FROM locks AS l WHERE l.project = @project
UNION ALL
(SELECT r.ref, r.value, CAST(NULL AS STRING), CAST(NULL AS TIMESTAMP), CAST(NULL AS TIMESTAMP), CAST(NULL AS INT64), 0
 FROM refs AS r WHERE r.project = @project ORDER BY r.ref LIMIT @limit)`

// contentsOf returns a function that reads and locks the contents of r's project.
func contentsOf(r *driver.RemoveRequest) func(context.Context, *transaction) (contents, error) {
	s := spanner.Statement{SQL: projectSQL, Params: map[string]any{"project": r.Project, "limit": int64(r.Limit) + 1}}
	return func(ctx context.Context, t *transaction) (found contents, err error) {
		err = t.query(ctx, s, func(row *spanner.Row) error {
			var ref refValue
			var l lockRow
			err := row.Columns(append([]any{&ref.name, (*string)(&ref.value)}, l.columns()...)...)
			if l.owner.Valid {
				found.locks = append(found.locks, l.info(r.Project, ref.name))
			} else {
				found.refs = append(found.refs, ref)
			}
			return err
		})
		slices.SortFunc(found.refs, func(a, b refValue) int { return strings.Compare(a.name, b.name) })
		slices.SortFunc(found.locks, func(a, b driver.LockInfo) int { return strings.Compare(a.Ref, b.Ref) })
		return found, err
	}
}

const (
	tombstonesSQL = `SELECT r.ref FROM refs AS r WHERE r.project = @project AND ` + tombstoneSQL + ` ORDER BY r.ref`

	stillTombstonesSQL = `
SELECT r.ref FROM UNNEST(@keys) AS k
JOIN@{JOIN_METHOD=APPLY_JOIN} refs AS r ON r.project = @project AND r.ref = k
WHERE ` + tombstoneSQL

	tombstoneSQL = `r.value IN UNNEST(@zeros)
  AND IFNULL(r.time, TIMESTAMP_SECONDS(0)) <= TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL @age MICROSECOND)`
)

// PurgeTombstones implements driver.RefStore. It finds the tombstones without locks first: they are
// few among many refs, and a transaction would lock all rows that it reads.
func (d *Driver) PurgeTombstones(ctx context.Context, r driver.TombstoneRequest) (int, error) {
	params := map[string]any{"project": r.Project, "zeros": zeros, "age": r.OlderThan.Microseconds()}
	look := request{tag: "refdb.tombstones", what: "find tombstones"}
	found, _, err := page(ctx, d, look, spanner.Statement{SQL: tombstonesSQL, Params: maps.Clone(params)}, r.Limit, column[string])
	if err != nil || len(found) == 0 {
		return 0, err
	}
	read := func(ctx context.Context, t *transaction) (still []string, err error) {
		size := func(ref string) int { return len(ref) + 8 }
		err = queryKeys(ctx, t, spanner.Statement{SQL: stillTombstonesSQL, Params: params}, found, size, collect(&still, column[string]))
		return still, err
	}
	q := request{tag: "refdb.purge_tombstones", what: "purge tombstones"}
	purged, _, err := decide(ctx, d, q, read, func(b *batch, still []string) (int, error) {
		for _, ref := range still {
			b.deleteRef(r.Project, ref)
		}
		return len(still), nil
	})
	return purged, err
}
