package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/client"
)

// builtHook is the hook's program, built once.
var builtHook = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "refdb-hook")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := testprogram.Build(dir, "cmd/refdb-hook"); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "refdb-hook"))
})

// gitSite is a site with one repository, team/app.
type gitSite struct {
	*world
	dir, config, hook string
	repo              *repo
}

// newSite adds a site to a world.
func (w *world) newSite(tb testing.TB, name string, refs ...string) *gitSite {
	tb.Helper()
	dir, err := os.MkdirTemp("", "site") // the path of a socket must be short
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	s := &gitSite{world: w, dir: dir, config: filepath.Join(dir, "site.config"), hook: filepath.Join(dir, "refdb-hook")}
	made := newRepo(tb, refs...)
	s.repo = &repo{path: filepath.Join(dir, "git/team/app.git"), commit: made.commit}
	program, err := builtHook()
	err = errors.Join(err,
		testprogram.Write(s.hook, program),
		os.WriteFile(s.config, fmt.Appendf(nil, "[site]\nname = %s\nroot = %s/git\nsocket = %s/s\nstate = %s\nstore = none\n"+patientSite, name, dir, dir, dir), 0o644),
		os.MkdirAll(filepath.Dir(s.repo.path), 0o755),
		os.Rename(made.path, s.repo.path))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// site runs a command about the site.
func (s *gitSite) site(tb testing.TB, args ...string) result {
	tb.Helper()
	return s.run(tb, append([]string{"site", args[0], "--config", s.config}, args[1:]...)...)
}

// serve runs the site's daemon until stop is called, at the test's end at the latest.
func (s *gitSite) serve(tb testing.TB) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan result, 1)
	go func() { ended <- s.runIn(tb, ctx, "site", "serve", "--config", s.config) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if r := <-ended; r.code != exit.OK {
			tb.Errorf("the daemon ended with %d: %s", r.code, r.err)
		}
	})
	tb.Cleanup(stop)
	eventually(tb, "the daemon serves", func() bool {
		status, err := client.Query(ctx, filepath.Join(s.dir, "s"))
		return err == nil && status.Presence
	})
	return stop
}

// push pushes a new commit to a ref, and returns it.
func (s *gitSite) push(tb testing.TB, ref string) (commit string, err error) {
	tb.Helper()
	tree := git(tb, s.repo.path, "rev-parse", s.repo.commit+"^{tree}")
	commit = git(tb, s.repo.path, "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", ref, "-p", s.repo.commit, tree)
	cmd := exec.Command("git", "push", s.repo.path, "+"+commit+":"+ref)
	cmd.Dir = s.repo.path
	if out, err := cmd.CombinedOutput(); err != nil {
		return commit, fmt.Errorf("%w: %s", err, out)
	}
	return commit, nil
}

func TestASiteFromEnablingToDisabling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.newSite(t, "a", mainRef, "refs/tags/v1", "refs/changes/01/1/1")
	b := w.newSite(t, "b")
	a.serve(t)
	stopB := b.serve(t)

	for _, one := range []struct {
		*gitSite
		claim, want string
	}{
		{a, "--new", "2 imported, 0 equal, 0 different, 0 locked, 0 refused, 1 not guarded"},
		{b, "--copy", "0 imported, 0 equal, 0 different, 0 locked, 0 refused, 0 not guarded"},
	} {
		r := one.site(t, "enable", one.claim, "team/app", "--hook", one.hook)
		r.is(t, exit.OK, "team/app is guarded")
		if !strings.Contains(r.out, one.want) {
			t.Errorf("%s: %s", one.claim, r.out)
		}
	}
	a.site(t, "check").is(t, exit.OK, "checked 1 repository: 0 findings")
	b.site(t, "check").is(t, exit.Failed, "checked 1 repository: 2 findings")

	r := b.site(t, "sync", "--from", a.repo.path, "--peer", "a", "--dry-run", "team/app", "-o", "json")
	type syncJSON struct {
		Refs                                                                      []struct{ Result, Ref string }
		Peer                                                                      string
		Equal, Unknown, Created, Updated, Deleted, Locked, Moved, Missing, Failed int
		Complete                                                                  bool
		DryRun                                                                    bool `json:"dry_run"`
	}
	if got := decode[syncJSON](t, r.out); got.Created != 2 || len(got.Refs) != 2 || !got.DryRun || got.Peer != "a" {
		t.Errorf("%+v", got)
	}
	b.site(t, "sync", "--from", a.repo.path, b.repo.path).is(t, exit.OK, "")
	b.site(t, "check", "team/app").is(t, exit.OK, "0 findings")

	pushed, err := a.push(t, mainRef)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.push(t, mainRef); err == nil || !strings.Contains(err.Error(), "behind") {
		t.Errorf("a push to a site that is behind: %v", err)
	}
	b.site(t, "sync", "--from", a.repo.path, "team/app").is(t, exit.OK, "")
	if got := git(t, b.repo.path, "rev-parse", mainRef); got != pushed {
		t.Errorf("main is %s at b, want %s", got, pushed)
	}

	stopB()
	b.site(t, "check").is(t, exit.Failed, "1 finding")
	b.site(t, "enable", "--new", "team/app", "--hook", b.hook).is(t, exit.Failed, "start it first")
	b.site(t, "disable", "team/app").is(t, exit.OK, "its refs stay in the database")
	if _, err := b.push(t, mainRef); err != nil {
		t.Errorf("a push to a repository that is not guarded: %v", err)
	}
	if got := w.do(t, "refs", "get", "team/app", mainRef); got != pushed+"\n" {
		t.Errorf("main is %s in the database", got)
	}
}

func TestEnableReportsWhatDiffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newSite(t, "a", branches(1500)...)
	s.serve(t)
	w.InsertRef(t, "team/app", "refs/heads/b00007", refdb.Value(id("a")))
	r := s.site(t, "enable", "--new", "team/app", "--hook", s.hook)
	r.is(t, exit.Mismatch, "pushes to 1 ref are refused, because the database has another value for them")
	if !strings.Contains(r.out, "1499 imported, 0 equal, 1 different") {
		t.Errorf("%s", r.out)
	}
	check := s.site(t, "check", "-o", "json")
	check.is(t, exit.Failed, "1 finding")
	type findings struct {
		Findings []struct{ Code, Project, Subject, Detail string }
		OK       bool
	}
	if got := decode[findings](t, check.out); got.OK || len(got.Findings) != 1 || got.Findings[0].Code != "local-differs" {
		t.Errorf("%+v", got)
	}
	// Its value can't be had from a peer that does not have it.
	s.site(t, "sync", "--from", newRepo(t).path, "team/app").is(t, exit.Failed, "1 missing")
}

// Gerrit's plugin multi-site keeps numbers in the ref database, under names that no repository could hold side by side.
func TestEnableDropsWhatThePluginMultiSiteHasLeft(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"one": {"--new", "team/app"}, "all": {"--all", "--new"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.newSite(t, "a", mainRef, "refs/multi-site/version")
			s.serve(t)
			w.InsertRef(t, "team/app", mainRef, refdb.Value(s.repo.commit))
			w.InsertRef(t, "team/app", "refs/multi-site/version", refdb.Value(s.repo.commit))
			w.InsertRef(t, "team/app", "refs/multi-site/version/value", "1795224671380")
			w.InsertRef(t, "team/app", "refs/multi-site/ours", refdb.Value(s.repo.commit)) // a user's ref
			for range 2 {
				r := s.site(t, append([]string{"enable", "--hook", s.hook}, args...)...)
				r.is(t, exit.OK, "")
				if !strings.Contains(r.err, "row refs/multi-site/ours, which is not guarded") {
					t.Errorf("%s", r.err)
				}
				got := w.do(t, "refs", "list", "team/app", "-o", "json")
				if strings.Contains(got, "multi-site/version") || !strings.Contains(got, "refs/multi-site/ours") {
					t.Errorf("%s", got)
				}
			}
			s.site(t, "check").is(t, exit.OK, "0 findings")
		})
	}
}

