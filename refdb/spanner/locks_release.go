package spanner

import (
	"context"

	"cloud.google.com/go/spanner"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/queue"
	"github.com/globalrefdb/globalrefdb/refdb/internal/rules"
)

// Release implements driver.LockStore.
func (d *Driver) Release(ctx context.Context, r driver.ReleaseRequest) (released driver.Released, err error) {
	keys := make([]lockKey, len(r.Refs))
	for i, ref := range r.Refs {
		keys[i] = keyOf(i, driver.LockID{Project: r.Project, Ref: ref, Owner: r.Owner, Token: r.Token})
	}
	ended, err := d.endMatching(ctx, request{tag: "refdb.release", what: "release locks"}, endingSQL, keys, func(e ending) rowEnd { return e.to(r.Next) })
	for i, ok := range ended {
		if !ok {
			released.Missing = append(released.Missing, r.Refs[i])
		}
	}
	return released, err
}

// Purge implements driver.LockStore.
func (d *Driver) Purge(ctx context.Context, locks []driver.StandingLock) ([]bool, error) {
	keys := make([]lockKey, len(locks))
	for i, l := range locks {
		keys[i] = keyOf(i, l.LockID)
		keys[i].Heartbeat = spanner.NullInt64{Int64: l.Heartbeat.UnixMicro(), Valid: !l.Heartbeat.IsZero()}
	}
	return d.endMatching(ctx, request{tag: "refdb.purge", what: "purge locks"}, endingSQL+sameHeartbeatSQL, keys, func(e ending) rowEnd {
		return rowEnd{e.lock.Project, e.lock.Ref, queue.Purge(e.lock, e.queue, e.now)}
	})
}

// endMatching ends the locks that match keys, and reports which ones did.
func (d *Driver) endMatching(ctx context.Context, r request, sql string, keys []lockKey, end func(ending) rowEnd) ([]bool, error) {
	ended, _, err := decide(ctx, d, r, endings(sql, keys), func(b *batch, found []*ending) ([]bool, error) {
		ended := make([]bool, len(keys))
		var matched []rowEnd
		for i, e := range found {
			if ended[i] = e != nil; ended[i] {
				matched = append(matched, end(*e))
			}
		}
		b.end(matched)
		return ended, nil
	})
	return ended, err
}

// Abandon implements driver.LockStore.
func (d *Driver) Abandon(ctx context.Context, r driver.AbandonRequest) error {
	_, _, err := decide(ctx, d, request{tag: "refdb.abandon", what: "abandon locks"}, statesOf(r.Project, lockKeys(r.Refs)),
		func(b *batch, states []state) (struct{}, error) {
			for _, s := range states {
				b.apply(r.Project, s.Name, rules.Abandon(r, s.Row, s.now))
			}
			return struct{}{}, nil
		})
	return err
}
