package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
)

type gerritFindings struct {
	Findings []struct{ Code, Project, Subject, Detail string }
	OK       bool
}

// codes returns the codes of what check finds.
func (g *gerritDir) codes(tb testing.TB, args ...string) (codes []string, all gerritFindings) {
	tb.Helper()
	r := g.gerrit(tb, "check", append(args, "-o", "json")...)
	all = decode[gerritFindings](tb, r.out)
	for _, f := range all.Findings {
		codes = append(codes, f.Code)
	}
	if all.OK != (len(codes) == 0) || (r.code == exit.OK) != all.OK {
		tb.Errorf("status %d with %+v", r.code, all)
	}
	slices.Sort(codes)
	return slices.Compact(codes), all
}

// guardedAt returns a Gerrit under guard, whose daemon watches it.
func guardedAt(t *testing.T, w *world, name string) *gerritDir {
	t.Helper()
	g := w.newGerrit(t, name, "store = none") // so nothing that a test moves is moved back
	g.serve(t)
	g.gerrit(t, "enable", "--yes").is(t, exit.OK, "3 repositories guarded")
	return g
}

func TestWhatGerritCheckFinds(t *testing.T) {
	t.Parallel()
	config := func(file, key, value string) func(*testing.T, *gerritDir) {
		return func(t *testing.T, g *gerritDir) {
			git(t, g.dir, "config", "-f", filepath.Join(g.path, file), "--replace-all", key, value)
		}
	}
	unset := func(file, key string) func(*testing.T, *gerritDir) {
		return func(t *testing.T, g *gerritDir) {
			git(t, g.dir, "config", "-f", filepath.Join(g.path, file), "--unset-all", key)
		}
	}
	type row struct {
		name, code, says string
		spoil            func(*testing.T, *gerritDir)
	}
	check := func(t *testing.T, c row, g *gerritDir) {
		c.spoil(t, g)
		codes, all := g.codes(t)
		if c.code == "" {
			if len(codes) > 0 {
				t.Errorf("found %+v", all.Findings)
			}
			return
		}
		for _, f := range all.Findings {
			if f.Code == c.code && strings.Contains(f.Detail, c.says) {
				return
			}
		}
		t.Errorf("no %s with %q in %+v", c.code, c.says, all.Findings)
	}
	t.Run("in its files", func(t *testing.T) {
		t.Parallel()
		g := guardedAt(t, newWorld(t), "a")
		restore := g.keep(t)
		for _, c := range []row{
			{"nothing", "", "", func(*testing.T, *gerritDir) {}},
			{"no module", "gerrit-setting", "Gerrit would move refs without the guard", unset("etc/gerrit.config", "gerrit.installDbModule")},
			{"one module", "gerrit-setting", "Gerrit would start without the guard", unset("etc/gerrit.config", "gerrit.installModule")},
			{"no fsync", "gerrit-setting", `it is "false", and should be true: acknowledged updates may be lost`, config("etc/jgit.config", "core.fsyncRefFiles", "false")},
			{"pruning", "gerrit-setting", "refdbctl site maintain prunes", config("etc/jgit.config", "gc.pruneExpire", "now")},
			{"another socket", "gerrit-setting", "the daemon listens there", config("etc/gerrit.config", "refdb.socket", "/run/other.sock")},
			{"a configuration that can't be read", "gerrit-setting", "jgit.config: git says: bad config line ", func(t *testing.T, g *gerritDir) { g.write(t, "etc/jgit.config", "[") }},
			{"no instance ID", "gerrit-instance", "it distinguishes the sites", unset("etc/gerrit.config", "gerrit.instanceId")},
			{"no server ID", "gerrit-server", "it must be the same at all sites", unset("etc/gerrit.config", "gerrit.serverId")},
			{"other repositories", "gerrit-root", "those of the site in", config("etc/gerrit.config", "gerrit.basePath", "etc")},
			{"no jar", "gerrit-jar", "the guard's jar is missing", func(t *testing.T, g *gerritDir) { os.Remove(g.path + "/lib/globalrefdb-gerrit-3.9.jar") }},
			{"two jars", "gerrit-jar", "the guard has 2 jars", func(t *testing.T, g *gerritDir) { fakeJar(t, g.path+"/lib/globalrefdb-gerrit-3.13.jar", "3.13", "1") }},
			{"a jar of another series", "gerrit-jar", "Gerrit is 3.13.5, and needs globalrefdb-gerrit-3.13.jar", func(t *testing.T, g *gerritDir) { fakeWAR(t, g.path+"/bin/gerrit.war", "v3.13.5") }},
			{"a jar of another release", "gerrit-session", "the guard's jar speaks version 2, the daemon 1", func(t *testing.T, g *gerritDir) { fakeJar(t, g.path+"/lib/globalrefdb-gerrit-3.9.jar", "3.9", "2") }},
			{"a version that was never tried", "gerrit-version", "3.15.0 was never tried", func(t *testing.T, g *gerritDir) { fakeWAR(t, g.path+"/bin/gerrit.war", "v3.15.0") }},
			{"another ref database", "gerrit-other", "another ref database guards this Gerrit", func(t *testing.T, g *gerritDir) { g.write(t, "plugins/spanner-refdb.jar", "") }},
			{"no watch", "gerrit-unwatched", ", not ", func(t *testing.T, g *gerritDir) {
				if out, err := exec.Command("cp", "-a", g.path, g.path+"2").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				g.path += "2"
			}},
		} {
			t.Run(c.name, func(t *testing.T) {
				restore(t)
				at := *g
				check(t, c, &at)
			})
		}
	})
	for _, c := range []row{
		{"a Gerrit without the guard", "gerrit-unguarded", "Gerrit runs without the guard (process ", func(t *testing.T, g *gerritDir) { g.start(t, "") }},
		{"a Gerrit with the guard", "", "", func(t *testing.T, g *gerritDir) { g.start(t, "3.9.4") }},
		{"a project's rules", "gerrit-rules", "the other sites get changes without their commits", func(t *testing.T, g *gerritDir) {
			g.do(t, "project", "set", "team/app", "--ref", "refs/heads/*", "--also-ref", "refs/draft-comments/*")
		}},
		{"a sequence that differs from the database", "local-differs", "but ", func(t *testing.T, g *gerritDir) {
			setSequence(t, g.dir+"/git/All-Users.git", "refs/sequences/accounts", "1000041")
		}},
		{"a change that was written past the guard", "local-unknown", "the database does not know it", func(t *testing.T, g *gerritDir) {
			git(t, g.repo.path, "-c", "core.hooksPath=/dev/null", "update-ref", "refs/changes/02/2/meta", g.repo.commit)
		}},
		{"a lock file that was left", "leftover-lock", "", func(t *testing.T, g *gerritDir) {
			path, old := g.repo.path+"/packed-refs.lock", time.Now().Add(-time.Minute)
			if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, old, old)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.code != "" && !strings.HasPrefix(c.code, "gerrit-") {
				t.Skip("left out by -short: what site check finds in the repositories of any site; make test-all runs it")
			}
			t.Parallel()
			check(t, c, guardedAt(t, newWorld(t), "a"))
		})
	}
}

