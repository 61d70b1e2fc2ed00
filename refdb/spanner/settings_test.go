package spanner_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/spanner/apiv1/spannerpb"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// Each transaction names the options that it depends on, whatever the defaults of the client and
// the database are.
func TestEachTransactionNamesItsIsolation(t *testing.T) {
	t.Parallel()
	var w wire
	var begun atomic.Int32
	w.sent = func(_ context.Context, name string, request any) error {
		r, ok := request.(interface {
			GetTransaction() *spannerpb.TransactionSelector
		})
		if !ok {
			return nil
		}
		if o := r.GetTransaction().GetBegin(); o.GetReadWrite() != nil {
			begun.Add(1)
			if o.GetIsolationLevel() != spannerpb.TransactionOptions_SERIALIZABLE || o.GetReadWrite().GetReadLockMode() != spannerpb.TransactionOptions_ReadWrite_PESSIMISTIC {
				t.Errorf("%s begins a transaction with %v", name, o)
			}
		}
		if o := r.GetTransaction().GetSingleUse(); o != nil && (o.GetReadOnly().GetMaxStaleness() != nil || o.GetReadOnly().GetMinReadTimestamp() != nil) {
			t.Errorf("%s may read stale data: %v", name, o)
		}
		return nil
	}
	d := openWire(t, dbtest.Spanner(t), &w)
	ctx := t.Context()
	const project, ref = "p", "refs/heads/main"
	a, err := d.Acquire(ctx, driver.AcquireRequest{Project: project, Refs: []string{ref}, Owner: "site/1", Nonce: "n", StaleAfter: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	lock := driver.LockID{Project: project, Ref: ref, Owner: "site/1", Token: a.Token}
	_, beat := d.Beat(ctx, []driver.LockID{lock})
	_, released := d.Release(ctx, driver.ReleaseRequest{Project: project, Refs: []string{ref}, Owner: "site/1", Token: a.Token})
	updated := d.Update(ctx, driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: "id"}, Updates: []driver.Update{{Ref: ref, New: "1111111111111111111111111111111111111111"}}})
	_, got := d.Get(ctx, project, []string{ref})
	if err := errors.Join(beat, released, updated, got); err != nil {
		t.Fatal(err)
	}
	if n := begun.Load(); n < 4 {
		t.Errorf("%d transactions were recorded", n)
	}
}
