package clone_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/clone"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// A target is site b, which has no repository of the project.
type target struct {
	*source
	config *config.Config
	db     *refdb.DB
	path   string // of the repository that is to be made
	daemon *site.Daemon
	log    sitetest.Buffer
}

// newTarget returns a site whose daemon does not run.
func newTarget(t *testing.T) *target {
	t.Helper()
	s := newSource(t, "all")
	first := s.Commit(s, "first")
	s.push("", first)
	root := t.TempDir()
	return &target{source: s, config: sitetest.SiteConfig(t, root, ""), db: s.open("b"), path: filepath.Join(root, project+".git")}
}

// serve runs the daemon until the test ends.
func (g *target) serve() {
	g.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	g.daemon = site.New(g.config, g.open("b"), site.Options{Hook: sitetest.Hook(), Logger: slog.New(slog.NewTextHandler(&g.log, nil))})
	go func() { ended <- g.daemon.Run(ctx) }()
	g.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			g.Error(err)
		}
	})
	sitetest.Eventually(g, "the daemon serves", func() bool {
		s, err := client.Query(g.Context(), g.config.Socket)
		return err == nil && s.OK()
	})
}

// autoClone lets the daemon clone by itself, at once.
func (g *target) autoClone() {
	g.Helper()
	c := *g.config
	c.AutoClone = true
	if err := g.daemon.Reload(&c); err != nil {
		g.Error(err)
	}
	row, _, err := g.db.Projects().Get(g.Context(), project)
	if err == nil {
		_, err = g.db.Projects().Put(g.Context(), row)
	}
	if err != nil {
		g.Error(err)
	}
}

func (g *target) clone(each func(driver.Pack)) (clone.Report, error) {
	return clone.CloneAndGuard(g.Context(), g.config, g.db, clone.Options{Project: project, Site: "b", By: "alice@host", Each: each, Hook: sitetest.Hook()})
}

// isGuarded checks that the repository is there, under guard, and nothing is beside it.
func (g *target) isGuarded() {
	g.Helper()
	r, err := g.config.Repository(project)
	if err != nil || !install.IsGuardedBy(g.config, r) {
		g.Fatalf("it is not guarded: %v", err)
	}
	err = check.Run(g.Context(), g.config, nil, []config.Repository{r}, check.Options{Hook: sitetest.Hook()}, func(f check.Finding) {
		if strings.HasPrefix(f.Code, "hook") || f.Code == check.Setting {
			g.Errorf("check finds %+v", f)
		}
	})
	if err != nil {
		g.Error(err)
	}
	pushed := g.Commit(g, "second")
	out, failed := exec.Command("git", "-C", g.Dir, "push", "--quiet", g.path, pushed+":refs/heads/other").CombinedOutput()
	v, err := g.db.Get(g.Context(), project, "refs/heads/other")
	switch {
	case err != nil:
		g.Error(err)
	case failed == nil && v != refdb.Value(pushed):
		g.Errorf("a push was acknowledged, and the database has %q", v)
	case failed != nil && !strings.Contains(string(out), "have just changed"): // autoClone has written the row
		g.Errorf("pushing: %v\n%s", failed, out)
	}
	g.nothingBeside()
}

func (g *target) nothingBeside() {
	g.Helper()
	for _, dir := range []string{filepath.Dir(g.path), g.config.Root} {
		left, err := filepath.Glob(filepath.Join(dir, config.Unfinished+"*"))
		if err != nil || len(left) > 0 {
			g.Errorf("left: %v, %v", left, err)
		}
	}
}

