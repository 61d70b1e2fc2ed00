package site_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// Whether what a repository was recorded for was removed is known from the row, or from a record once the name is another project's.
func TestARemovedProjectsNameCanBeUsedAgain(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, dbtest.SQLite(t), "eu-1")
	ctx := t.Context()
	c, err := config.Load(ctx, g.config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Repository("team/app")
	if err != nil {
		t.Fatal(err)
	}
	register := func(says string, isNew bool) refdb.Project {
		t.Helper()
		_, err := projects.Register(ctx, c, g.db, r, isNew)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Fatalf("register: %v, want %q", err, says)
		}
		row, _, err := g.db.Project(ctx, "team/app")
		if err != nil {
			t.Fatal(err)
		}
		return row
	}
	wasRemoved := func(row refdb.Project, id string) bool {
		t.Helper()
		removed, err := projects.WasRemoved(ctx, g.db, row, id)
		if err != nil {
			t.Fatal(err)
		}
		return removed
	}
	pass := func() {
		t.Helper()
		g.shared.Exec(t, `UPDATE projects SET time = time - ?`, time.Minute.Microseconds())
	}

	first := g.project()
	if wasRemoved(first, first.ID) || wasRemoved(first, "another") || wasRemoved(first, "") {
		t.Error("removed before it was")
	}
	remove := func(row refdb.Project) refdb.Project {
		t.Helper()
		if _, marked, err := projects.Remove(ctx, g.db, row); err != nil || !marked {
			t.Fatal(marked, err)
		}
		return g.project()
	}
	row := remove(first)
	if row.Mode != config.Removed || row.Store != "" || !wasRemoved(row, first.ID) || wasRemoved(row, "another") {
		t.Fatalf("%+v", row)
	}

	// The same project again.
	register("was removed", false)
	register("has just been removed", true)
	pass()
	again := register("", true)
	if again.ID != first.ID || again.Mode != config.Enforce || wasRemoved(again, first.ID) {
		t.Errorf("%+v", again)
	}

	// Another one.
	// Who goes by a row that was changed since removes nothing.
	if _, err := g.db.Put(ctx, "team/app", "refs/heads/left", refdb.Value(g.commit[0])); err != nil {
		t.Fatal(err)
	}
	if _, marked, err := projects.Remove(ctx, g.db, row); !errors.Is(err, refdb.ErrMismatch) || marked {
		t.Errorf("a removal by an old row: %v, %v", marked, err)
	}
	if left := g.global("refs/heads/left"); left != g.commit[0] {
		t.Errorf("it has removed a ref: %q", left)
	}
	remove(again)
	pass()
	g.git("config", "--unset", "refdb.projectid")
	if _, err := g.db.Put(ctx, "team/app", "refs/heads/left", refdb.Value(g.commit[0])); err != nil {
		t.Fatal(err)
	}
	register("still has refs of the removed project", true)
	remove(g.project())
	register("has just been removed", true)
	pass()
	intent, err := g.db.Prepare(ctx, "team/app", []refdb.Update{{Ref: "refs/heads/left", New: refdb.Value(g.commit[0])}}, "agent")
	if err != nil {
		t.Fatal(err)
	}
	register("a push of refs/heads/left of the removed project team/app by", true)
	if err := g.db.Finish(ctx, intent, nil, []string{"refs/heads/left"}); err != nil {
		t.Fatal(err)
	}
	g.loose("refs/heads/main", g.commit[0])
	register("the project team/app was removed, but this repository has refs", false)
	other := register("", true)
	if other.ID == first.ID || wasRemoved(other, other.ID) || !wasRemoved(other, first.ID) || wasRemoved(other, "another") {
		t.Errorf("%+v", other)
	}
	other.Project = "team/other"
	if wasRemoved(other, first.ID) {
		t.Error("a project of another name was removed")
	}
}

// What was moved aside is deleted by the database's clock, and nothing else.
func TestRepositoriesOfRemovedProjectsAreDeletedAfter30Days(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, dbtest.SQLite(t), "eu-1")
	dir := filepath.Join(g.dir, "removed")
	const day = 24 * time.Hour
	name := func(ago time.Duration) string {
		return time.Now().UTC().Add(-ago).Format("refdb-removed-20060102T150405Z")
	}
	old, young := name(30*day+time.Minute), name(30*day-time.Minute)
	for _, sub := range []string{old + "/team/app.git", young + "/team/app.git", "mine", "20200101T000000Z"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// This machine's clock would have made it then.
	recent := name(40 * day)
	for sub, made := range map[string]time.Time{old: time.Now().Add(-31 * day), young: time.Now().Add(-31 * day), recent: time.Now()} {
		path := filepath.Join(dir, sub)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chtimes(path, made, made)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(g.config)
	if err == nil {
		err = os.WriteFile(g.config, append(text, "\n[site]\n\troot = "+filepath.Dir(filepath.Dir(g.repo))+"\n\tfollowRemoval = "+dir+"\n"...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.start()
	sitetest.Eventually(t, "the old one is deleted", func() bool {
		_, err := os.Lstat(filepath.Join(dir, old))
		return os.IsNotExist(err)
	})
	for _, left := range []string{young + "/team/app.git", recent, "mine", "20200101T000000Z"} {
		if _, err := os.Lstat(filepath.Join(dir, left)); err != nil {
			t.Error(err)
		}
	}
}