func TestSiteCommandsRefuse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newSite(t, "a")
	elsewhere := newRepo(t)
	for args, says := range map[string]string{
		"enable team/other --hook " + s.hook:       "there is no repository of project",
		"enable ../escape --hook " + s.hook:        "escape",
		"enable " + elsewhere.path + " --hook x":   "neither below site.root",
		"disable " + elsewhere.path:                "neither below site.root",
		"sync --from x " + elsewhere.path:          "neither below site.root",
		"check " + elsewhere.path:                  "neither below site.root",
		"check team/other":                         "there is no repository of project",
		"enable team/app --hook /bin/sh":           "is not refdb-hook",
		"enable team/app --hook " + s.hook:         "does not answer",
		"sync --from -x team/app":                  "give the URL",
		"sync --from /nowhere --peer a/b team/app": `peer "a/b"`,
	} {
		r := s.site(t, strings.Fields(args)...)
		if r.code == exit.OK || !strings.Contains(r.err, says) {
			t.Errorf("%s: %+v", args, r)
		}
	}
	if got := git(t, s.repo.path, "for-each-ref"); got != "" {
		t.Errorf("refs: %s", got)
	}
}

// Git fails because of a broken ref: that says nothing about objects, and git's own words stand in the message.
func TestEnableSaysWhatGitSaysOfABrokenRef(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newSite(t, "a", "refs/heads/main")
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	// A ref that is not guarded.
	broken := filepath.Join(s.repo.path, "refs", "own", "broken")
	err = errors.Join(
		os.WriteFile(s.config, []byte(strings.Replace(string(text), "store = none", "store = all", 1)), 0o644),
		os.MkdirAll(filepath.Dir(broken), 0o755),
		os.WriteFile(broken, []byte(strings.Repeat("1", 40)+"\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	s.serve(t)
	r := s.site(t, "enable", "--new", "team/app", "--hook", s.hook)
	if r.code == exit.OK || !strings.Contains(r.err, "refs/own/broken") || strings.Contains(r.err, "not here") {
		t.Errorf("%+v", r)
	}
}

// deaf is a driver that never answers.
type deaf struct{ refdb.Driver }

func (deaf) List(ctx context.Context, _ driver.RefQuery) (driver.RefPage, error) {
	<-ctx.Done()
	return driver.RefPage{}, ctx.Err()
}

func TestSiteCommandsWaitForTheDatabaseAsLongAsTheTimeoutSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newSite(t, "a", mainRef)
	wasGuarded(t, s.repo.path)
	w.wrap = func(d refdb.Driver) refdb.Driver { return deaf{d} }
	for _, args := range []string{"check", "sync --from " + s.repo.path + " team/app"} {
		const says = "no answer from the database within --timeout "
		within(300*time.Millisecond, func(limit string) result {
			return s.site(t, append(strings.Fields(args), "--timeout", limit)...)
		}, says).is(t, exit.Failed, says)
	}
}

// wasGuarded makes a repository one that was under guard, and has lost all but a record of that.
func wasGuarded(tb testing.TB, path string) {
	tb.Helper()
	git(tb, path, "config", "refdb.gc.auto.set", "0")
}

func TestCheckWithoutADatabaseLooksAtTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newSite(t, "a")
	wasGuarded(t, s.repo.path)
	s.env["REFDB_URL"] = "sqlite:" + filepath.Join(s.dir, "nowhere/db")
	r := s.site(t, "check")
	r.is(t, exit.Failed, "findings")
	for _, code := range []string{"database", "daemon-down", "hook-missing", "setting", "socket"} {
		if !strings.Contains(r.out, code) {
			t.Errorf("no %s in\n%s", code, r.out)
		}
	}
	r = s.site(t, "check", "--repair", "--hook", s.hook)
	if r.is(t, exit.Failed, "mended"); strings.Contains(r.out, "setting") != strings.Contains(r.out, "mended") {
		t.Errorf("%s", r.out)
	}
	if r := s.site(t, "check"); strings.Contains(r.out, "hook-missing") || strings.Contains(r.out, "setting") {
		t.Errorf("after the repair\n%s", r.out)
	}
}

func TestTheConfigurationMayBeNamedByARelativePath(t *testing.T) {
	w := newWorld(t)
	s := w.newSite(t, "a")
	t.Chdir(s.dir)
	r := s.run(t, "site", "enable", "--new", "team/app", "--config", filepath.Base(s.config), "--hook", s.hook)
	if strings.Contains(r.err, "configuration") {
		t.Errorf("%+v", r)
	}
}
