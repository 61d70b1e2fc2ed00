package postgres_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestStats(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t).Open(t)
	db, err := refdb.New(d, refdb.Options{Site: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	before := db.Stats().Driver
	if err := db.Update(t.Context(), "p", []driver.Update{{Ref: "refs/heads/a", New: "x"}}); err != nil {
		t.Fatal(err)
	}
	after := db.Stats().Driver
	if n := after.Batches.Sizes[0] - before.Batches.Sizes[0]; n != 1 || after.Batches.Requests-before.Batches.Requests != 1 {
		t.Errorf("an update took %d batches: %+v", n, after.Batches)
	}
	if len(after.Pools) != 3 || after.Pools[0].Name != "requests" {
		t.Fatalf("%+v", after.Pools)
	}
	p := after.Pools[0]
	eventually(t, "no connection is in use", func() bool { // the DB checks the schema from time to time
		p = db.Stats().Driver.Pools[0]
		return p.InUse == 0
	})
	if p.Max < 16 || p.Idle < 1 || p.Acquired <= before.Pools[0].Acquired || p.Waited > p.Acquired {
		t.Errorf("the pool after an update: %+v, before %+v", p, before.Pools[0])
	}
}
