package spanner_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// holdUp makes queries for a ref wait until their contexts end, as if another transaction kept the
// row locked.
func holdUp(w *wire, ref string) {
	w.set(func(w *wire) {
		w.sent = func(ctx context.Context, _ string, request any) error {
			sql, ok := request.(*spannerpb.ExecuteSqlRequest)
			if !ok {
				return nil
			}
			params, err := protojson.Marshal(sql.Params)
			if err != nil || !strings.Contains(string(params), `"`+ref+`"`) {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}
	})
}

func TestOnlyTheLockedRowsBeatIsUnknown(t *testing.T) {
	t.Parallel()
	db := dbtest.Spanner(t)
	w := &wire{}
	d := openWireWithLimits(t, db, w)
	refs := names(60)
	a := acquire(t, d, "n", refs...)
	before, _ := db.RowLock(t, project, refs[0])
	rows := lockIDs(a.Token, refs...)
	rows[3].Token-- // of another owner by now
	rows[4].Owner = "site/2"
	const stuck = 42
	holdUp(w, refs[stuck])
	// On a busy machine, the beats of other rows may be late, too, for the time limit of a beat of
	// all rows.
	var results []driver.BeatResult
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		var err error
		results, err = d.Beat(ctx, rows)
		late := err != nil && ctx.Err() != nil
		cancel()
		if !late {
			must(t, err)
		}
		unknown := func(r driver.BeatResult) bool { return r == driver.BeatUnknown }
		if len(results) == len(rows) && !slices.ContainsFunc(slices.Delete(slices.Clone(results), stuck, stuck+1), unknown) {
			break
		}
	}
	if len(results) != len(rows) {
		t.Fatal("no beat had an answer")
	}
	for i, r := range results {
		want := driver.BeatRenewed
		switch i {
		case 3, 4:
			want = driver.BeatLost
		case stuck:
			want = driver.BeatUnknown
		}
		if r != want {
			t.Errorf("the beat of row %d says %v, want %v", i, r, want)
		}
	}
	if after, _ := db.RowLock(t, project, refs[0]); !after.Heartbeat.After(before.Heartbeat) {
		t.Errorf("the heartbeat was %v and is %v", before.Heartbeat, after.Heartbeat)
	}
}

func TestABlockedBeatFailsAndIsNotSplit(t *testing.T) {
	t.Parallel()
	w := &wire{}
	d := openWireWithLimits(t, dbtest.Spanner(t), w)
	refs := names(60)
	a := acquire(t, d, "n", refs...)
	w.set(func(w *wire) {
		w.sent = func(ctx context.Context, _ string, _ any) error {
			<-ctx.Done()
			return ctx.Err()
		}
	})
	w.take()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if results, err := d.Beat(ctx, lockIDs(a.Token, refs...)); err == nil {
		t.Errorf("no error, and %v", results)
	}
	queries := slices.DeleteFunc(w.take(), func(name string) bool { return name != "ExecuteStreamingSql" })
	if len(queries) > 1+10 {
		t.Errorf("%d queries were sent", len(queries))
	}
}
