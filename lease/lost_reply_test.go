package lease_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A forgetful driver loses the reply to its first purge.
type forgetful struct {
	refdb.Driver
	purged atomic.Bool
}

func (d *forgetful) Unwrap() refdb.Driver { return d.Driver }

func (d *forgetful) Purge(ctx context.Context, locks []driver.StandingLock) ([]bool, error) {
	removed, err := d.Driver.Purge(ctx, locks)
	if err == nil && !d.purged.Swap(true) {
		err = fmt.Errorf("lost: %w", refdb.ErrOutcomeUnknown)
	}
	return removed, err
}

func TestAWaiterContinuesAfterALostReplyToThePurgeOfAStaleRow(t *testing.T) {
	onEach(t, func(e *env) {
		dead := e.open()
		held := e.acquire(dead, lease.Exclusive)
		e.must(dead.Close())
		e.database.Age(e, project, held.Ref(), stale)
		d := &forgetful{Driver: e.database.Open(e)}
		db := e.openOn(d, nil)
		e.must(e.acquire(db, lease.Exclusive).Release(e.Context()))
		if !d.purged.Load() {
			e.Error("nothing was purged")
		}
		e.wantNoLocks()
	})
}