// The database knows the IDs of the other sites' Gerrits as long as they run.
func TestIDsAreComparedWithThoseOfOtherSites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.newGerrit(t, "a", "store = none"), w.newGerrit(t, "b", "store = none")
	repositories := b.dir + "/git"
	if out, err := exec.Command("sh", "-c", "rm -r "+repositories+" && cp -a "+a.dir+"/git "+repositories).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, g := range []*gerritDir{a, b} {
		g.serve(t)
		g.gerrit(t, "enable", "--yes").is(t, exit.OK, "3 repositories guarded")
	}
	_, stop := a.start(t, "3.9.4")
	if codes, all := b.codes(t); len(codes) > 0 {
		t.Errorf("two Gerrits with IDs of their own: %+v", all.Findings)
	}
	set := func(key, value string) { git(t, b.dir, "config", "-f", b.path+"/etc/gerrit.config", key, value) }
	set("gerrit.instanceId", "gerrit-a")
	set("gerrit.serverId", gerritServerID)
	if codes, all := b.codes(t); !slices.Equal(codes, []string{"gerrit-instance"}) || !strings.Contains(all.Findings[0].Detail, "a has \"gerrit-a\"") {
		t.Errorf("with another site's instance ID: %+v", all.Findings)
	}
	b.gerrit(t, "enable", "--yes").is(t, exit.Failed, "another site's server has the same instance ID")
	set("gerrit.instanceId", "gerrit-b")
	set("gerrit.serverId", "another")
	if codes, all := b.codes(t); !slices.Equal(codes, []string{"gerrit-server"}) {
		t.Errorf("with another server ID: %+v", all.Findings)
	}
	b.gerrit(t, "enable", "--yes").is(t, exit.Failed, "another site's server has another server ID")
	stop()
	eventually(t, "the other site's Gerrit is forgotten", func() bool { codes, _ := b.codes(t); return len(codes) == 0 })
}

// Without the daemon, or the database, the rest is looked at.
func TestGerritCheckWithoutTheDaemonOrTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newGerrit(t, "a")
	stop := g.serve(t)
	g.gerrit(t, "enable", "--yes").is(t, exit.OK, "")
	stop()
	if codes, all := g.codes(t); !slices.Equal(codes, []string{"daemon-down"}) {
		t.Errorf("without the daemon: %+v", all.Findings)
	}
	g.start(t, "")
	if codes, all := g.codes(t); !slices.Equal(codes, []string{"daemon-down", "gerrit-unguarded"}) {
		t.Errorf("without the daemon, while Gerrit runs: %+v", all.Findings)
	}
	g.env["REFDB_URL"] = "sqlite:" + filepath.Join(g.dir, "nowhere/db")
	g.write(t, "etc/jgit.config", "")
	codes, _ := g.codes(t)
	for _, code := range []string{"database", "daemon-down", "gerrit-unguarded", "gerrit-setting"} {
		if !slices.Contains(codes, code) {
			t.Errorf("without both: no %s in %v", code, codes)
		}
	}
	g.gerrit(t, "check", "--config", "/nowhere/site.config").is(t, exit.Failed, "no such file")
	g.path = g.dir
	g.gerrit(t, "check").is(t, exit.Failed, "is not the site directory of a Gerrit")
}
