package locking

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

func newDB(tb testing.TB) *refdb.DB {
	tb.Helper()
	db, err := refdb.New(memory.New().Open(), refdb.Options{Site: "here"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

func acquire(tb testing.TB, r Request) Hold {
	tb.Helper()
	h, err := r.Try(tb.Context(), newDB(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// variable returns the value of a variable, and whether it is set once.
func variable(e Environment, name string) (value string, ok bool) {
	n := 0
	for _, v := range e.Vars {
		if rest, found := strings.CutPrefix(v, name+"="); found {
			value = rest
			n++
		}
	}
	return value, n == 1
}

func TestTheEnvironmentDescribesTheHold(t *testing.T) {
	t.Setenv("REFDB_PROJECT", "of an enclosing lock")
	t.Setenv("REFDB_REFS_FILE", "of an enclosing lock")
	h := acquire(t, Locks{"p", []string{"refs/heads/b", "refs/heads/a"}})
	e, err := EnvironmentOf(h, "there/1 5", "sqlite:x")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"REFDB_PROJECT": "p", "REFDB_REFS": "refs/heads/a\nrefs/heads/b", "REFDB_TOKEN": fmt.Sprint(int64(h.Token())), "REFDB_OWNER": h.Owner(),
		"REFDB_URL": "sqlite:x", UnderVar: "there/1 5\n" + Name(h.Owner(), h.Token()), "PATH": os.Getenv("PATH"),
	} {
		if got, ok := variable(e, name); got != want || !ok {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if file, ok := variable(e, "REFDB_REFS_FILE"); ok {
		t.Errorf("the refs are in %s, too", file)
	}
}

func TestManyRefsAreInAFile(t *testing.T) {
	t.Setenv("REFDB_REFS", "of an enclosing lock")
	var refs []string
	for i := range 1500 {
		refs = append(refs, fmt.Sprintf("refs/heads/%s/%04d", strings.Repeat("x", 40), i))
	}
	e, err := EnvironmentOf(acquire(t, Locks{"p", refs}), "", "")
	if err != nil {
		t.Fatal(err)
	}
	file, _ := variable(e, "REFDB_REFS_FILE")
	if text, err := os.ReadFile(file); err != nil || string(text) != strings.Join(refs, "\n")+"\n" {
		t.Errorf("%v: %d bytes", err, len(text))
	}
	if _, ok := variable(e, "REFDB_REFS"); ok {
		t.Error("the enclosing lock's refs are passed on")
	}
	e.Remove()
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
}

// A command that runs under a lease would wait for itself if another process waits in between.
func TestALeaseIsRefusedUnderItself(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	outer, err := Lease{Project: "p", Name: "nightly", Mode: lease.Shared}.Try(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	under := []string{Name(outer.Owner(), outer.Token())}
	var locked *refdb.LockedError
	_, err = Lease{Project: "p", Name: "nightly", Mode: lease.Shared, Under: under}.Try(t.Context(), db)
	if !errors.As(err, &locked) || !slices.Equal(outer.Refs(), []string{locked.Holders[0].Ref}) {
		t.Errorf("the same lease: %v", err)
	}
	for name, r := range map[string]Lease{
		"another lease":   {Project: "p", Name: "weekly", Mode: lease.Shared, Under: under},
		"another command": {Project: "p", Name: "nightly", Mode: lease.Shared, Under: []string{"there/1 5"}},
	} {
		h, err := r.Try(t.Context(), db)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := h.Release(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A refused request is no Hold: a nil pointer in the interface would look like one.
func TestARefusedRequestReturnsNoHold(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	for _, r := range []Request{Locks{"p", []string{"refs/heads/main"}}, Lease{Project: "p", Name: "n", Mode: lease.Exclusive}} {
		if _, err := r.Try(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		if h, err := r.Try(t.Context(), db); h != nil || !errors.Is(err, refdb.ErrLocked) {
			t.Errorf("%T: %v, %v", r, h, err)
		}
	}
}
