package refdb_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
)

func inMemory(t *testing.T) *refdb.DB {
	t.Helper()
	db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "a"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func create(t *testing.T, db *refdb.DB, refs ...string) {
	t.Helper()
	var updates []refdb.Update
	for _, ref := range refs {
		updates = append(updates, refdb.Update{Ref: ref, New: oldMain})
	}
	if err := db.Update(t.Context(), "p", updates); err != nil {
		t.Fatal(err)
	}
}

func TestAFollowerIsListedWithHowFarItHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := inMemory(t)
		for range 2 { // the second time it has come further
			create(t, db, fmt.Sprint("refs/heads/", time.Now().Unix()))
			end, err := db.HistoryEnd(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Followers().Put(t.Context(), "mirror of o'brien", end); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			all, err := db.Followers().All(t.Context())
			if err != nil || len(all) != 1 || all[0].Name != "mirror of o'brien" || all[0].Cursor != end.String() || all[0].Read != end.Position() || all[0].Age != time.Minute {
				t.Errorf("%+v, %v; want %d", all, err, end.Position())
			}
		}
		for _, want := range []bool{true, false} {
			if found, err := db.Followers().Remove(t.Context(), "mirror of o'brien"); found != want || err != nil {
				t.Errorf("removed: %t, %v", found, err)
			}
		}
		if all, err := db.Followers().All(t.Context()); len(all) != 0 || err != nil {
			t.Errorf("left: %+v, %v", all, err)
		}
	})
}

func TestAFollowersNameIsCheckedBeforeTheDatabaseIsAsked(t *testing.T) {
	db := inMemory(t)
	for _, name := range []string{"", "\xff", "a\nb", "a\x00", strings.Repeat("x", 201)} {
		_, removing := db.Followers().Remove(t.Context(), name)
		for _, err := range []error{db.Followers().Put(t.Context(), name, refdb.Cursor{}), removing} {
			if !errors.Is(err, refdb.ErrInvalid) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	if err := db.Followers().Put(t.Context(), strings.Repeat("x", 200), refdb.Cursor{}); err != nil {
		t.Error(err)
	}
}

// What a follower that has read nothing, or stopped among the changes of one transaction, has not
// read stays.
func TestWhatAFollowerHasNotReadIsNotPruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for stopped, left := range map[int]int{-1: 5, 0: 5, 1: 4, 2: 4, 3: 4, 4: 0} {
			db := inMemory(t)
			create(t, db, "refs/heads/a")
			create(t, db, "refs/heads/b", "refs/heads/c", "refs/heads/d", "refs/heads/e")
			var cursor refdb.Cursor
			if stopped >= 0 {
				cursor = readOnce(t, db, refdb.Cursor{}).CursorAfter(stopped)
			}
			if err := db.Followers().Put(t.Context(), "f", cursor); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			if _, err := db.Operator().PruneHistory(t.Context(), operator.PruneOptions{OlderThan: time.Minute}); err != nil {
				t.Fatal(err)
			}
			n := 0
			for range db.History(t.Context(), "p", "") {
				n++
			}
			if n != left {
				t.Errorf("after change %d: %d are left, want %d", stopped, n, left)
			}
		}
	})
}

func readOnce(t *testing.T, db *refdb.DB, after refdb.Cursor) refdb.Changes {
	t.Helper()
	for c, err := range db.Changes(t.Context(), refdb.ChangeQuery{After: after}) {
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	return refdb.Changes{}
}

func TestAReaderThatStopsAmongChangesGoesOnWithTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := inMemory(t)
		create(t, db, "refs/heads/a")
		create(t, db, "refs/heads/b", "refs/heads/c")
		all := readOnce(t, db, refdb.Cursor{})
		if len(all.Changes) != 3 {
			t.Fatalf("%+v", all.Changes)
		}
		create(t, db, "refs/heads/d")
		for i, next := range []string{"refs/heads/b", "refs/heads/c", "refs/heads/d"} {
			cursor, err := refdb.ParseCursor(all.CursorAfter(i).String())
			if err != nil {
				t.Fatal(err)
			}
			if got := readOnce(t, db, cursor); len(got.Changes) != 3-i || got.Changes[0].Ref != next {
				t.Errorf("after change %d: %+v", i, got.Changes)
			}
		}
	})
}
