package main

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestEveryDatabaseIsServed(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.All() {
		t.Run(string(kind.Dialect), func(t *testing.T) {
			t.Run("without a schema", func(t *testing.T) {
				w := &world{env: map[string]string{"REFDB_URL": kind.Empty(t).URL()}}
				r := w.run(t, "refs", "list", "p")
				r.is(t, exit.Failed, "refdbctl migrate up")
				r.isOneLine(t)
				d := w.run(t, "doctor", "-o", "json")
				if d.code != exit.Failed || decode[doctorJSON](t, d.out).status("schema") != checkFail {
					t.Errorf("doctor: %+v", d)
				}
				w.do(t, "migrate", "up")
				v := decode[versionsJSON](t, w.do(t, "migrate", "version", "-o", "json"))
				if *v.DatabaseVersion != migrations.Latest(kind.Dialect) || *v.ProgramVersion != *v.DatabaseVersion || *v.Dirty {
					t.Errorf("version: %+v", v)
				}
				w.run(t, "refs", "list", "p").is(t, exit.Failed, "no such project")
			})
			t.Run("with one", func(t *testing.T) {
				db := kind.New(t)
				w := &world{Database: db, env: map[string]string{"REFDB_URL": db.URL(), "REFDB_SITE": "here"}}
				d := decode[doctorJSON](t, w.run(t, "doctor", "-o", "json").out)
				for _, name := range []string{"connect", "schema", "latency", "stale locks", "orphaned markers"} {
					if d.status(name) != checkOK {
						t.Errorf("doctor: %s in %+v", name, d)
					}
				}
				r := newRepo(t, branches(30)...)
				w.importing(t, r, exit.OK)
				w.verifying(t, r, exit.OK)
				w.run(t, "refs", "put", "p", "refs/heads/b00000", id("a"), "--old=none").is(t, exit.Mismatch, r.commit)
				w.do(t, "refs", "delete", "p", "refs/heads/b00000", "--old", r.commit)
				w.verifying(t, r, exit.Failed)

				if out := w.do(t, "lock", "p", mainRef, "--", "sh", "-c", "echo $REFDB_TOKEN"); len(out) < 10 {
					t.Errorf("token: %q", out)
				}
				w.isFree(t, mainRef)
				w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: mainRef, Owner: "dead", Age: time.Hour})
				if out := w.do(t, "locks", "purge", "--stale", "--yes", "-o", "json"); !strings.Contains(out, `"purged"`) {
					t.Errorf("purge: %s", out)
				}
				if out := w.do(t, "project", "remove", "p", "--yes", "-o", "json"); !strings.Contains(out, `"removed": 30`) {
					t.Errorf("remove: %s", out)
				}
			})
		})
	}
}
