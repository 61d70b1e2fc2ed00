package spanner

import (
	"context"
	"slices"
	"strings"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Remove deletes rows of a project.
func (d *Driver) Remove(ctx context.Context, r refdb.RemoveRequest) (int, error) {
	if r.Tombstones {
		return d.removeTombstones(ctx, &r)
	}
	var refs []string
	var refused error
	_, err := d.transact(ctx, request{tag: "refdb.remove", what: "remove refs"}, func(ctx context.Context, t *transaction) (err error) {
		var holders []refdb.LockInfo
		if refs, holders, err = t.project(ctx, &r); err != nil {
			return err
		}
		var b batch
		heeded := fresh
		if r.Force {
			heeded = refdb.LockInfo.Intended
		}
		if refused = nil; slices.ContainsFunc(holders, heeded) {
			refused = &refdb.LockedError{Holders: holders}
			return t.write(&b)
		}
		if len(refs) <= r.Limit {
			b.deleteLocks(r.Project)
		} else {
			refs = refs[:r.Limit]
		}
		for _, ref := range refs {
			b.deleteRef(r.Project, ref)
		}
		return t.write(&b)
	})
	switch {
	case err != nil:
		return 0, err
	case refused != nil:
		return 0, failed("remove refs", refused)
	}
	return len(refs), nil
}

const projectSQL = `
SELECT l.ref, ` + lockSQL + ` FROM locks AS l WHERE l.project = @project
UNION ALL
(SELECT r.ref, CAST(NULL AS STRING), CAST(NULL AS TIMESTAMP), CAST(NULL AS TIMESTAMP), CAST(NULL AS INT64), 0
 FROM refs AS r WHERE r.project = @project ORDER BY r.ref LIMIT @limit)`

// project reads and locks the first refs of a project, one more than are to be
// removed, and all its locks.
func (t *transaction) project(ctx context.Context, r *refdb.RemoveRequest) (refs []string, holders []refdb.LockInfo, err error) {
	err = t.query(ctx, spanner.Statement{
		SQL:    projectSQL,
		Params: map[string]any{"project": r.Project, "limit": int64(r.Limit) + 1},
	}, func(row *spanner.Row) error {
		var ref string
		var l lockRow
		if err := row.Columns(append([]any{&ref}, l.columns()...)...); err != nil {
			return err
		}
		if l.owner.Valid {
			holders = append(holders, l.info(r.Project, ref))
		} else {
			refs = append(refs, ref)
		}
		return nil
	})
	slices.Sort(refs)
	slices.SortFunc(holders, func(a, b refdb.LockInfo) int { return strings.Compare(a.Ref, b.Ref) })
	return refs, holders, err
}

const (
	tombstonesSQL = `SELECT r.ref FROM refs AS r WHERE r.project = @project AND ` + tombstoneSQL + ` ORDER BY r.ref LIMIT @limit`

	stillTombstonesSQL = `
SELECT r.ref FROM UNNEST(@refs) AS k
JOIN@{JOIN_METHOD=APPLY_JOIN} refs AS r ON r.project = @project AND r.ref = k
WHERE ` + tombstoneSQL

	tombstoneSQL = `r.value IN UNNEST(@zeros)
  AND IFNULL(r.time, TIMESTAMP_SECONDS(0)) <= TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL @age MICROSECOND)`
)

// removeTombstones looks for them without locks first: they are few among many
// refs, and a transaction would lock all that it passes over.
func (d *Driver) removeTombstones(ctx context.Context, r *refdb.RemoveRequest) (int, error) {
	params := map[string]any{"project": r.Project, "zeros": zeros, "age": r.OlderThan.Microseconds(), "limit": int64(r.Limit)}
	var found []string
	look := request{tag: "refdb.tombstones", what: "look for tombstones"}
	err := d.query(ctx, look, spanner.Statement{SQL: tombstonesSQL, Params: params}, func(row *spanner.Row) error {
		return readName(row, &found)
	})
	if err != nil || len(found) == 0 {
		return 0, err
	}
	var still []string
	_, err = d.transact(ctx, request{tag: "refdb.purge", what: "remove tombstones"}, func(ctx context.Context, t *transaction) error {
		still = nil
		var b batch
		for chunk := range chunks(found, func(ref string) int { return len(ref) + 8 }) {
			err := t.query(ctx, spanner.Statement{
				SQL:    stillTombstonesSQL,
				Params: map[string]any{"project": r.Project, "zeros": zeros, "age": params["age"], "refs": chunk},
			}, func(row *spanner.Row) error { return readName(row, &still) })
			if err != nil {
				return err
			}
		}
		for _, ref := range still {
			b.deleteRef(r.Project, ref)
		}
		return t.write(&b)
	})
	if err != nil {
		return 0, err
	}
	return len(still), nil
}

func readName(r *spanner.Row, names *[]string) error {
	var name string
	if err := r.Columns(&name); err != nil {
		return err
	}
	*names = append(*names, name)
	return nil
}
