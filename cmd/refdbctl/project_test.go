package main

import (
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
)

type projectJSON struct {
	Project              string
	Refs, Deleted, Locks *int
	Changed              *time.Time
}

func TestProjectsAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if got := w.do(t, "project", "list", "-o", "json"); len(decode[[]projectJSON](t, got)) != 0 {
		t.Errorf("an empty database: %s", got)
	}
	w.InsertRef(t, "b/c", mainRef, refdb.Value(id("a")))
	w.InsertRef(t, "b", mainRef, refdb.Value(id("a")))
	w.InsertRef(t, "b", "refs/heads/new", refdb.Value(id("a")))
	w.InsertRef(t, "b", "refs/heads/gone", refdb.Deleted)
	w.InsertLock(t, refdb.LockInfo{Project: "b", Ref: mainRef, Owner: "o", Age: time.Hour})
	w.InsertLock(t, refdb.LockInfo{Project: "a", Ref: mainRef, Owner: "o"})

	all := decode[[]projectJSON](t, w.do(t, "project", "list", "-o", "json"))
	for i, want := range []struct {
		name                 string
		refs, deleted, locks int
		changed              bool
	}{{"a", 0, 0, 1, false}, {"b", 2, 1, 1, true}, {"b/c", 1, 0, 0, true}} {
		if len(all) != 3 {
			t.Fatalf("%+v", all)
		}
		if p := all[i]; p.Project != want.name || *p.Refs != want.refs || *p.Deleted != want.deleted || *p.Locks != want.locks || (p.Changed != nil) != want.changed {
			t.Errorf("got %+v, want %+v", p, want)
		}
	}
	w.Exec(t, `UPDATE refs SET time = NULL`)
	if got, want := w.do(t, "project", "list", "-o", "csv"), "project,refs,deleted,locks,changed,frozen\na,0,0,1,,false\nb,2,1,1,,false\nb/c,1,0,0,,false\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := w.do(t, "project", "list"), "PROJECT  REFS  DELETED  LOCKS  CHANGED\n"; len(got) < len(want) || got[:7] != want[:7] {
		t.Errorf("got %q", got)
	}
}

func TestAMisspeltProjectIsNotResolved(t *testing.T) {
	t.Parallel()
	w := newIntents(t)
	for _, more := range []string{"--yes", "--dry-run"} {
		w.run(t, "locks", "resolve", "--project=pp", "--keep-old", "--reason=test", more).is(t, exit.Failed, "no such project: pp")
	}
	// One that is there has nothing to resolve.
	w.InsertRef(t, "calm", mainRef, refdb.Value(id("a")))
	w.run(t, "locks", "resolve", "--project=calm", "--keep-old", "--reason=test", "--yes").is(t, exit.OK, "nothing to resolve")
}
