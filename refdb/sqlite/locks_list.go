package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// The stale rule in SQL, as refdb.LockInfo.Stale has it. ?1 is now; the parameter
// is refdb.DefaultStaleAfter.
const (
	ageSQL   = `?1 - coalesce(heartbeat, 0)`
	staleSQL = ageSQL + ` > coalesce(stale_after, ?)`
)

// Locks implements refdb.LockStore.
func (d *Driver) Locks(ctx context.Context, q refdb.LockQuery) (refdb.LockPage, error) {
	locks, last, err := page(ctx, d, "list locks", "project, ref, owner, token, heartbeat, stale_after FROM locks", locksWhere(q), "project, ref",
		q.Limit, func(now int64, r row) refdb.LockInfo { return lockOf(now, r.text(0), r.text(1), r[2:]) })
	return refdb.LockPage{Locks: locks, Next: refdb.LockCursor{Project: last.Project, Ref: last.Ref}}, err
}

func locksWhere(q refdb.LockQuery) (w where) {
	if q.Markers {
		w.prefix("project", refdb.ReclaimPrefix)
	} else {
		w.add("substr(project, 1, ?) <> ?", int64(len(refdb.ReclaimPrefix)), refdb.ReclaimPrefix)
	}
	w.filter(q.Project, q.Ref, q.Owner)
	w.prefix("ref", q.Prefix)
	if q.Stale {
		w.add(staleSQL, refdb.DefaultStaleAfter.Microseconds())
	}
	if q.OlderThan != 0 {
		w.add(ageSQL+" > ?", q.OlderThan.Microseconds())
	}
	if q.After != (refdb.LockCursor{}) {
		w.add("(project, ref) > (?, ?)", q.After.Project, q.After.Ref)
	}
	return w
}
