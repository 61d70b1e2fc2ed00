package spanner

import (
	"context"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
)

// An ending is a lock that ends, and the queue of those who wait for it.
type ending struct {
	lock  refdb.LockInfo // as far as its end needs it
	queue queue.Queue
	now   time.Time
}

// endings has a transaction read and lock the rows of keys, and return those that
// match, nil for the others.
func endings(sql string, keys []lockKey) func(context.Context, *transaction) ([]*ending, error) {
	return func(ctx context.Context, t *transaction) ([]*ending, error) {
		found := make([]*ending, len(keys))
		return found, queryKeys(ctx, t, matchStatement(sql), keys, lockKey.bytes, func(r *spanner.Row) error {
			var n, now int64
			var waiting []string
			err := r.Columns(&n, &waiting, &now)
			k := keys[n]
			lock := refdb.LockInfo{Project: k.Project, Ref: k.Ref, Owner: k.Owner, Token: refdb.Token(k.Token)}
			found[n] = &ending{lock, queue.Read(waiting), time.UnixMicro(now)}
			return err
		})
	}
}

// end ends locks: they go to next, or to whoever waits for them. It is called last: where
// the commit has no room for a reservation, it deletes the row, and who waits comes
// back with its ticket.
func (b *batch) end(locks []ending, next refdb.Waiter) {
	for i, e := range locks {
		a := queue.End(e.lock, e.queue, next, e.now)
		if others := len(locks) - i - 1; a.Change == queue.Reserve && b.cost+len(reservationColumns)+others > maxMutations {
			a = queue.After{Change: queue.Delete}
		}
		b.leave(e.lock.Project, e.lock.Ref, a)
	}
}

// leave leaves the row of a lock as a decision wants it.
func (b *batch) leave(project, ref string, a queue.After) {
	switch a.Change {
	case queue.Queues:
		b.setQueue(project, ref, a.Queue)
	case queue.Reserve:
		b.reserve(project, ref, a)
	case queue.Delete:
		b.deleteLock(project, ref)
	}
}

// row is s as package queue has it.
func (c claim) row(s state) queue.Row {
	if s.lock == nil {
		return queue.Row{}
	}
	return queue.Row{Lock: &s.lock.LockInfo, Nonce: s.lock.nonce, Queue: s.queue, Ours: c.took(s.lock)}
}
