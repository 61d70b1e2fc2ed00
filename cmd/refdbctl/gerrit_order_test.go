package main

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
)

// watched returns the Gerrit that the site's configuration names.
func (g *gerritDir) watched(tb testing.TB) string {
	tb.Helper()
	return git(tb, g.dir, "config", "-f", g.config, "--default", "", "site.gerrit")
}

// A Gerrit that was not put under guard is not watched: the alarm would never end.
func TestEnableThatIsRefusedLeavesTheSitesConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newGerrit(t, "a")
	g.configure(t, "store = none")
	g.serve(t)
	g.site(t, "enable", "--new", "team/app", "--hook", g.hook).is(t, exit.OK, "")
	w.do(t, "project", "set", "team/app", "--skip-ref", "refs/changes/*")
	before := g.files(t)
	g.gerrit(t, "enable", "--yes").is(t, exit.Failed, "project team/app: its rules leave out refs/changes/*")
	if got := g.watched(t); got != "" || !maps.Equal(before, g.files(t)) {
		t.Errorf("site.gerrit is %q", got)
	}
}

// A Gerrit that keeps its guard stays watched.
func TestDisableThatIsRefusedLeavesTheSitesConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newGerrit(t, "a")
	g.serve(t)
	g.gerrit(t, "enable", "--yes").is(t, exit.OK, "")
	g.write(t, "etc/jgit.config", "[core\n")
	before := g.files(t)
	g.gerrit(t, "disable", "--yes").is(t, exit.Failed, "jgit.config: git says: bad config line 1")
	if got := g.watched(t); got != g.path || !maps.Equal(before, g.files(t)) {
		t.Errorf("site.gerrit is %q", got)
	}
}

// A second site's Gerrit that can't join is not watched either.
func TestJoinThatIsRefusedLeavesTheSitesConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, etc := firstSite(t, w)
	us := w.secondSite(t, "us", etc, initScript)
	git(t, us.dir, "config", "-f", us.config, "--unset", "site.gerrit")
	us.copyOf(t, "gerrit.allProjects", "Everything")
	us.join(t).is(t, exit.Failed, "the database has no project Everything")
	if got := us.watched(t); got != "" {
		t.Errorf("site.gerrit is %q", got)
	}
	if _, err := os.Stat(filepath.Join(us.path, "etc")); err == nil {
		t.Error("files were copied")
	}
}

// A daemon that has not read the configuration, such as because the command that changed it was interrupted, reads it at the next run.
func TestADaemonThatWatchesSomethingElseReadsItsConfigurationAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newGerrit(t, "a")
	g.configure(t, "store = none")
	w.serving(t, g.config)
	g.serves(t)
	g.configure(t, "store = none", "gerrit = "+g.path)
	g.gerrit(t, "enable", "--yes").is(t, exit.OK, "")
	if s := g.serves(t); s.Gerrit == nil || s.Gerrit.Path != g.path {
		t.Errorf("after enable the daemon watches %+v", s.Gerrit)
	}
	g.configure(t, "store = none")
	g.gerrit(t, "disable", "--yes").is(t, exit.OK, "")
	if s := g.serves(t); s.Gerrit != nil {
		t.Errorf("after disable the daemon watches %+v", s.Gerrit)
	}
}
