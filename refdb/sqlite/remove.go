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

	findTombstones   = `SELECT ref FROM refs WHERE` + oldTombstone + ` ORDER BY ref LIMIT ?5`
	removeTombstones = `DELETE FROM refs WHERE ref IN (SELECT value FROM json_each(?5)) AND` + oldTombstone
)

// Remove implements refdb.Driver.
func (d *Driver) Remove(ctx context.Context, r refdb.RemoveRequest) (removed int, err error) {
	if r.Tombstones {
		return d.removeTombstones(ctx, r)
	}
	var refused error
	err = d.write(ctx, "remove project", r.Limit, func(t *tx) (err error) {
		removed, refused, err = t.remove(r)
		return err
	})
	if err != nil {
		return 0, err
	}
	return removed, refused
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
		heeded = heeded || l.Intended() || !l.Stale() && !r.Force
	}, projectLocks, r.Project)
	if err != nil || !heeded {
		return nil, err
	}
	return &refdb.LockedError{Holders: holders}, nil
}

// removeTombstones looks for them before the write transaction, because it
// has to read the whole project for that, and in it once more at those it
// found: one may have come to life again. Then there is a place for another.
func (d *Driver) removeTombstones(ctx context.Context, r refdb.RemoveRequest) (removed int, err error) {
	for removed < r.Limit {
		n, found, err := d.removeSomeTombstones(ctx, r, r.Limit-removed)
		removed += n
		if err != nil {
			return removed, err
		}
		if n == found {
			break
		}
	}
	return removed, nil
}

func (d *Driver) removeSomeTombstones(ctx context.Context, r refdb.RemoveRequest, limit int) (removed, found int, err error) {
	age := microsOf(r.OlderThan)
	args := func(now int64, last any) []any {
		return []any{r.Project, string(refdb.Deleted), string(refdb.Deleted256), now - age, last}
	}
	var refs []string
	err = d.read(ctx, "find tombstones", func(c *conn) error {
		return c.query(ctx, func(r row) { refs = append(refs, r.text(0)) }, findTombstones, args(d.now(), int64(limit))...)
	})
	if err != nil || len(refs) == 0 {
		return 0, 0, err
	}
	err = d.write(ctx, "remove tombstones", len(refs), func(t *tx) error {
		n, err := t.exec(removeTombstones, args(t.now, asJSON(refs))...)
		removed = int(n)
		return err
	})
	if err != nil {
		return 0, len(refs), err
	}
	return removed, len(refs), nil
}
