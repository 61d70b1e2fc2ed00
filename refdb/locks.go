package refdb

import (
	"context"
	"iter"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

// Locks iterates over the locks that f selects, in byte order of project and
// ref. It reads page by page, each as of its own point in time. An error ends it.
func (db *DB) Locks(ctx context.Context, f LockFilter) iter.Seq2[LockInfo, error] {
	return db.engine.Locks(ctx, driver.LockQuery{LockFilter: f, Limit: engine.PageSize})
}