// A push into a repository whose hooks are not in it would be acknowledged, and the database would not hear of it.
func TestARepositoryIsGuardedWhenItAppears(t *testing.T) {
	g := newTarget(t)
	g.serve()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	// Each git that makes the repository says what is at its path.
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	script := fmt.Sprintf(`#!/bin/sh
if [ ! -e %[1]s ]; then echo missing >>%[2]s
elif grep -q "path = .*/current/config" %[1]s/config && grep -q "hideRefs = refs//" %[1]s/config && [ -L %[1]s/refdb/socket ]; then echo guarded >>%[2]s
else echo "open to pushes: $*" >>%[2]s; fi
exec %[3]s "$@"
`, g.path, seen, git)
	if err := testprogram.Write(filepath.Join(dir, "git"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	packs := 0
	_, err = g.clone(func(driver.Pack) {
		packs++
		if _, err := os.Lstat(g.path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is there before it has all objects: %v", err)
		}
	})
	if err != nil || packs != 1 {
		t.Fatalf("%d packs, %v", packs, err)
	}
	calls, err := os.ReadFile(seen)
	if err != nil || strings.Count(string(calls), "missing") < 10 || strings.Contains(string(calls), "open to pushes") {
		t.Errorf("%v; at its path was\n%s", err, calls)
	}
	g.isGuarded()
}

func TestWithoutADaemonNothingIsMade(t *testing.T) {
	t.Parallel()
	g := newTarget(t)
	if _, err := g.clone(nil); err == nil || !strings.Contains(err.Error(), "start it first") {
		t.Errorf("cloned: %v", err)
	}
	if _, err := os.Lstat(g.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
}

// A daemon that does not know of the new repository refuses pushes into it. That is said, and it stays.
func TestAnErrorAfterTheRenameLeavesAGuardedRepository(t *testing.T) {
	t.Parallel()
	g := newTarget(t)
	g.serve()
	c := *g.config
	g.config = &c
	if _, err := g.clone(func(driver.Pack) { c.Socket += ".gone" }); err == nil || !strings.Contains(err.Error(), "was cloned, and is under guard, but the site daemon does not answer") {
		t.Errorf("cloned: %v", err)
	}
	if r, err := c.Repository(project); err != nil || !install.IsGuardedBy(&c, r) {
		t.Errorf("it is not guarded: %v", err)
	}
	g.nothingBeside()
}

// unfinished returns the directory in which the repository is made.
func (g *target) unfinished() string { return filepath.Join(g.config.Root, config.UnfinishedDir) }

// waiters returns how often this process has the lock file open of whoever makes the repository.
func (g *target) waiters() (n int) {
	all, err := filepath.Glob("/proc/self/fd/*")
	if err != nil || len(all) == 0 {
		g.Fatalf("no files: %v", err)
	}
	for _, fd := range all {
		if path, err := os.Readlink(fd); err == nil && filepath.Dir(path) == g.unfinished() && strings.HasSuffix(path, ".lock") {
			n++
		}
	}
	return n
}

// The second maker waits for the first, and finds what it made.
func TestOneMakerAtATime(t *testing.T) {
	t.Parallel()
	g := newTarget(t)
	g.serve()
	const others = 3
	ended := make(chan error, others)
	made := 0
	_, err := g.clone(func(driver.Pack) {
		for range others {
			go func() {
				_, err := g.clone(func(driver.Pack) { made++ })
				ended <- err
			}()
		}
		sitetest.Eventually(t, "the others wait", func() bool { return g.waiters() == 1+others })
	})
	if err != nil {
		t.Error(err)
	}
	for range others {
		if err := <-ended; !errors.Is(err, config.ErrExists) {
			t.Errorf("another ends with %v", err)
		}
	}
	if made != 0 {
		t.Errorf("the others have unpacked %d packs", made)
	}
	g.isGuarded()
}

// The daemon clones by itself what somebody clones by hand, too.
func TestACloneByHandBesideTheDaemons(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"by hand", "the daemon", "either"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			g := newTarget(t)
			g.serve()
			var err error
			switch first {
			case "by hand":
				if _, err = g.clone(func(driver.Pack) {
					g.autoClone()
					sitetest.Eventually(t, "the daemon waits", func() bool { return g.waiters() == 2 })
				}); err != nil {
					t.Errorf("cloned by hand: %v", err)
				}
			case "the daemon":
				g.autoClone()
				sitetest.Eventually(t, "it is there", func() bool { _, err := os.Lstat(g.path); return err == nil })
				if _, err = g.clone(nil); !errors.Is(err, config.ErrExists) {
					t.Errorf("cloned by hand: %v", err)
				}
			case "either":
				g.autoClone()
				if _, err = g.clone(nil); err != nil && !errors.Is(err, config.ErrExists) {
					t.Errorf("cloned by hand: %v", err)
				}
			}
			sitetest.Eventually(t, "nobody makes it any more", func() bool { return g.waiters() == 0 })
			g.isGuarded()
			sitetest.Eventually(t, "the daemon is content", func() bool { s, err := client.Query(t.Context(), g.config.Socket); return err == nil && s.OK() })
			if log := g.log.String(); strings.Contains(log, "can't be cloned") {
				t.Error(log)
			}
		})
	}
}

// What a maker that was killed has left the next one removes, and nothing else.
func TestTheNextMakerRemovesWhatADeadOneHasLeft(t *testing.T) {
	t.Parallel()
	g := newTarget(t)
	g.serve()
	var made, lock string
	g.clone(func(driver.Pack) {
		left, err := filepath.Glob(filepath.Join(g.unfinished(), "*"))
		if err != nil || len(left) != 2 {
			t.Fatalf("in the directory for that: %v, %v", left, err)
		}
		made, lock = left[0], left[1]
	})
	if err := os.Rename(g.path, filepath.Join(t.TempDir(), "away")); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(g.unfinished(), config.Unfinished+"of-another")
	for _, dir := range []string{made, other} {
		if err := os.MkdirAll(filepath.Join(dir, "objects"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(lock, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := g.clone(nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(other, "objects")); err != nil {
		t.Error(err)
	}
	if err := errors.Join(os.Remove(other), os.Remove(g.unfinished())); err != nil {
		t.Error(err)
	}
	g.isGuarded()
}
