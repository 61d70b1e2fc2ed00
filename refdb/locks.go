package refdb

import (
	"context"
	"iter"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// A LockOption changes what [DB.Locks] lists.
type LockOption func(*driver.LockQuery)

// Behind lists only the locks behind a place in the order of project and ref, for a listing that goes
// on where an earlier one stopped. Given ref "", it lists the project's own locks, too.
func Behind(project, ref string) LockOption {
	return func(q *driver.LockQuery) { q.After = driver.LockCursor{Project: project, Ref: ref} }
}

// Locks iterates over the locks that f selects, in byte order of project and
// ref. It reads page by page, each as of its own point in time. An error ends it.
func (db *DB) Locks(ctx context.Context, f LockFilter, opts ...LockOption) iter.Seq2[LockInfo, error] {
	q := driver.LockQuery{LockFilter: f, Limit: engine.PageSize}
	for _, o := range opts {
		o(&q)
	}
	return db.engine.Locks(ctx, q)
}
