package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Locks implements refdb.Driver. The time that ages are counted to is read
// before the rows: a beat in between makes its lock younger, never older.
func (d *Driver) Locks(ctx context.Context, q refdb.LockQuery) ([]refdb.LockInfo, error) {
	var page []refdb.LockInfo
	err := d.read(ctx, "list locks", func(c *conn) error {
		now := d.now()
		w := locksWhere(q, now)
		return c.query(ctx, func(r row) {
			page = append(page, lockOf(now, r.text(0), r.text(1), r[2:]))
		}, "SELECT project, ref, owner, token, heartbeat, stale_after FROM locks"+w.String()+" ORDER BY project, ref LIMIT ?",
			w.with(int64(q.Limit))...)
	})
	if err != nil {
		return nil, err
	}
	return page, nil
}

func locksWhere(q refdb.LockQuery, now int64) *where {
	w := new(where)
	if q.Markers {
		w.prefix("project", refdb.ReclaimPrefix)
	} else {
		w.add("substr(project, 1, ?) <> ?", int64(len(refdb.ReclaimPrefix)), refdb.ReclaimPrefix)
	}
	if q.Project != "" {
		w.add("project = ?", q.Project)
	}
	if q.Ref != "" {
		w.add("ref = ?", q.Ref)
	}
	w.prefix("ref", q.Prefix)
	w.owner(q.Owner)
	if q.Stale {
		w.add("? - coalesce(heartbeat, 0) > coalesce(stale_after, ?)", now, refdb.DefaultStaleAfter.Microseconds())
	}
	if q.OlderThan != 0 {
		w.add("? - coalesce(heartbeat, 0) > ?", now, q.OlderThan.Microseconds())
	}
	if q.AfterProject != "" || q.AfterRef != "" {
		w.add("(project, ref) > (?, ?)", q.AfterProject, q.AfterRef)
	}
	return w
}
