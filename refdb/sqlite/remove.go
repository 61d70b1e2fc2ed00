package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	projectLocks = `SELECT ref, owner, token, heartbeat, stale_after FROM locks WHERE project = ? ORDER BY ref`

	removeRefs = `
		DELETE FROM refs
		WHERE project = ?1 AND ref IN (SELECT ref FROM refs WHERE project = ?1 ORDER BY ref LIMIT ?2)`

	// Of a project without refs. Its last ref may be just gone.
	removeLocks = `
		DELETE FROM locks
		WHERE project = ?1 AND NOT EXISTS (SELECT 1 FROM refs WHERE project = ?1)`

	// A tombstone without a time is older than any.
	oldTombstone = ` project = ?1 AND value IN (?2, ?3) AND coalesce(time, 0) <= ?4`

	findTombstones  = `SELECT ref FROM refs WHERE` + oldTombstone + ` ORDER BY ref LIMIT ?5`
	purgeTombstones = `DELETE FROM refs WHERE ref IN (SELECT value FROM json_each(?5)) AND` + oldTombstone
)

// Remove implements refdb.RefStore.
func (d *Driver) Remove(ctx context.Context, r refdb.RemoveRequest) (removed int, err error) {
	err = d.decide(ctx, "remove refs", r.Limit, func(t *tx) (refused, err error) {
		removed, refused, err = t.remove(r)
		return refused, err
	})
	if err != nil {
		return 0, err
	}
	return removed, nil
}

func (t *tx) remove(r refdb.RemoveRequest) (removed int, refused, err error) {
	if refused, err := t.lockedProject(r); err != nil || refused != nil {
		return 0, refused, err
	}
	n, err := t.exec(removeRefs, r.Project, int64(r.Limit))
	if err != nil {
		return 0, nil, err
	}
	_, err = t.exec(removeLocks, r.Project)
	return int(n), nil, err
}

// lockedProject returns a *refdb.LockedError if a lock stands on any ref of the
// project that r must heed.
func (t *tx) lockedProject(r refdb.RemoveRequest) (refused, err error) {
	var holders []refdb.LockInfo
	heeded := false
	err = t.query(func(columns row) {
		l := lockOf(t.now, r.Project, columns.text(0), columns[1:])
		holders = append(holders, l)
		heeded = heeded || l.Intended() || !l.Stale() && r.Locks == refdb.MandatoryLocks
	}, projectLocks, r.Project)
	if err != nil || !heeded {
		return nil, err
	}
	return &refdb.LockedError{Holders: holders}, nil
}

// PurgeTombstones implements refdb.RefStore. It looks for them before the write
// transaction, because it has to read the whole project for that, and once more in
// it at those that it found: one may have been set again. Then there is a place
// for another.
func (d *Driver) PurgeTombstones(ctx context.Context, r refdb.TombstoneRequest) (removed int, err error) {
	args := func(now int64, last any) []any {
		return []any{r.Project, string(refdb.Deleted), string(refdb.Deleted256), now - microsOf(r.OlderThan), last}
	}
	for removed < r.Limit {
		var refs []string
		err := d.read(ctx, "look for tombstones", func(c *conn) error {
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
