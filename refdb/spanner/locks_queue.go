package spanner

import (
	"context"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// An ending is a lock that ends, with its waiters.
type ending struct {
	lock  driver.LockInfo // without heartbeat and age
	queue queue.Queue
	now   time.Time
}

// to returns the update of the lock's row: next gets it or, without next, the first waiter.
func (e ending) to(next driver.Waiter) rowEnd {
	return rowEnd{e.lock.Project, e.lock.Ref, queue.End(e.lock, e.queue, next, e.now)}
}

// A rowEnd is the update of a row whose lock ends.
type rowEnd struct {
	project, ref string
	after        queue.RowUpdate
}

// endings returns a function that reads and locks the rows of keys. It returns an ending for each
// key whose row matches, and nil for the others.
func endings(sql string, keys []lockKey) func(context.Context, *transaction) ([]*ending, error) {
	return func(ctx context.Context, t *transaction) ([]*ending, error) {
		found := make([]*ending, len(keys))
		return found, queryKeys(ctx, t, matchStatement(sql), keys, lockKey.bytes, func(r *spanner.Row) error {
			var n, now int64
			var waiting []string
			err := r.Columns(&n, &waiting, &now)
			k := keys[n]
			lock := driver.LockInfo{Project: k.Project, Ref: k.Ref, Owner: k.Owner, Token: driver.Token(k.Token)}
			found[n] = &ending{lock, queue.Read(waiting), time.UnixMicro(now)}
			return err
		})
	}
}

// end ends locks. It has to be the last call on b: if the commit has no room left for a
// reservation, end deletes the row instead, and the waiter returns with its ticket.
func (b *batch) end(rows []rowEnd) {
	for i, r := range rows {
		a := r.after
		if others := len(rows) - i - 1; a.Action == queue.Reserve && b.cost+len(reservationColumns)+others > maxMutations {
			a = queue.RowUpdate{Action: queue.Delete}
		}
		b.apply(r.project, r.ref, a)
	}
}

// apply makes an update of the row of a lock.
func (b *batch) apply(project, ref string, a queue.RowUpdate) {
	switch a.Action {
	case queue.SetQueue:
		b.setQueue(project, ref, a.Queue)
	case queue.Reserve:
		b.reserve(project, ref, a)
	case queue.Delete:
		b.deleteLock(project, ref)
	}
}
