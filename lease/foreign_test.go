package lease_test

import (
	"context"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
)

func TestALockOnTheRowOfALeaseIsRefusedLikeAnyOther(t *testing.T) {
	onEach(t, func(e *env) {
		l := e.acquire(e.a, lease.Shared)
		_, err := e.b.TryLock(e.Context(), project, l.Ref())
		e.wantBlockedBy(err, l)
		e.wantIs(e.b.Update(e.Context(), project, []refdb.Update{{Ref: l.Ref(), New: value}}), refdb.ErrLocked)
	})
}

func TestAForeignLockAmongTheRowsIsNamed(t *testing.T) {
	onEach(t, func(e *env) {
		l := e.acquire(e.a, lease.Shared)
		e.must(l.Release(e.Context()))
		entry := entryLockOf(l)
		for _, c := range []struct {
			ref  string
			asks func(context.Context) error
		}{
			{strings.TrimSuffix(entry, "turn") + "mine", func(ctx context.Context) error {
				_, err := lease.Acquire(ctx, e.a, project, name, lease.Shared)
				return err
			}},
			{strings.TrimSuffix(entry, "turn") + "mine", func(ctx context.Context) error {
				_, err := tryAcquire(ctx, e.a, project, name, lease.Shared)
				return err
			}},
			{entry, func(ctx context.Context) error {
				_, err := tryAcquire(ctx, e.a, project, name, lease.Shared)
				return err
			}},
		} {
			lock, err := e.b.TryLock(e.Context(), project, c.ref)
			e.must(err)
			err = c.asks(e.Context())
			e.wantIs(err, refdb.ErrLocked)
			if err != nil && (!strings.Contains(err.Error(), c.ref) || !strings.Contains(err.Error(), e.b.Owner())) {
				e.Errorf("%q names neither %s nor its holder", err, c.ref)
			}
			e.must(lock.Release(e.Context()))
			e.wantNoLocks()
		}
		e.must(e.acquire(e.a, lease.Exclusive).Release(e.Context()))
	})
}
