package sqlite

import (
	"context"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// ageSQL and staleSQL are the stale rule in SQL, as in driver.LockInfo.Stale. ?1 is now; the
// parameter of staleSQL is driver.DefaultStaleAfter.
const (
	ageSQL   = `?1 - coalesce(heartbeat, 0)`
	staleSQL = ageSQL + ` > coalesce(stale_after, ?)`
)

// Locks implements driver.LockStore.
func (d *Driver) Locks(ctx context.Context, q driver.LockQuery) (driver.LockPage, error) {
	locks, last, err := page(ctx, d, "list locks", "project, ref, owner, token, heartbeat, stale_after, waiting FROM locks", locksWhere(q), "project, ref",
		q.Limit, func(now int64, r row) driver.LockInfo {
			l := lockOf(now, r.text(0), r.text(1), r[2:])
			l.Waiters = len(queueOf(r.text(6)))
			return l
		})
	return driver.LockPage{Locks: locks, Next: driver.LockCursor{Project: last.Project, Ref: last.Ref}}, err
}

func locksWhere(q driver.LockQuery) (w where) {
	if q.Markers {
		w.prefix("project", driver.ReclaimPrefix)
	} else {
		w.add("substr(project, 1, ?) <> ?", int64(len(driver.ReclaimPrefix)), driver.ReclaimPrefix)
	}
	w.filter(q.Project, q.Ref, q.Owner)
	w.prefix("ref", q.Prefix)
	if q.Stale {
		w.add(staleSQL, driver.DefaultStaleAfter.Microseconds())
	}
	if q.OlderThan != 0 {
		w.add(ageSQL+" > ?", q.OlderThan.Microseconds())
	}
	if q.After != (driver.LockCursor{}) {
		w.add("(project, ref) > (?, ?)", q.After.Project, q.After.Ref)
	}
	return w
}
