//go:build linux

package sites

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// earlierPrograms builds refdbctl and refdb-hook of the last commit before the newest migration, and
// returns their directory.
func earlierPrograms(t testing.TB) string {
	t.Helper()
	if out, err := exec.Command("git", "rev-parse", "--git-dir").CombinedOutput(); err != nil {
		t.Fatalf("this test builds the programs from before the newest migration, and this source is in no git repository: %s", out)
	}
	steps, err := filepath.Glob("../../migrations/postgres/*.up.sql")
	must(t, steps, err)
	newest := steps[len(steps)-1]
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	// Of a merge, what the branch was merged into: its own commits need not all build.
	added := git("log", "--first-parent", "--diff-merges=first-parent", "--diff-filter=A", "--no-patch", "--format=%H", "--", newest)
	if added == "" || git("rev-parse", "--is-shallow-repository") == "true" {
		t.Fatalf("this test builds the programs from before %s: it needs the project's history (git fetch --unshallow)", filepath.Base(newest))
	}
	dir := shortDir(t)
	source, bin := filepath.Join(dir, "source"), filepath.Join(dir, "bin")
	git("worktree", "add", "--detach", source, added+"^")
	t.Cleanup(func() { _ = exec.Command("git", "worktree", "remove", "--force", source).Run() })
	build := exec.Command("./scripts/build.sh", bin)
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the programs of before: %v: %s", err, out)
	}
	// The build has no program with the race detector.
	if err := os.Symlink("refdbctl", filepath.Join(bin, "refdbctl-race")); err != nil {
		t.Fatal(err)
	}
	return bin
}

// A load pushes a new branch to a site, again and again.
type load struct {
	accepted     atomic.Int64
	replacements atomic.Int64 // of the daemon: begun and done, so odd while it is being replaced
}

func (l *load) run(s *server, commit string, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		before := l.replacements.Load()
		p := s.push(fmt.Sprintf("%s:refs/heads/%s-%d", commit, s.name, n))
		switch {
		case p.ok:
			l.accepted.Add(1)
		case before%2 == 0 && before == l.replacements.Load():
			s.c.Errorf("a push to %s was refused: %s", s.name, p.said)
		}
	}
}

// Sites are upgraded one by one while they serve, and then the schema. Pushes are refused only
// in the moment in which a daemon is replaced, and the sites never differ.
func TestAnUpgradeStopsNoSite(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: the programs from before the newest migration are built, a minute; make test-all runs it")
	}
	t.Parallel()
	before := earlierPrograms(t)
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{
		bin:      before,
		database: func(t testing.TB) database { return migratedBy(t, before) },
	})
	loads := map[*server]*load{c.eu: {}, c.us: {}}
	stop := make(chan struct{})
	var running sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); running.Wait() })
	defer end()
	for s, l := range loads {
		running.Go(func() { l.run(s, c.h.a, stop) })
	}
	served := func(when string) {
		t.Helper()
		for s, l := range loads {
			so := l.accepted.Load()
			eventually(t, fmt.Sprintf("a few pushes to %s, %s", s.name, when), func() error {
				if l.accepted.Load() < so+3 {
					return errPending
				}
				return nil
			})
		}
	}
	served("before")
	now, err := programs()
	must(t, now, err)
	for _, s := range []*server{c.eu, c.us} {
		s.bin = now
		s.must("site", "enable", s.repo(project))
		served("with the new hook at " + s.name + " and the old daemon")
		loads[s].replacements.Add(1)
		s.stop()
		s.start()
		loads[s].replacements.Add(1)
		served("with the new daemon at " + s.name)
	}
	c.eu.must("migrate", "up")
	served("after the migration")

	old := exec.Command(filepath.Join(before, "refdbctl"), "refs", "list", project)
	old.Env = append(os.Environ(), "REFDB_URL="+c.eu.db)
	if out, err := old.CombinedOutput(); err != nil || !strings.Contains(string(out), "refs/heads/us-0") {
		t.Errorf("the program of before, on the new schema: %v: %s", err, out)
	}
	end()
	c.caughtUp()
	for s, l := range loads {
		t.Logf("%s accepted %d pushes", s.name, l.accepted.Load())
	}
}

// migratedBy returns a database on PostgreSQL with the schema of other programs.
func migratedBy(t testing.TB, bin string) database {
	t.Helper()
	db := emptyDatabase(dbtest.PostgresEmpty(t))
	cmd := exec.Command(filepath.Join(bin, "refdbctl"), "migrate", "up")
	cmd.Env = append(os.Environ(), "REFDB_URL="+db.URL())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, out)
	}
	return db
}

// An emptyDatabase is a database that dbtest did not migrate.
type emptyDatabase string

func (d emptyDatabase) URL() string { return string(d) }

func (d emptyDatabase) Open(t testing.TB) refdb.Driver {
	t.Helper()
	driver, err := drivers.Open(t.Context(), d.URL())
	return must(t, driver, err)
}
