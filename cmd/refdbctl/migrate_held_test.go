package main

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestMigrateDownCountsWhatGoes(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.All() {
		t.Run(string(kind.Dialect), func(t *testing.T) {
			t.Parallel()
			db := kind.New(t)
			w := &world{Database: db, env: map[string]string{"REFDB_URL": db.URL()}}
			w.InsertRef(t, "p", mainRef, refdb.Value(id("a")))
			w.InsertRef(t, "p", "refs/heads/b", refdb.Value(id("a")))
			w.InsertRef(t, "q", mainRef, refdb.Value(id("a")))
			w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: mainRef, Owner: "dead", Age: time.Hour})
			w.run(t, "migrate", "down", "--all", "--dry-run").is(t, exit.OK, "the database has 3 refs in 2 projects, deleted ones included, and 1 lock of 1 holder")
		})
	}
}

func TestTheSchemaIsNotTakenFromUnderALock(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.All() {
		t.Run(string(kind.Dialect), func(t *testing.T) {
			t.Parallel()
			db := kind.New(t)
			w := &world{Database: db, env: map[string]string{"REFDB_URL": db.URL()}}
			// A stale lock has no holder.
			w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: "refs/heads/stale", Owner: "dead", Age: time.Hour})
			lock, err := w.open(t).TryLock(t.Context(), "p", mainRef)
			if err != nil {
				t.Fatal(err)
			}
			for _, args := range []string{"migrate down --yes", "migrate down --all --yes", "migrate down --dry-run"} {
				r := w.run(t, strings.Fields(args)...)
				r.is(t, exit.Locked, "locked: p "+mainRef+" by "+lock.Owner())
				r.isOneLine(t)
			}
			if err := lock.Err(); err != nil {
				t.Error(err)
			}
			w.do(t, "migrate", "down", "--dry-run", "--force")
			if err := lock.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.do(t, "migrate", "down", "--dry-run")
			if kind.Dialect == "sqlite" {
				w.do(t, "migrate", "down", "--yes")
				w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: mainRef, Owner: "eu-1/1"})
				w.run(t, "migrate", "down", "--all", "--yes").is(t, exit.Locked, "locked: p "+mainRef+" by eu-1/1")
				w.do(t, "migrate", "down", "--all", "--yes", "--force")
			}
		})
	}
}
