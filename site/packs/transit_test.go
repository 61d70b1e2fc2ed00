package packs_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/packs"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

const projectID = "id"

// maintained unpacks all packs and records the site's mark in the database, as maintenance does.
func (s *site) maintained(name string) {
	s.Helper()
	_, err := s.receive()
	if err == nil {
		err = s.source().RecordUnpacked(s.Context(), projectID, name, s.mark)
	}
	if err != nil {
		s.Fatal(err)
	}
}

// trimmed maintains and trims a site, and returns the number of packs that it dropped.
func (s *site) trimmed(name string) (dropped int) {
	s.Helper()
	s.maintained(name)
	dropped, err := s.source().Trim(s.Context(), projectID, name)
	if err != nil {
		s.Fatal(err)
	}
	return dropped
}

func TestPacksInTransitAreDroppedAfterAWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.site("a"), w.site("b")
		first := a.commit("first")
		a.push(move("main", "", first))
		time.Sleep(packs.TransitFor - time.Hour)
		second := a.commit("second", first)
		a.push(move("main", first, second))
		b.maintained("b")
		if got := a.trimmed("a"); got != 0 {
			t.Errorf("before a week was over %d packs were dropped", got)
		}
		time.Sleep(2 * time.Hour)
		for _, want := range []int{1, 0} {
			if got := a.trimmed("a"); got != want {
				t.Errorf("%d packs were dropped, want %d", got, want)
			}
		}
		b.git("update-ref", "refs/heads/main", second)
		b.push(move("main", second, b.commit("third", second)))
		if _, err := a.receive(); err != nil {
			t.Error(err)
		}
	})
}

// The database may have the only copy besides this site's, which may be lost.
func TestAPackThatNoOtherSiteHasUnpackedIsNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.site("a"), w.site("b")
		first := a.commit("first")
		a.push(move("main", "", first))
		b.maintained("b")
		// The preparation uses its pack now, and ends more than a week later.
		long := a.prepare(move("long", "", a.commit("long", first)))
		time.Sleep(packs.TransitFor + time.Hour)
		if got := a.trimmed("a"); got != 1 {
			t.Errorf("%d packs were dropped, want the one that b has", got)
		}
		if err := a.db.Intents().Finish(t.Context(), long, []string{"refs/heads/long"}, nil); err != nil {
			t.Fatal(err)
		}
		if got := a.trimmed("a"); got != 0 {
			t.Errorf("%d packs were dropped that only a has", got)
		}
		b.git("update-ref", "refs/heads/main", first)
		b.maintained("b")
		if err := presence.RemoveRecords(t.Context(), a.db, "b"); err != nil {
			t.Fatal(err)
		}
		if got := a.trimmed("a"); got != 0 {
			t.Errorf("%d packs were dropped that only a retired site has", got)
		}
		b.maintained("b")
		if got := a.trimmed("a"); got == 0 {
			t.Error("what both have was not dropped")
		}
	})
}

// After the database went back, the same positions belong to other packs.
func TestAMarkRecordedInAnEarlierEpochDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.site("a"), w.site("b")
		a.push(move("main", "", a.commit("first")))
		b.maintained("b")
		b.mark.Epoch = "earlier"
		if err := b.source().RecordUnpacked(t.Context(), projectID, "b", b.mark); err != nil {
			t.Fatal(err)
		}
		time.Sleep(packs.TransitFor + time.Hour)
		if got := a.trimmed("a"); got != 0 {
			t.Errorf("%d packs were dropped", got)
		}
	})
}

// A site that was away for longer than a week moves no ref until a site stores a base.
func TestASiteThatMissedDroppedPacksNeedsABase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b, c, d := w.site("a"), w.site("b"), w.site("c"), w.site("d")
		first := a.commit("first")
		a.push(move("main", "", first))
		b.received(1)
		second := a.commit("second", first)
		a.push(move("main", first, second))
		d.maintained("d")
		time.Sleep(packs.TransitFor + time.Hour)
		if got := a.trimmed("a"); got != 2 {
			t.Fatalf("%d packs were dropped", got)
		}
		third := a.commit("third", second)
		a.push(move("main", second, third))
		for _, s := range []*site{b, c} {
			if got, err := s.receive(); !errors.Is(err, packs.ErrIncomplete) || len(got) > 0 || !strings.Contains(err.Error(), "site store compact team/app") {
				t.Errorf("unpacked %v, %v", got, err)
			}
		}
		// The missing objects may also come from another site.
		b.git("fetch", "--quiet", a.Dir, second)
		b.git("update-ref", "refs/heads/main", second)
		if _, err := b.receive(); err != nil || !b.whole(third) {
			t.Errorf("%v", err)
		}
		a.compact()
		if _, err := c.receive(); err != nil || !c.whole(third) {
			t.Errorf("%v", err)
		}
		c.maintained("c")
		if got := a.trimmed("a"); got != 0 {
			t.Errorf("a base that was just stored: %d packs were dropped", got)
		}
	})
}

// A base at the same position as an earlier one must replace it: nothing need have changed since
// packs in transit were dropped, or since a base was stored that turned out to be damaged.
func TestTheLatestBaseOfAPositionReplacesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.site("a"), w.site("b")
		first := a.commit("first")
		a.push(move("main", "", first))
		b.maintained("b")
		time.Sleep(packs.TransitFor + time.Hour)
		if got := a.trimmed("a"); got != 1 {
			t.Fatalf("%d packs were dropped", got)
		}
		for n := range 8 {
			time.Sleep(time.Second)
			a.compact()
			c := w.site(fmt.Sprint("c", n))
			if _, err := c.receive(); err != nil || !c.whole(first) {
				t.Errorf("base %d: %v", n, err)
			}
			var listed []driver.Pack
			for p, err := range packs.List(t.Context(), a.db, project) {
				if err != nil {
					t.Fatal(err)
				}
				listed = append(listed, p)
			}
			if len(listed) != 1 || listed[0].Age != 0 {
				t.Errorf("base %d is not the one that is listed: %+v", n, listed)
			}
		}
	})
}
