package main

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Sites know by its row that a project was removed.
func TestARemovedProjectsRowSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := w.open(t)
	if _, err := db.Projects().Put(t.Context(), driver.Project{Project: "p", ID: "id", Rules: "ref *", Mode: "enforce", Store: "all"}); err != nil {
		t.Fatal(err)
	}
	row := func() driver.Project {
		t.Helper()
		p, _, err := db.Projects().Get(t.Context(), "p")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	w.InsertRef(t, "p", mainRef, refdb.Value(id("a")))
	lock, err := db.TryLock(t.Context(), "p", mainRef)
	if err != nil {
		t.Fatal(err)
	}
	w.run(t, "project", "remove", "p", "--yes").is(t, exit.Locked, "nothing was done")
	w.do(t, "project", "remove", "p", "--dry-run", "--force")
	if p := row(); p.Mode != "enforce" || p.Store != "all" {
		t.Errorf("after refusals: %+v", p)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.do(t, "project", "remove", "p", "--yes"); got != "removed 1 ref of p\n" {
		t.Error(got)
	}
	removed := row()
	if removed.Mode != "removed" || removed.Store != "" || removed.ID != "id" {
		t.Errorf("removed: %+v", removed)
	}
	w.run(t, "project", "remove", "p", "--yes").is(t, exit.Failed, "no such project")
	w.run(t, "project", "set", "p", "--mode", "enforce").is(t, exit.Failed, "was removed")
	// What a site let through that had not heard of it.
	w.InsertRef(t, "p", mainRef, refdb.Value(id("b")))
	w.do(t, "project", "remove", "p", "--yes")
	if p := row(); p.Mode != "removed" || p.Revision <= removed.Revision {
		t.Errorf("removed again: %+v, before %+v", p, removed)
	}
	// A project that has a row alone can be removed, too.
	if _, err := db.Projects().Put(t.Context(), driver.Project{Project: "empty", ID: "id2", Rules: "ref *", Mode: "enforce"}); err != nil {
		t.Fatal(err)
	}
	if got := w.do(t, "project", "remove", "empty", "--yes"); got != "removed 0 refs of empty\n" {
		t.Error(got)
	}
}
