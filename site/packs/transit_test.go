package packs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/packs"
)

// registered are the sites that follow, as if each had read all that is complete.
func (w *world) registered(names ...string) (all []refdb.Follower) {
	w.Helper()
	state, err := w.open("test").HistoryState(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	for _, name := range names {
		all = append(all, refdb.Follower{Name: name, Read: state.Upto})
	}
	return all
}

func (s *site) trimmed(others []refdb.Follower) (dropped int) {
	s.Helper()
	dropped, err := s.source().Trim(s.Context(), others)
	if err != nil {
		s.Fatal(err)
	}
	return dropped
}

func TestWhatIsInTransitGoesAfterAWeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.site("a"), w.site("b")
		first := a.commit("first")
		a.push(move("main", "", first))
		b.received(1)
		time.Sleep(packs.TransitFor - time.Hour)
		second := a.commit("second", first)
		a.push(move("main", first, second))
		if got := a.trimmed(w.registered("b")); got != 0 {
			t.Errorf("before a week was over: %d packs were dropped", got)
		}
		time.Sleep(2 * time.Hour)
		if got := a.trimmed(w.registered("b")); got != 1 {
			t.Errorf("%d packs were dropped", got)
		}
		if got := a.trimmed(w.registered("b")); got != 0 {
			t.Errorf("again: %d packs were dropped", got)
		}
		b.received(1) // the bound says nothing new to it
		b.git("update-ref", "refs/heads/main", second)
		b.push(move("main", second, b.commit("third", second)))
		if _, err := a.receive(); err != nil {
			t.Error(err)
		}
	})
}

// The database may have the only copy beside this site's, which may be lost.
func TestWhatNoOtherSiteHasIsNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.site("a"), w.site("b")
		first := a.commit("first")
		a.push(move("main", "", first))
		// The others have read this far; then a push begins that lasts for more than a week.
		before := w.registered("b")
		long := a.prepare(move("long", "", a.commit("long", first)))
		time.Sleep(packs.TransitFor + time.Hour)
		for _, others := range [][]refdb.Follower{nil, {{Name: "b"}}} {
			if got := a.trimmed(others); got != 0 {
				t.Errorf("%d packs were dropped", got)
			}
		}
		now := w.registered("b")
		if got := a.trimmed(now); got != 1 {
			t.Errorf("%d packs were dropped", got)
		}
		if err := a.db.Finish(t.Context(), long, []string{"refs/heads/long"}, nil); err != nil {
			t.Fatal(err)
		}
		for _, others := range [][]refdb.Follower{before, now} {
			if got := a.trimmed(others); got != 0 {
				t.Errorf("it just ended, and was dropped: %d packs were dropped", got)
			}
		}
		b.git("fetch", "--quiet", a.Dir, first)
		b.git("update-ref", "refs/heads/main", first)
		if _, err := b.receive(); err != nil {
			t.Error(err)
		}
		if got := a.trimmed(w.registered("b")); got != 2 {
			t.Errorf("%d packs were dropped", got)
		}
	})
}

// A site that was away for longer moves no ref, until somebody stores a base.
func TestASiteThatWasAwayForLongerNeedsABase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b, c := w.site("a"), w.site("b"), w.site("c")
		first := a.commit("first")
		a.push(move("main", "", first))
		b.received(1)
		second := a.commit("second", first)
		a.push(move("main", first, second))
		time.Sleep(packs.TransitFor + time.Hour)
		if got := a.trimmed(w.registered("c")); got != 2 {
			t.Fatalf("%d packs were dropped", got)
		}
		third := a.commit("third", second)
		a.push(move("main", second, third))
		for _, s := range []*site{b, c} {
			if got, err := s.receive(); !errors.Is(err, packs.ErrIncomplete) || len(got) > 0 || !strings.Contains(err.Error(), "site store compact team/app") {
				t.Errorf("unpacked %v, %v", got, err)
			}
		}
		// What it lacks may also come from another site.
		b.git("fetch", "--quiet", a.Dir, second)
		b.git("update-ref", "refs/heads/main", second)
		if _, err := b.receive(); err != nil || !b.whole(third) {
			t.Errorf("%v", err)
		}
		if _, err := a.receive(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.source().StoreBase(t.Context(), func(context.Context) (*packs.Mark, error) { return a.mark, nil }, packs.Limits{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.receive(); err != nil || !c.whole(third) {
			t.Errorf("%v", err)
		}
		if got := a.trimmed(w.registered("c")); got != 0 {
			t.Errorf("a base that was just stored: %d packs were dropped", got)
		}
	})
}
