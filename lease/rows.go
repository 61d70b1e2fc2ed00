package lease

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// A Row is the lock of a process that holds a lease or waits for it.
type Row struct {
	refdb.LockInfo
	Mode  Mode
	Waits bool // it waits for a row of a conflicting mode with a smaller ticket
}

// Rows returns the rows of a lease, those of its holders and of its waiters, in the order of their
// tickets. It only reads. A stale row belongs to a process that has died; the next request for the
// lease removes the row.
func Rows(ctx context.Context, db *refdb.DB, project, name string) ([]Row, error) {
	err := check(project, name, Shared)
	var rows []Row
	if err == nil {
		rows, _, err = read(ctx, db, project, name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the lease %q of %s: %w", name, project, err)
	}
	return rows, nil
}

// read returns the rows of a lease, and the fresh locks on refs below the lease's prefix that are
// not rows of the lease.
func read(ctx context.Context, db *refdb.DB, project, name string) (rows []Row, foreign []refdb.LockInfo, err error) {
	prefix := prefixOf(name)
	for info, err := range db.Locks(ctx, refdb.LockFilter{Project: project, Prefix: prefix}) {
		if err != nil {
			return nil, nil, err
		}
		_, mode, ok := ParseRef(info.Ref)
		switch {
		case ok:
			rows = append(rows, Row{LockInfo: info, Mode: mode})
		case info.Ref != prefix+entryLock && !info.Stale():
			foreign = append(foreign, info)
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Token, b.Token) })
	for i := range rows {
		rows[i].Waits = len(predecessors(rows[:i], rows[i].Mode)) > 0
	}
	return rows, foreign, nil
}

// predecessors returns the earlier rows that a request of the given mode waits for.
func predecessors(earlier []Row, mode Mode) (all []refdb.LockInfo) {
	for _, r := range earlier {
		if r.Mode.conflicts(mode) {
			all = append(all, r.LockInfo)
		}
	}
	return all
}
