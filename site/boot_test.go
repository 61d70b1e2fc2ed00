package site_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// rebooted makes the state that of a boot of the machine before this one.
func (g *guard) rebooted() {
	g.tb.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, "state", "boot"), []byte("another\n"), 0o600); err != nil {
		g.tb.Fatal(err)
	}
}

// lock leaves a lock file of git's.
func (g *guard) lock(name string) string {
	g.tb.Helper()
	path := filepath.Join(g.repo, name)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		g.tb.Fatal(err)
	}
	return path
}

func there(path string) bool { _, err := os.Lstat(path); return err == nil }

// left is a site that a crash of the machine has left: git's lock files are there, and
// refs hold older values than the database.
func left(t *testing.T) (g *guard, locks []string) {
	t.Helper()
	g = newGuard(t, local.SQLite(t), "eu-1")
	sitetest.Eventually(t, "the boot is recorded", func() bool { return there(filepath.Join(g.dir, "state", "boot")) })
	g.halt()
	g.set("refs/heads/x", g.commit[1])
	g.git("-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/x", g.commit[0])
	g.set("refs/heads/gone", g.commit[0])
	for ref, value := range map[string]refdb.Value{
		"refs/heads/gone": refdb.Deleted,
		"refs/heads/far":  "1111111111111111111111111111111111111111", // its objects are at another site
	} {
		if _, err := g.db.Put(t.Context(), "team/app", ref, value); err != nil {
			t.Fatal(err)
		}
	}
	return g, []string{g.lock("refs/heads/x.lock"), g.lock("packed-refs.lock")}
}

func TestAfterABootASiteCleansUpAndCatchesUpByItself(t *testing.T) {
	t.Parallel()
	g, locks := left(t)
	g.rebooted()
	g.start()
	for _, path := range locks {
		if there(path) {
			t.Errorf("%s is still there", filepath.Base(path))
		}
	}
	sitetest.Eventually(t, "the refs have their global values", func() bool {
		return g.local("refs/heads/x") == g.commit[1] && g.local("refs/heads/gone") == "" && g.local("refs/heads/far") == ""
	})
	sitetest.Eventually(t, "the boot is recorded", func() bool {
		b, err := os.ReadFile(filepath.Join(g.dir, "state", "boot"))
		return err == nil && !strings.Contains(string(b), "another")
	})
	// From then on pushes go on.
	g.git("update-ref", "refs/heads/x", g.commit[2])
	g.has("refs/heads/x", g.commit[2], g.commit[2])
}

// One project's rules can't be read, as those of a later version: the other repositories don't wait for it.
func TestAfterABootOneRepositoryThatFailsStopsNoOther(t *testing.T) {
	t.Parallel()
	g, _ := left(t)
	g.newRepository("a/first")
	row, err := g.db.Projects().Put(t.Context(), driver.Project{Project: "a/first", ID: "x", Rules: "later refs/*", Mode: config.Enforce})
	if err != nil {
		t.Fatal(err)
	}
	g.rebooted()
	g.start()
	sitetest.Eventually(t, "the ref has its global value", func() bool { return g.local("refs/heads/x") == g.commit[1] })
	boot := filepath.Join(g.dir, "state", "boot")
	if b, err := os.ReadFile(boot); err != nil || !strings.Contains(string(b), "another") {
		t.Errorf("the boot is recorded while the refs of a repository may be old: %q, %v", b, err)
	}
	row.Rules = "ref refs/*"
	if _, err := g.db.Projects().Put(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	sitetest.Eventually(t, "the boot is recorded", func() bool {
		b, err := os.ReadFile(boot)
		return err == nil && !strings.Contains(string(b), "another")
	})
}

func TestARestartWithoutABootLeavesLockFilesAlone(t *testing.T) {
	t.Parallel()
	g, locks := left(t)
	g.start()
	for _, path := range locks {
		if !there(path) {
			t.Errorf("%s is gone", filepath.Base(path))
		}
	}
}

// A git that runs when the daemon starts for the first time may have made the lock file.
func TestAfterABootTheLockFilesOfARunningGitStay(t *testing.T) {
	t.Parallel()
	g, locks := left(t)
	s := g.session()
	s.must("start")
	g.rebooted()
	g.limits = func(d *site.Daemon) { d.SetLockPatience(200 * time.Millisecond) }
	g.start()
	if !there(locks[0]) {
		t.Error("it is gone")
	}
	s.close()
}

// Without the database it catches up once that is back.
func TestAfterABootASiteCatchesUpOnceTheDatabaseAnswers(t *testing.T) {
	t.Parallel()
	g, locks := left(t)
	g.rebooted()
	down := g.unplug()
	down.Store(true)
	g.start()
	if there(locks[0]) {
		t.Error("the lock file is still there")
	}
	down.Store(false)
	sitetest.Eventually(t, "the ref has its global value", func() bool { return g.local("refs/heads/x") == g.commit[1] })
}

// A ref whose file a power cut has emptied can't be moved by git, or read.
func TestAfterABootARefWithoutAValueHasThatOfTheDatabase(t *testing.T) {
	t.Parallel()
	g, _ := left(t)
	if err := os.WriteFile(filepath.Join(g.repo, "refs/heads/x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	g.rebooted()
	g.start()
	sitetest.Eventually(t, "the ref has its global value", func() bool { return g.local("refs/heads/x") == g.commit[1] })
	g.git("update-ref", "refs/heads/x", g.commit[2])
	g.has("refs/heads/x", g.commit[2], g.commit[2])
}
