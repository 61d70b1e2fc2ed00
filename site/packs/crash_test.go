package packs_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// After a crash, PostgreSQL may reuse transaction IDs that were not durable. Then a pack gets a
// position that had ended before the crash.
func TestAFollowerMissesNoPackAfterACrashThatLostNothing(t *testing.T) {
	t.Parallel()
	s := dbtest.StartPostgres(t)
	d, err := drivers.Open(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldOn(t, d)
	a, ours, olders := w.site("a"), w.site("b"), w.site("c")
	first := a.commit("first")
	a.push(move("main", "", first))
	var ended refdb.Position
	s.ReuseIDs(40, func() {
		ours.received(1)
		olders.received(1)
		state, err := a.db.HistoryState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ended = state.Ended
		// Programs of schema version 10 recorded the mark like this.
		olders.mark.Key = driver.PackKey{Position: ended + 1}
	})
	olders.received(0)
	second := a.commit("second", first)
	a.push(move("main", first, second))
	page, err := a.db.Packs().Page(t.Context(), driver.PackQuery{Project: project, Limit: 10})
	if err != nil || len(page.Packs) != 2 || page.Packs[1].Position > ended {
		t.Fatalf("the second pack should have a position up to %d, which had ended before the crash: %+v, %v", ended, page, err)
	}
	for name, b := range map[string]*site{"our mark": ours, "an older program's mark": olders} {
		b.received(1)
		if !b.whole(second) {
			t.Errorf("with %s not all objects came", name)
		}
	}
}
