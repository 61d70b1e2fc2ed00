package main

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

type versionsJSON struct {
	DatabaseVersion *uint `json:"database_version"`
	ProgramVersion  *uint `json:"program_version"`
	Dirty           *bool
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	latest := migrations.Latest(migrations.SQLite)
	w := &world{env: map[string]string{"REFDB_URL": dbtest.SQLiteEmpty(t)}}
	check := func(want uint) {
		t.Helper()
		v := decode[versionsJSON](t, w.do(t, "migrate", "version", "-o", "json"))
		if v.DatabaseVersion == nil || v.ProgramVersion == nil || v.Dirty == nil ||
			*v.DatabaseVersion != want || *v.ProgramVersion != latest || *v.Dirty {
			t.Errorf("want version %d, got %+v", want, v)
		}
	}
	step := func(want, says string, args ...string) {
		t.Helper()
		r := w.run(t, args...)
		if r.is(t, exit.OK, says); r.out != want {
			t.Errorf("%v prints %q, want %q", args, r.out, want)
		}
	}
	check(0)
	step("schema is at version 0 already\n", "", "migrate", "down", "--yes")
	step("schema version 0 -> 12\n", "", "migrate", "up")
	check(latest)
	step("schema is at version 12 already\n", "", "migrate", "up")
	w.do(t, "refs", "put", "p", mainRef, id("a"), "--old=none")
	step("", "schema version 12 -> 11: what newer versions added", "migrate", "down", "--dry-run")
	check(latest)
	step("schema version 12 -> 11\n", "", "migrate", "down", "--yes")
	w.do(t, "refs", "get", "p", mainRef) // the version before is served
	step("schema version 11 -> 10\n", "", "migrate", "down", "--yes")
	w.run(t, "refs", "list", "p").is(t, exit.Failed, "refdbctl migrate up")
	step("schema version 10 -> 12\n", "", "migrate", "up")
	w.do(t, "refs", "get", "p", mainRef)
	step("", "ALL REFS AND LOCKS", "migrate", "down", "--all", "--dry-run")
	step("schema version 12 -> 0\n", "", "migrate", "down", "--all", "--yes")
	check(0)
}

func TestAHalfMigratedSchemaIsForced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(t, `UPDATE refdb_schema SET dirty = 1`)
	for _, args := range [][]string{{"migrate", "up"}, {"refs", "list", "p"}} {
		r := w.run(t, args...)
		r.is(t, exit.Failed, "refdbctl migrate force")
		r.isOneLine(t)
	}
	w.run(t, "migrate", "force", "99", "--yes").is(t, exit.Failed, "the latest is")
	w.run(t, "migrate", "force", "1", "--dry-run").is(t, exit.OK, "recorded as version 12, dirty: true")
	w.do(t, "migrate", "force", "12", "--dry-run")
	w.run(t, "refs", "list", "p").is(t, exit.Failed, "force")
	if r := w.run(t, "migrate", "force", "12", "--yes"); r.code != exit.OK {
		t.Error(r)
	}
	w.run(t, "refs", "list", "p").is(t, exit.Failed, "no such project")
}

func TestMigrateUpAdoptsThePluginsTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.InsertRef(t, "p", mainRef, refdb.Value(id("a")))
	w.do(t, "migrate", "down", "--yes")
	w.do(t, "migrate", "up")
	if got := w.do(t, "refs", "get", "p", mainRef); got != id("a")+"\n" {
		t.Errorf("got %q", got)
	}
}
