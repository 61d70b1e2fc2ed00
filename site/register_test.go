package site_test

import (
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// Only those who store a base may say that the database keeps a project's objects: packs would build on what it lacks.
func TestTheDatabaseKeepsNoObjectsOfAProjectThatAPushRecords(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1", "[site]\n\tstore = all")
	g.git("config", "--unset", "refdb.projectid")
	g.set("refs/heads/from-before", g.commit[0])
	g.shared.Exec(t, `DELETE FROM projects`)
	g.start()
	g.git("update-ref", "refs/heads/x", g.commit[0])
	if row, ok, err := g.db.Projects().Get(t.Context(), "team/app"); err != nil || !ok || row.Store != "" {
		t.Errorf("%+v, %v, %v", row, ok, err)
	}
}

// A repository that git's template guards from the beginning is registered by its first push. It is empty: nothing is left to be stored.
func TestTheDatabaseKeepsTheObjectsOfARepositoryGuardedFromBirth(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]string{
		"[site]\n\tstore = all":                        config.StoreAll,
		"[site]\n\tstore = transit":                    config.StoreTransit,
		"[site]\n\tstore = none":                       "",
		"[site]\n\tstore = all\n[guard]\n\tmode = log": "",
	} {
		t.Run(settings, func(t *testing.T) {
			t.Parallel()
			g := idleGuard(t, local.SQLite(t), "eu-1", settings)
			client := g.client()
			g.repo = g.newRepository("born")
			g.start()
			if said, ok := client.push("c1:refs/heads/x"); !ok {
				t.Fatal(said)
			}
			if row := g.projectRow("born"); row.Store != want {
				t.Errorf("it keeps %q, want %q", row.Store, want)
			}
			page, err := g.db.Packs().Page(t.Context(), driver.PackQuery{Project: "born", Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			if want == "" {
				if len(page.Packs) > 0 {
					t.Errorf("it has %+v", page.Packs)
				}
				return
			}
			if len(page.Packs) != 1 || len(page.Packs[0].Prerequisites) > 0 || !slices.Equal(page.Packs[0].Tips, []string{g.commit[1]}) {
				t.Errorf("it has %+v, want a pack of all that the ref reaches", page.Packs)
			}
		})
	}
}

// What the database keeps of a new project's objects is decided when it is put under guard.
func TestANewProjectIsStoredAsConfigured(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]string{
		"[site]\n\tstore = all":                        config.StoreAll,
		"[site]\n\tstore = transit":                    config.StoreTransit,
		"[site]\n\tstore = none":                       "",
		"[site]\n\tstore = all\n[guard]\n\tmode = log": "",
	} {
		t.Run(settings, func(t *testing.T) {
			t.Parallel()
			g := idleGuard(t, local.SQLite(t), "eu-1", settings)
			g.git("config", "--unset", "refdb.projectid")
			g.shared.Exec(t, `DELETE FROM projects`)
			c, err := config.Load(t.Context(), g.config)
			if err != nil {
				t.Fatal(err)
			}
			r, err := c.Repository("team/app")
			if err == nil {
				_, err = projects.Register(t.Context(), c, g.db, r, projects.New)
			}
			if row, _, failed := g.db.Projects().Get(t.Context(), "team/app"); errors.Join(err, failed) != nil || row.Store != want {
				t.Errorf("it keeps %q: %v, %v", row.Store, err, failed)
			}
		})
	}
}

// A repository that can't record its project is not the database's fault.
func TestWhyAProjectCannotBeRecordedIsTold(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	g.git("config", "--unset", "refdb.projectid")
	g.shared.Exec(t, `DELETE FROM projects`)
	lock := filepath.Join(g.repo, "config.lock")
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g.start()
	said := g.fails("update-ref", "refs/heads/x", g.commit[0])
	sitetest.Contains(t, said, "could not lock config file")
	if strings.Contains(said, "database does not answer") {
		t.Errorf("git says %q", said)
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	g.git("update-ref", "refs/heads/x", g.commit[0])
}

// A file system's times are coarse: a configuration may change twice within one of them.
func TestAnIDThatChangesWithinTheTimesOfTheFileSystemIsSeen(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	row, _, err := g.db.Projects().Get(t.Context(), "team/app")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(g.repo, "config")
	var tick time.Time
	write := func(id string) {
		t.Helper()
		text, err := os.ReadFile(path)
		if err == nil {
			at := strings.Index(strings.ToLower(string(text)), "projectid = ") + len("projectid = ")
			err = os.WriteFile(path, append(append(text[:at:at], id...), text[at+len(id):]...), 0o600)
		}
		if err == nil {
			err = os.Chtimes(path, tick, tick)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(sitetest.Patience); ; {
		// As when the file is written between two ticks of the clock.
		tick = time.Now().Add(time.Second)
		write(row.ID)
		g.git("update-ref", "refs/heads/"+rand.Text(), g.commit[0])
		write(rand.Text())
		late := time.Since(tick) > time.Second // no file system gives two such times the same
		said, accepted := g.tries("refs/heads/")
		if !accepted {
			sitetest.Contains(t, said, "is not a copy of the project")
			return
		}
		if !late || time.Now().After(deadline) {
			t.Fatal("the project of another ID takes pushes")
		}
	}
}

// Of sites that enable a new project at once one makes its row, with its rules. The others have to say that they mean the same.
func TestOfSitesThatEnableAProjectAtOnceOneMakesIt(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	sites := []*guard{idleGuard(t, shared, "east", "[guard]\n\tref = refs/heads/*"), idleGuard(t, shared, "west")}
	for _, g := range sites {
		g.git("config", "--unset", "refdb.projectid")
	}
	shared.Exec(t, `DELETE FROM projects`)
	register := func(g *guard, claim projects.Claim) (string, error) {
		c, err := config.Load(t.Context(), g.config)
		if err != nil {
			return "", err
		}
		r, err := c.Repository("team/app")
		if err != nil {
			return "", err
		}
		return projects.Register(t.Context(), c, g.db, r, claim)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	created := 0
	for range 4 {
		for _, g := range sites {
			all.Go(func() {
				did, err := register(g, projects.New)
				mu.Lock()
				defer mu.Unlock()
				if err != nil && !strings.Contains(err.Error(), "could not lock config file") && !strings.Contains(err.Error(), "the project team/app already exists in the database") {
					t.Error(err)
				}
				if strings.HasSuffix(did, "is new") {
					created++
				}
			})
		}
	}
	all.Wait()
	row, ok, err := sites[0].db.Projects().Get(t.Context(), "team/app")
	// The one that made the row may be one that could not record it.
	if err != nil || !ok || created > 1 {
		t.Fatalf("%d rows were made: %v, %v", created, ok, err)
	}
	for _, g := range sites {
		if _, err := register(g, projects.Copy); err != nil {
			t.Error(err)
		}
		if got := g.git("config", "refdb.projectid"); got != row.ID {
			t.Errorf("%s records %s, not %s", g.name, got, row.ID)
		}
	}
}

// The database may be restored from a backup that is older than its projects.
func TestAProjectThatTheDatabaseLostIsMadeAnew(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	east, west := newGuard(t, shared, "east"), newGuard(t, shared, "west")
	for _, g := range []*guard{east, west} {
		g.git("update-ref", "refs/heads/"+g.name, g.commit[0])
	}
	row, _, err := east.db.Projects().Get(t.Context(), "team/app")
	if err != nil {
		t.Fatal(err)
	}
	shared.Exec(t, `DELETE FROM projects`)
	for _, g := range []*guard{east, west} {
		sitetest.Eventually(t, "the daemon has noticed", func() bool { said, ok := g.tries("refs/heads/"); return !ok && strings.Contains(said, "--new") })
	}
	enable := func(claim projects.Claim) (string, error) {
		t.Helper()
		c, err := config.Load(t.Context(), east.config)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Repository("team/app")
		if err != nil {
			t.Fatal(err)
		}
		return projects.Register(t.Context(), c, east.db, r, claim)
	}
	if did, err := enable(projects.NoClaim); err == nil || !strings.Contains(err.Error(), "--new") {
		t.Errorf("without a word: %q, %v", did, err)
	}
	if did, err := enable(projects.New); err != nil || did != row.ID+" is new" {
		t.Errorf("with it: %q, %v", did, err)
	}
	if did, err := enable(projects.New); err != nil || did != "is "+row.ID {
		t.Errorf("again: %q, %v", did, err)
	}
	for _, g := range []*guard{east, west} {
		sitetest.Eventually(t, "pushes go on", func() bool { _, ok := g.tries("refs/heads/"); return ok })
	}
}

// A copy of a repository, by whatever path, is not a second one of its project.
func TestACopyOfARepositoryIsRefused(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	g.git("update-ref", "refs/heads/x", g.commit[0])
	root, original := filepath.Join(g.dir, "git"), g.repo
	for _, to := range []string{"team/copy.git", "app.git", "deeper/team/app.git", "team/app.git.git", "team/App.git"} {
		g.repo = filepath.Join(root, to)
		if err := os.MkdirAll(filepath.Dir(g.repo), 0o755); err != nil {
			t.Fatal(err)
		}
		sitetest.Run(t, "", "cp", "-a", original, g.repo)
		for _, claim := range []projects.Claim{projects.NoClaim, projects.New, projects.Copy, projects.Named} {
			said := g.fails("update-ref", "refs/heads/new", g.commit[1])
			if !strings.Contains(said, "this repository is not a copy of the project") && !strings.Contains(said, "not a repository of this site") {
				t.Errorf("%s: git says %q", to, said)
			}
			c, err := config.Load(t.Context(), g.config)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := c.Find(g.repo); err == nil {
				if did, err := projects.Register(t.Context(), c, g.db, r, claim); err == nil {
					t.Errorf("%s: %s", to, did)
				}
			}
		}
	}
	// Of two repositories that could be the project none is.
	g.repo = filepath.Join(root, "team/app")
	sitetest.Run(t, "", "cp", "-a", original, g.repo)
	for _, repo := range []string{original, g.repo} {
		g.repo = repo
		sitetest.Contains(t, g.fails("update-ref", "refs/heads/new", g.commit[1]), "could be")
	}
	if err := os.RemoveAll(filepath.Join(root, "team/app")); err != nil {
		t.Fatal(err)
	}
	// A symbolic link is another way to the same.
	g.repo = filepath.Join(root, "link.git")
	if err := os.Symlink(original, g.repo); err != nil {
		t.Fatal(err)
	}
	g.git("update-ref", "refs/heads/linked", g.commit[1])
	for p, err := range g.db.Refs(t.Context(), "link", "") {
		t.Errorf("%v, %v", p, err)
	}
	g.has("refs/heads/linked", g.commit[1], g.commit[1])
	tree := filepath.Join(g.dir, "tree")
	g.git("worktree", "add", "--quiet", "-b", "there", tree, "linked")
	sitetest.Run(t, tree, "git", "update-ref", "refs/heads/there", g.commit[2])
	g.has("refs/heads/there", g.commit[2], g.commit[2])
}

// A repository that somebody has put at the path of a project is not moved to that one's values.
func TestAPushMakesNoCopyOfAProjectWithAnotherHistory(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	row := g.project()
	row.Store = config.StoreAll
	if _, err := g.db.Projects().Put(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	if _, err := g.db.Put(t.Context(), "team/app", "refs/heads/main", refdb.Value(strings.Repeat("a", 40))); err != nil {
		t.Fatal(err)
	}
	g.loose("refs/heads/main", g.commit[0])
	g.git("config", "--unset", "refdb.projectid")
	g.start()
	if said := g.fails("update-ref", "refs/heads/x", g.commit[1]); !strings.Contains(said, "it has another history than the project team/app") {
		t.Error(said)
	}
	if out, err := exec.Command("git", "--git-dir="+g.repo, "config", "refdb.projectid").Output(); err == nil {
		t.Errorf("it records ID %s", out)
	}
}
