package spanner

import (
	"context"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// staleSQL is driver.LockInfo.Stale for a row of locks AS l.
const staleSQL = ageSQL + ` > IFNULL(l.stale_after, @default_stale_after)`

// Locks implements driver.LockStore.
func (d *Driver) Locks(ctx context.Context, q driver.LockQuery) (driver.LockPage, error) {
	locks, last, err := page(ctx, d, request{tag: "refdb.locks", what: "list locks"}, locksStatement(q), q.Limit, readLock)
	return driver.LockPage{Locks: locks, Next: driver.LockCursor{Project: last.Project, Ref: last.Ref}}, err
}

func readLock(r *spanner.Row) (driver.LockInfo, error) {
	var project, ref string
	var row lockRow
	var waiters int64
	err := r.Columns(append([]any{&project, &ref, &waiters}, row.columns()...)...)
	l := row.info(project, ref)
	l.Waiters = int(waiters)
	return l, err
}

func locksStatement(q driver.LockQuery) spanner.Statement {
	s := spanner.Statement{
		SQL:    `SELECT l.project, l.ref, IFNULL(ARRAY_LENGTH(l.waiting), 0), ` + lockSQL + ` FROM locks AS l WHERE `,
		Params: map[string]any{"markers": driver.ReclaimPrefix},
	}
	if q.Markers {
		s.SQL += `STARTS_WITH(l.project, @markers)`
	} else {
		s.SQL += `NOT STARTS_WITH(l.project, @markers)`
	}
	if q.After != (driver.LockCursor{}) {
		// The second part implies the first, which bounds the range to read.
		and(&s, `l.project >= @after_project`, "after_project", q.After.Project)
		and(&s, `(l.project > @after_project OR l.ref > @after_ref)`, "after_ref", q.After.Ref)
	}
	andFilter(&s, q.Project, q.Ref, q.Owner)
	if q.Prefix != "" {
		and(&s, `STARTS_WITH(l.ref, @prefix)`, "prefix", q.Prefix)
	}
	if q.Stale {
		and(&s, staleSQL, "default_stale_after", driver.DefaultStaleAfter.Microseconds())
	}
	if q.OlderThan > 0 {
		and(&s, ageSQL+` > @older_than`, "older_than", q.OlderThan.Microseconds())
	}
	s.SQL += ` ORDER BY l.project, l.ref`
	return s
}
