package site_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// Whether what a repository was recorded for was removed is known from the row, or from a record once the name is another project's.
func TestARemovedProjectsNameCanBeUsedAgain(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	ctx := t.Context()
	c, err := config.Load(ctx, g.config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Repository("team/app")
	if err != nil {
		t.Fatal(err)
	}
	register := func(says string, claim projects.Claim) driver.Project {
		t.Helper()
		_, err := projects.Register(ctx, c, g.db, r, claim)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Fatalf("register: %v, want %q", err, says)
		}
		row, _, err := g.db.Projects().Get(ctx, "team/app")
		if err != nil {
			t.Fatal(err)
		}
		return row
	}
	wasRemoved := func(row driver.Project, id string) bool {
		t.Helper()
		removed, err := projects.WasRemoved(ctx, g.db, row, id)
		if err != nil {
			t.Fatal(err)
		}
		return removed
	}
	pass := func() {
		t.Helper()
		g.shared.Exec(t, `UPDATE projects SET time = time - ?`, time.Hour.Microseconds())
	}

	first := g.project()
	if wasRemoved(first, first.ID) || wasRemoved(first, "another") || wasRemoved(first, "") {
		t.Error("removed before it was")
	}
	remove := func(row driver.Project) driver.Project {
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
	register("was removed", projects.NoClaim)
	g.justRemoved()
	register("has just been removed", projects.New)
	pass()
	again := register("", projects.New)
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
	register("still has refs of the removed project", projects.New)
	remove(g.project())
	g.justRemoved()
	register("has just been removed", projects.New)
	pass()
	intent, err := g.db.Intents().Prepare(ctx, "team/app", []refdb.Update{{Ref: "refs/heads/left", New: refdb.Value(g.commit[0])}}, "agent")
	if err != nil {
		t.Fatal(err)
	}
	register("a push of refs/heads/left of the removed project team/app by", projects.New)
	if err := g.db.Intents().Finish(ctx, intent, nil, []string{"refs/heads/left"}); err != nil {
		t.Fatal(err)
	}
	g.loose("refs/heads/main", g.commit[0])
	register("the project team/app was removed, but this repository has refs", projects.NoClaim)
	other := register("", projects.New)
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
	g := idleGuard(t, local.SQLite(t), "eu-1")
	dir := filepath.Join(g.dir, "removed")
	const day = 24 * time.Hour
	name := func(ago time.Duration) string {
		return time.Now().UTC().Add(-ago).Format("refdb-removed-20060102T150405Z")
	}
	old, young := name(30*day+time.Hour), name(30*day-time.Hour)
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
	g.followsRemovals(dir)
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

func TestTheLogSaysOfWhichClassAFailedDeletionIs(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	g.followsRemovals(filepath.Join(g.dir, "not", "there"))
	g.start()
	sitetest.Eventually(t, "the log says so", func() bool {
		return strings.Contains(g.log.String(), `could not be deleted: check site.followRemoval" class=permanent`)
	})
}

// followsRemovals lets the daemon, which does not run yet, move repositories of removed projects to dir.
func (g *guard) followsRemovals(dir string) {
	g.tb.Helper()
	text, err := os.ReadFile(g.config)
	if err == nil {
		err = os.WriteFile(g.config, append(text, "\n[site]\n\tfollowRemoval = "+dir+"\n"...), 0o600)
	}
	if err != nil {
		g.tb.Fatal(err)
	}
}

// A repository goes only if nothing is lost with it, whatever the daemon knows of the project.
func TestTheRepositoryOfARemovedProjectStaysIfSomethingWouldBeLost(t *testing.T) {
	t.Parallel()
	remove := func(g *guard) {
		g.tb.Helper()
		if _, _, err := projects.Remove(g.tb.Context(), g.db, g.project()); err != nil {
			g.tb.Fatal(err)
		}
	}
	// succeeded gives the name to another project, with rules.
	succeeded := func(rules string) func(*guard) {
		return func(g *guard) {
			g.tb.Helper()
			old := g.project()
			remove(g)
			row := g.project()
			row.ID, row.Mode, row.Rules = "another", config.Enforce, rules
			if _, err := g.db.Put(g.tb.Context(), presence.Project, "refs/removed/"+old.ID, "project team/app"); err != nil {
				g.tb.Fatal(err)
			}
			if _, err := g.db.Projects().Put(g.tb.Context(), row); err != nil {
				g.tb.Fatal(err)
			}
		}
	}
	const ref = "refs/heads/main"
	unknown := func(g *guard) { g.loose(ref, g.commit[0]) }
	known := func(g *guard) {
		unknown(g)
		if _, err := g.db.Put(g.tb.Context(), "team/app", ref, refdb.Value(g.commit[0])); err != nil {
			g.tb.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		has  func(*guard)
		then func(*guard)
		stay string // why; "" if it goes
	}{
		{"a value that the history has", known, remove, ""},
		{"one that it has, of an earlier project", known, succeeded("ref refs/tags/*"), ""},
		{"one that it does not have", unknown, remove, ref + " has a value that the database never had"},
		{"one that rules leave out", unknown, func(g *guard) { g.setRules("ref refs/tags/*"); remove(g) }, ""},
		{"one that only the rules of its successor leave out", unknown, succeeded("ref refs/tags/*"), ref + " has a value that the database never had"},
		{"rules that can't be read", unknown, func(g *guard) { g.setRules("some refs/tags/*"); remove(g) }, "is of no known kind"},
		{"a ref that was written since", known, func(g *guard) { remove(g); known(g) }, "project remove team/app` again"},
		{"another repository in it", func(g *guard) { known(g); g.newRepository("team/app.git/inner") }, remove, "there is a repository within it"},
		{"a directory that is not there", known, func(g *guard) {
			remove(g)
			if err := os.Remove(filepath.Join(g.dir, "removed")); err != nil {
				g.tb.Fatal(err)
			}
		}, ""},
		{"a directory in one that is not there", func(g *guard) { known(g); g.followsRemovals(filepath.Join(g.dir, "not", "there")) }, remove, "make the directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := idleGuard(t, local.SQLite(t), "eu-1")
			dir := filepath.Join(g.dir, "removed")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			g.followsRemovals(dir)
			c.has(g)
			c.then(g)
			g.shared.Exec(t, `UPDATE projects SET time = time - ?`, time.Hour.Microseconds()) // no push goes by an earlier row
			g.start()
			if c.stay == "" {
				sitetest.Eventually(t, "it goes", func() bool {
					found, err := filepath.Glob(filepath.Join(dir, "refdb-removed-*Z/team/app.git/HEAD"))
					return err == nil && len(found) == 1
				})
				return
			}
			sitetest.Eventually(t, "the status says why it stays", func() bool {
				behind := g.status().Behind
				return len(behind) == 1 && strings.Contains(behind[0].Reason, c.stay)
			})
			if _, err := os.Stat(g.repo); err != nil {
				t.Error(err)
			}
		})
	}
}

// A site that let pushes through may still do so: the project can't begin where it refuses what the database does not agree to.
func TestAProjectThatIsBroughtBackWhileASiteRefusesNothingIsInModeLog(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	logs(g)
	if err := g.halt(); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if _, _, err := projects.Remove(ctx, g.db, g.project()); err != nil {
		t.Fatal(err)
	}
	g.shared.Exec(t, `UPDATE projects SET time = time - ?`, time.Minute.Microseconds())
	g.register("team/app")
	if row := g.project(); row.Mode != config.Log || row.Store != "" {
		t.Errorf("%+v", row)
	}
}

// A slowRemoval is a database in which the first chunk of a removal takes until it is told to go on.
type slowRemoval struct {
	refdb.Driver
	begun, goOn chan struct{}
}

func (d *slowRemoval) Unwrap() refdb.Driver { return d.Driver }

func (d *slowRemoval) Remove(ctx context.Context, r driver.RemoveRequest) (int, error) {
	select {
	case d.begun <- struct{}{}:
		select {
		case <-d.goOn:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	default:
	}
	return d.Driver.Remove(ctx, r)
}

// While a removal goes on, the project's name does not get old enough to be used again; and if the row is changed all the same, it ends.
func TestARemovalKeepsTheNameUntilItHasEnded(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	if _, err := g.db.Put(t.Context(), "team/app", "refs/heads/main", refdb.Value(g.commit[0])); err != nil {
		t.Fatal(err)
	}
	slow := &slowRemoval{g.shared.Open(t), make(chan struct{}, 1), make(chan struct{})}
	db, err := refdb.New(slow, refdb.Options{Site: "operator"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ended := make(chan error, 1)
	row := g.project()
	go func() {
		_, _, err := projects.Remove(t.Context(), db, row)
		ended <- err
	}()
	<-slow.begun
	first := g.project()
	sitetest.Eventually(t, "the row is marked again", func() bool { return g.project().Revision > first.Revision })
	back := g.project()
	back.Mode = config.Enforce
	if _, err := g.db.Projects().Put(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, refdb.ErrMismatch) {
		t.Errorf("the removal ended with %v", err)
	}
	if got := g.global("refs/heads/main"); got != g.commit[0] {
		t.Errorf("a ref of the project that is there again is %q", got)
	}
}

// A broughtBack is a database in which a project is brought back when its intents are looked at.
type broughtBack struct {
	refdb.Driver
	project   string
	bringBack func()
}

func (d *broughtBack) Unwrap() refdb.Driver { return d.Driver }

func (d *broughtBack) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	if q.Project == d.project {
		d.bringBack()
	}
	return d.Driver.Intents(ctx, q)
}

func TestARepositoryStaysIfItsProjectIsBroughtBackMeanwhile(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	dir := filepath.Join(g.dir, "removed")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	g.followsRemovals(dir)
	if _, _, err := projects.Remove(t.Context(), g.db, g.project()); err != nil {
		t.Fatal(err)
	}
	removed := g.project()
	g.shared.Exec(t, `UPDATE projects SET time = time - ?`, time.Hour.Microseconds())
	looked := make(chan struct{})
	g.driver = func(d refdb.Driver) refdb.Driver {
		return &broughtBack{d, "team/app", sync.OnceFunc(func() {
			defer close(looked)
			back := removed
			back.Mode = config.Enforce
			if _, err := g.db.Projects().Put(t.Context(), back); err != nil {
				t.Error(err)
			}
		})}
	}
	g.start()
	select {
	case <-looked:
	case <-time.After(sitetest.Patience):
		t.Fatal("nobody looked whether the repository can go")
	}
	sitetest.Eventually(t, "the daemon has read that the project is there", func() bool {
		_, err := g.daemon.FollowRemoval(t.Context(), "team/app")
		return err == nil
	})
	if _, err := os.Stat(g.repo); err != nil {
		t.Error(err)
	}
}
