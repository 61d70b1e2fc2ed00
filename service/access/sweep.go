package access

import (
	"context"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	sweepEvery = 10 * time.Minute
	sweepMost  = 1000 // locks at a time
)

// sweep removes stale locks below the prefix of confirmations. A server whose process ends leaves one,
// and nobody else takes it over: each confirmation names another ref.
func (c *Cache) sweep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(sweepEvery):
		}
		if err := c.sweepOnce(ctx); err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "stale locks of confirmations can't be removed", "class", refdb.ClassOf(err).String())
		}
	}
}

func (c *Cache) sweepOnce(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, refreshLimit)
	defer cancel()
	var stale []refdb.LockInfo
	for l, err := range c.db.Locks(limited, refdb.LockFilter{Project: project, Prefix: confirmationPrefix, Stale: true}) {
		if err != nil {
			return err
		}
		if l.Intended() {
			continue
		}
		if stale = append(stale, l); len(stale) == sweepMost {
			break
		}
	}
	if len(stale) == 0 {
		return nil
	}
	_, err := c.db.Operator().Purge(limited, stale)
	return err
}
