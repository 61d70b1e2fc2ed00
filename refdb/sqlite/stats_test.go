package sqlite_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

func TestTheStatsOfSQLite(t *testing.T) {
	t.Parallel()
	d := local.SQLite(t).Open(t)
	defer d.Close()
	m := d.(driver.Meter)
	before := m.Stats().Batches
	if err := d.Update(t.Context(), driver.UpdateRequest{Project: "p", Origin: driver.Origin{ID: "1"}, Updates: []driver.Update{{Ref: "refs/heads/a", New: "x"}}}); err != nil {
		t.Fatal(err)
	}
	if after := m.Stats().Batches; after.Sizes[0] != before.Sizes[0]+1 || after.Requests != before.Requests+1 {
		t.Errorf("%+v after one update, before %+v", after, before)
	}
}
