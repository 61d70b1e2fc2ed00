package main

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestTheSchemaIsNotTakenFromUnderALock(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.All() {
		t.Run(string(kind.Dialect), func(t *testing.T) {
			t.Parallel()
			db := kind.New(t)
			w := &world{Database: db, env: map[string]string{"REFDB_URL": db.URL()}}
			// A stale lock is nobody's.
			w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: "refs/heads/stale", Owner: "dead", Age: time.Hour})
			lock, err := w.open(t).TryLock(t.Context(), "p", mainRef)
			if err != nil {
				t.Fatal(err)
			}
			for _, args := range []string{"migrate down --yes", "migrate down --all --yes", "migrate down --dry-run"} {
				r := w.run(t, strings.Fields(args)...)
				r.is(t, exitLocked, "locked: p "+mainRef+" by "+lock.Owner())
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
				// Its locks can't be looked at any more.
				w.run(t, "migrate", "down", "--yes").is(t, exitError, "--force")
				w.do(t, "migrate", "down", "--all", "--yes", "--force")
			}
		})
	}
}
