package main

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
)

type planJSON struct {
	DatabaseVersion *uint `json:"database_version"`
	TargetVersion   *uint `json:"target_version"`
	DryRun          bool  `json:"dry_run"`
}

func TestDryRunsOfMigrationsTellTheTruth(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]string{
		"newer than this program's": `UPDATE refdb_schema SET version = 99`,
		"refdbctl migrate force":    `UPDATE refdb_schema SET dirty = 1`,
	} {
		w := newWorld(t)
		w.Exec(t, change)
		for _, flag := range []string{"--yes", "--dry-run"} {
			r := w.run(t, "migrate", "down", flag)
			r.is(t, exit.Failed, says)
			r.isOneLine(t)
		}
	}
	w := newWorld(t)
	for _, flag := range []string{"--yes", "--dry-run"} {
		w.run(t, "migrate", "force", "99", flag).is(t, exit.Failed, "the latest is")
	}
	latest := migrations.Latest(migrations.SQLite)
	for args, target := range map[string]uint{"down": latest - 1, "down --all": 0, "force 3": 3} {
		got := decode[planJSON](t, w.do(t, append(strings.Fields("migrate "+args), "--dry-run", "-o", "json")...))
		if got.DatabaseVersion == nil || *got.DatabaseVersion != latest || got.TargetVersion == nil || *got.TargetVersion != target || !got.DryRun {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

type removalJSON struct {
	Project string
	Removed *int
	DryRun  bool `json:"dry_run"`
}

func TestADryRunOfAProjectsRemovalTellsTheTruth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.InsertRef(t, "a", mainRef, refdb.Value(id("a")))
	got := decode[removalJSON](t, w.do(t, "project", "remove", "a", "--dry-run", "-o", "json"))
	if got.Project != "a" || got.Removed == nil || *got.Removed != 1 || !got.DryRun {
		t.Errorf("%+v", got)
	}
	lock, err := w.open(t).TryLock(t.Context(), "a", "refs/heads/x")
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"--yes", "--dry-run"} {
		r := w.run(t, "project", "remove", "a", flag)
		r.is(t, exit.Locked, "locked: a refs/heads/x by "+lock.Owner())
		r.isOneLine(t)
	}
	w.do(t, "project", "remove", "a", "--dry-run", "--force")
	if got := decode[removalJSON](t, w.do(t, "project", "remove", "a", "--yes", "--force", "-o", "json")); *got.Removed != 1 || got.DryRun {
		t.Errorf("%+v", got)
	}
}

func TestDryRunsSeeLocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t, mainRef, "refs/heads/locked")
	lock, err := w.open(t).TryLock(t.Context(), "p", "refs/heads/locked")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.importing(t, r, exit.Locked, "--dry-run"); got.Imported != 1 || got.Locked != 1 {
		t.Errorf("import: %+v", got)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.importing(t, r, exit.OK)
	if _, err := w.open(t).TryLock(t.Context(), "p", "refs/heads/locked"); err != nil {
		t.Fatal(err)
	}
	w.run(t, "refs", "delete", "p", "--prefix=refs/", "--dry-run").is(t, exit.Locked, "1 locked")
	if got := w.importing(t, newRepo(t), exit.Locked, "--prune", "--dry-run"); got.Pruned != 1 || got.Locked != 1 {
		t.Errorf("prune: %+v", got)
	}
}
