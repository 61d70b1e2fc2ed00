package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/operation"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

const (
	projectLocks = `SELECT ref, owner, token, heartbeat, stale_after FROM locks WHERE project = ? ORDER BY ref`

	firstRefs = ` WHERE project = ?1 AND ref IN (SELECT ref FROM refs WHERE project = ?1 ORDER BY ref LIMIT ?2)`

	// signRefs names, in the rows, the operation that the history records for the removal. The
	// newline tells the trigger that the operation is that of a removal.
	signRefs = `UPDATE refs SET op = ?3 || char(10), time = ?4` + firstRefs

	removeRefs = `DELETE FROM refs` + firstRefs

	// removeLocks deletes the locks of a project without refs. The last ref may just have been
	// removed.
	removeLocks = `
		DELETE FROM locks
		WHERE project = ?1 AND NOT EXISTS (SELECT 1 FROM refs WHERE project = ?1)`

	// A tombstone without a time is older than any.
	oldTombstone = ` project = ?1 AND value IN (?2, ?3) AND coalesce(time, 0) <= ?4`

	findTombstones  = `SELECT ref FROM refs WHERE` + oldTombstone + ` ORDER BY ref LIMIT ?5`
	purgeTombstones = `DELETE FROM refs WHERE ref IN (SELECT value FROM json_each(?5)) AND` + oldTombstone
)

// Remove implements driver.RefStore.
func (d *Driver) Remove(ctx context.Context, r driver.RemoveRequest) (int, error) {
	return decide(ctx, d, "remove refs", r.Limit, func(t *tx) (int, error, error) { return t.remove(r) })
}

func (t *tx) remove(r driver.RemoveRequest) (removed int, refused, err error) {
	if refused, err := t.checkRemove(r); err != nil || refused != nil {
		return 0, refused, err
	}
	if _, err := t.exec(signRefs, r.Project, int64(r.Limit), operation.Text(r.Origin), t.now); err != nil {
		return 0, nil, err
	}
	n, err := t.exec(removeRefs, r.Project, int64(r.Limit))
	if err != nil {
		return 0, nil, err
	}
	_, err = t.exec(removeLocks, r.Project)
	return int(n), nil, err
}

// checkRemove returns a *driver.LockedError if locks of the project prevent the removal.
func (t *tx) checkRemove(r driver.RemoveRequest) (refused, err error) {
	var locks []driver.LockInfo
	err = t.query(func(columns row) {
		locks = append(locks, lockOf(t.now, r.Project, columns.text(0), columns[1:]))
	}, projectLocks, r.Project)
	if err != nil {
		return nil, err
	}
	return rules.Remove(r, locks), nil
}

// PurgeTombstones implements driver.RefStore. It finds the tombstones before the write transaction,
// because that reads the whole project, and checks them again in it, because a ref may have been
// set meanwhile. If some were, it looks for others, up to the limit.
func (d *Driver) PurgeTombstones(ctx context.Context, r driver.TombstoneRequest) (removed int, err error) {
	args := func(now int64, last any) []any {
		return []any{r.Project, string(driver.Deleted), string(driver.Deleted256), now - microsOf(r.OlderThan), last}
	}
	for removed < r.Limit {
		var refs []string
		err := d.read(ctx, "find tombstones", func(c *conn) error {
			return c.query(ctx, func(r row) { refs = append(refs, r.text(0)) }, findTombstones, args(d.now(), int64(r.Limit-removed))...)
		})
		if err != nil || len(refs) == 0 {
			return removed, err
		}
		var n int64
		err = d.write(ctx, "purge tombstones", len(refs), func(t *tx) (err error) {
			n, err = t.exec(purgeTombstones, args(t.now, asJSON(refs))...)
			return err
		})
		if err != nil {
			return removed, err
		}
		if removed += int(n); int(n) == len(refs) {
			break
		}
	}
	return removed, nil
}
