package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
)

// guardedGerrit is what enable leaves in a Gerrit's configuration.
var guardedGerrit = map[string]string{
	"etc/gerrit.config gerrit.installDbModule": "com.github.globalrefdb.gerrit.DbModule",
	"etc/gerrit.config gerrit.installModule":   "com.example.Other com.github.globalrefdb.gerrit.SysModule",
	"etc/gerrit.config gerrit.instanceId":      "gerrit-a",
	"etc/gerrit.config gerrit.basePath":        "../git",
	"etc/jgit.config core.fsyncObjectFiles":    "true",
	"etc/jgit.config core.fsyncRefFiles":       "true",
	"etc/jgit.config receive.autogc":           "false",
	"etc/jgit.config gc.auto":                  "0",
	"etc/jgit.config gc.autoPackLimit":         "0",
	"etc/jgit.config gc.pruneExpire":           "never",
	"etc/jgit.config gc.prunePackExpire":       "never",
}

func TestAGerritFromEnablingToDisabling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newGerrit(t, "a")
	g.write(t, "etc/jgit.config", "[core]\n\tfsyncRefFiles = false\n[gc]\n\tauto = 0\n")
	g.serve(t)
	before := g.files(t)

	// A dry run shows all, and changes nothing.
	dry := g.gerrit(t, "enable", "-n", "-o", "json")
	dry.is(t, exit.OK, "dry run: 12 changes to make")
	if !maps.Equal(g.files(t), before) {
		t.Error("a dry run has changed files")
	}
	planned := decode[gerritReport](t, dry.out)
	if !planned.DryRun || planned.Complete || len(planned.Changes) != 12 {
		t.Errorf("%+v", planned)
	}
	g.gerrit(t, "enable").is(t, exit.Misuse, "there is no terminal to ask on: add --yes")

	r := g.gerrit(t, "enable", "--yes", "-o", "json")
	r.is(t, exit.OK, "3 repositories guarded, 9 refs imported")
	did := decode[gerritReport](t, r.out)
	if did.DryRun || !did.Complete || did.Guarded != 3 || fmt.Sprint(did.Changes) != fmt.Sprint(planned.Changes) {
		t.Errorf("planned %+v\ndid %+v", planned, did)
	}
	g.has(t, guardedGerrit)
	g.has(t, map[string]string{"etc/gerrit.config refdb.socket": g.dir + "/s"})
	files := g.files(t)
	if !strings.HasPrefix(files["etc/gerrit.config"], "# kept\n") || files["lib/globalrefdb-gerrit-3.9.jar"] == "" || files["etc/secure.config"] != before["etc/secure.config"] {
		t.Errorf("files: %q", files)
	}
	for _, change := range []string{"{etc/jgit.config core.fsyncRefFiles false true}", "{etc/gerrit.config gerrit.instanceId  gerrit-a}", "3 repositories not guarded guarded"} {
		if !strings.Contains(fmt.Sprint(did.Changes), change) {
			t.Errorf("no %s in %v", change, did.Changes)
		}
	}
	// The patch set, and the draft, are guarded, too.
	for project, ref := range map[string]string{"team/app": "refs/changes/01/1/1", "All-Users": "refs/draft-comments/01/1/1000000"} {
		if got := w.do(t, "refs", "get", project, ref); got != g.repo.commit+"\n" {
			t.Errorf("%s %s is %q in the database", project, ref, got)
		}
	}

	// Once more: nothing is changed, and it says so.
	r = g.gerrit(t, "enable", "--yes", "-o", "json")
	r.is(t, exit.OK, "already under guard, with 3 repositories: nothing was changed")
	if again := decode[gerritReport](t, r.out); len(again.Changes) != 0 || !maps.Equal(g.files(t), files) {
		t.Errorf("%+v", again)
	}

	// Back: what enable has set is what it was; what was set since stays.
	git(t, g.dir, "config", "-f", filepath.Join(g.path, "etc/jgit.config"), "gc.pruneExpire", "now")
	g.gerrit(t, "disable").is(t, exit.Misuse, "add --yes")
	g.gerrit(t, "disable", "-n").is(t, exit.OK, "dry run: 11 changes to make")
	g.gerrit(t, "disable", "--yes").is(t, exit.OK, "refdbctl site disable REPO")
	g.has(t, map[string]string{
		"etc/gerrit.config gerrit.installDbModule": "", "etc/gerrit.config gerrit.installModule": "com.example.Other", "etc/gerrit.config gerrit.instanceId": "",
		"etc/gerrit.config refdb.socket": "", "etc/jgit.config core.fsyncRefFiles": "false", "etc/jgit.config core.fsyncObjectFiles": "", "etc/jgit.config gc.auto": "0",
		"etc/jgit.config receive.autogc": "", "etc/jgit.config gc.pruneExpire": "now",
	})
	for name, text := range g.files(t) {
		if strings.HasPrefix(name, "lib/") || strings.Contains(text, "[refdb") {
			t.Errorf("%s is left: %s", name, text)
		}
	}
	g.gerrit(t, "disable", "--yes").is(t, exit.OK, "nothing was changed")
	g.site(t, "check", "team/app").is(t, exit.OK, "0 findings") // still guarded
}

// What was set by hand, as the guard needs it, is not enable's to take back; its own modules are.
func TestAGerritThatWasGuardedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newGerrit(t, "a")
	g.serve(t)
	for _, s := range []string{"gerrit.config gerrit.installDbModule com.github.globalrefdb.gerrit.DbModule", "gerrit.config gerrit.instanceId mine", "jgit.config core.fsyncObjectFiles yes"} {
		f := strings.Fields(s)
		git(t, g.dir, "config", "-f", filepath.Join(g.path, "etc", f[0]), f[1], f[2])
	}
	g.gerrit(t, "enable", "--yes").is(t, exit.OK, "3 repositories guarded")
	g.has(t, map[string]string{"etc/gerrit.config gerrit.installDbModule": "com.github.globalrefdb.gerrit.DbModule", "etc/gerrit.config gerrit.instanceId": "mine",
		"etc/jgit.config core.fsyncObjectFiles": "yes", "etc/jgit.config core.fsyncRefFiles": "true"})
	g.gerrit(t, "disable", "--yes").is(t, exit.OK, "")
	g.has(t, map[string]string{"etc/gerrit.config gerrit.installDbModule": "", "etc/gerrit.config gerrit.instanceId": "mine",
		"etc/jgit.config core.fsyncObjectFiles": "yes", "etc/jgit.config core.fsyncRefFiles": ""})
}

// An upgrade of Gerrit needs another jar: run again, enable exchanges it.
func TestAfterAnUpgradeOfGerritTheJarIsExchanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newGerrit(t, "a")
	g.serve(t)
	g.gerrit(t, "enable", "--yes").is(t, exit.OK, "")
	fakeWAR(t, filepath.Join(g.path, "bin/gerrit.war"), "v3.13.5-2-gabcdef\n")
	g.gerrit(t, "enable", "--yes").is(t, exit.Failed, "is for Gerrit from 3.9 on: Gerrit 3.13.5-2-gabcdef needs globalrefdb-gerrit-3.13.jar")
	g.jar = filepath.Join(g.dir, "globalrefdb-gerrit-3.13.jar")
	fakeJar(t, g.jar, "3.13", "1")
	g.gerrit(t, "enable", "--yes").is(t, exit.OK, "3 repositories guarded")
	jars, _ := filepath.Glob(filepath.Join(g.path, "lib/*"))
	if fmt.Sprint(jars) != "["+g.path+"/lib/globalrefdb-gerrit-3.13.jar]" {
		t.Errorf("lib has %v", jars)
	}
}

// Rules of projects that leave patch sets or drafts out are changed, as project set does it, and recorded.
func TestRulesThatLeavePatchSetsOutAreChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newGerrit(t, "a")
	g.configure(t, "store = none", "[guard]", "ref = refs/heads/*")
	g.serve(t)
	g.site(t, "enable", "--new", "team/app", "--hook", g.hook).is(t, exit.OK, "")
	g.configure(t, "store = none", "gerrit = "+g.path)
	g.gerrit(t, "enable", "-n").is(t, exit.OK, "")
	if p := w.do(t, "project", "show", "team/app", "-o", "json"); strings.Contains(p, "alsoRef") {
		t.Errorf("a dry run has changed the rules: %s", p)
	}
	g.gerrit(t, "enable", "--yes").is(t, exit.OK, "all sites refuse pushes to 1 project for 20s")
	p := decode[struct{ Rules string }](t, w.do(t, "project", "show", "team/app", "-o", "json"))
	if p.Rules != "ref refs/heads/*; alsoRef refs/changes/*; alsoRef refs/draft-comments/*" {
		t.Errorf("the rules are %q", p.Rules)
	}
	if got := w.do(t, "refs", "get", "team/app", "refs/changes/01/1/1"); got != g.repo.commit+"\n" {
		t.Errorf("the patch set is %q in the database", got)
	}
	if audit := w.do(t, "audit", "list", "--project", "team/app"); !strings.Contains(audit, "gerrit enable") {
		t.Errorf("the audit has %s", audit)
	}
	w.do(t, "project", "set", "team/app", "--skip-ref", "refs/changes/*")
	g.gerrit(t, "enable", "--yes").is(t, exit.Failed, "project team/app: its rules leave out refs/changes/* and refs/draft-comments/*")
}

// What is missing in the site's configuration is written there, and the daemon reads it.
func TestTheSitesConfigurationIsCompleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newGerrit(t, "a")
	g.configure(t, "[guard]", "skipRef = refs/heads/wip/*")
	w.serving(t, g.config)
	g.serves(t)
	g.gerrit(t, "enable", "-n").is(t, exit.OK, "")
	if got := git(t, g.dir, "config", "-f", g.config, "--default", "", "site.gerrit"); got != "" {
		t.Errorf("a dry run has set site.gerrit = %s", got)
	}
	r := g.gerrit(t, "enable", "--yes", "-o", "json")
	r.is(t, exit.OK, "")
	if got := git(t, g.dir, "config", "-f", g.config, "--get-regexp", "site.gerrit|guard.*"); got != "site.gerrit "+g.path+
		"\nguard.skipref refs/heads/wip/*\nguard.alsoref refs/changes/*\nguard.alsoref refs/draft-comments/*" {
		t.Errorf("the configuration has %s", got)
	}
	if s := g.serves(t); s.Gerrit == nil || s.Gerrit.Path != g.path {
		t.Errorf("the daemon watches %+v", s.Gerrit)
	}
	g.gerrit(t, "disable", "--yes").is(t, exit.OK, "")
	if s := g.serves(t); s.Gerrit != nil {
		t.Errorf("the daemon watches %+v after disable", s.Gerrit)
	}
}

// Bad input is one clear line, and nothing is changed.
func TestEnableRefusesBeforeAnyWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := w.newGerrit(t, "a")
	site.serve(t)
	restore := site.keep(t)
	for _, c := range []struct {
		name, says string
		spoil      func(*testing.T, *gerritDir)
	}{
		{"not a Gerrit", "is not the site directory of a Gerrit: it has no etc/gerrit.config", func(t *testing.T, g *gerritDir) { os.Remove(filepath.Join(g.path, "etc/gerrit.config")) }},
		{"no such directory", "is not the site directory of a Gerrit", func(t *testing.T, g *gerritDir) { os.Rename(g.path, g.path+".away"); g.path += ".no" }},
		{"a configuration that can't be read", "gerrit.config: git says: bad config line 1", func(t *testing.T, g *gerritDir) { g.write(t, "etc/gerrit.config", "[gerrit\n") }},
		{"another one that can't be read", "jgit.config: git says: bad config line 1", func(t *testing.T, g *gerritDir) { g.write(t, "etc/jgit.config", "[gerrit\n") }},
		{"a version that was never tried", "the guard is for Gerrit 3.9 to 3.14: 3.15.0 was never tried", func(t *testing.T, g *gerritDir) { fakeWAR(t, g.path+"/bin/gerrit.war", "v3.15.0") }},
		{"an old version", "3.8.1 was never tried", func(t *testing.T, g *gerritDir) { fakeWAR(t, g.path+"/bin/gerrit.war", "3.8.1") }},
		{"no version", "(dev)", func(t *testing.T, g *gerritDir) { fakeWAR(t, g.path+"/bin/gerrit.war", "(dev)") }},
		{"no WAR", "the WAR of Gerrit, which tells its version", func(t *testing.T, g *gerritDir) { os.Remove(g.path + "/bin/gerrit.war") }},
		{"no ZIP", "reading the version of the Gerrit", func(t *testing.T, g *gerritDir) { g.write(t, "bin/gerrit.war", "x") }},
		{"another WAR", "is no Gerrit", func(t *testing.T, g *gerritDir) { writeZip(t, g.path+"/bin/gerrit.war", nil) }},
		{"another jar", "is not the guard's jar", func(t *testing.T, g *gerritDir) { writeZip(t, g.jar, nil) }},
		{"no jar", "globalrefdb-gerrit-3.9.jar: no such file", func(t *testing.T, g *gerritDir) { os.Remove(g.jar) }},
		{"a jar for another series", "needs globalrefdb-gerrit-3.9.jar", func(t *testing.T, g *gerritDir) { fakeJar(t, g.jar, "3.13", "1") }},
		{"other repositories than the site's", "(gerrit.basePath), those of the site in", func(t *testing.T, g *gerritDir) { g.write(t, "etc/gerrit.config", "[gerrit]\n\tbasePath = etc\n") }},
		{"no repositories at all", "gerrit.basePath is not set", func(t *testing.T, g *gerritDir) { g.write(t, "etc/gerrit.config", "[gerrit]\n") }},
		{"repositories that are not there", "gerrit.basePath: ", func(t *testing.T, g *gerritDir) { g.write(t, "etc/gerrit.config", "[gerrit]\n\tbasePath = gone\n") }},
		{"no daemon", "start it: systemctl start refdb-site", func(t *testing.T, g *gerritDir) { g.configureSocket(t, g.dir+"/none") }},
		{"a socket that is no daemon's", "does not answer", func(t *testing.T, g *gerritDir) { g.configureSocket(t, g.deafSocket(t)) }},
		{"another site's daemon", "belongs to site a, not to b", func(t *testing.T, g *gerritDir) { git(t, g.dir, "config", "-f", g.config, "site.name", "b") }},
		{"Gerrit runs", "a Gerrit runs in ", func(t *testing.T, g *gerritDir) { g.start(t, "") }},
		{"multi-site", "another ref database guards this Gerrit: remove gerrit.installDbModule = com.googlesource.gerrit.plugins.multisite.GitModule, lib/multi-site.jar, plugins/zookeeper-refdb.jar first",
			func(t *testing.T, g *gerritDir) {
				g.write(t, "lib/multi-site.jar", "")
				g.write(t, "plugins/zookeeper-refdb.jar", "")
				git(t, g.dir, "config", "-f", g.path+"/etc/gerrit.config", "gerrit.installDbModule", "com.googlesource.gerrit.plugins.multisite.GitModule")
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			restore(t)
			at := *site
			g := &at
			c.spoil(t, g)
			before := map[string]string{}
			if _, err := os.Stat(g.path); err == nil {
				before = g.files(t)
			}
			r := within(time.Second, func(limit string) result {
				if c.name != "a socket that is no daemon's" {
					limit = patience.String()
				}
				return g.gerrit(t, "enable", "--yes", "--timeout", limit)
			}, c.says)
			r.is(t, exit.Failed, c.says)
			r.isOneLine(t)
			if _, err := os.Stat(g.path); err == nil && !maps.Equal(before, g.files(t)) {
				t.Error("files were changed")
			}
			if out := w.do(t, "project", "list"); strings.Contains(out, "team/app") {
				t.Errorf("the database knows %s", out)
			}
		})
	}
}

// Whatever an interruption leaves, the next run brings to its end.
func TestEnableIsRunAgainAfterAnInterruption(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newGerrit(t, "a")
	g.serve(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	asking := *w
	asking.wrap = func(d refdb.Driver) refdb.Driver {
		return interrupting{d, "All-Users", func() { cancel(&exit.Interrupted{Signal: syscall.SIGINT}) }, nil}
	}
	asking.runIn(t, ctx, g.gerritArgs("enable", "--yes")...).is(t, exit.BySignal+int(syscall.SIGINT), "run the command again to continue")
	g.has(t, guardedGerrit) // no Gerrit that starts now is unguarded
	g.gerrit(t, "enable", "--yes").is(t, exit.OK, "3 repositories guarded")
	g.gerrit(t, "enable", "--yes").is(t, exit.OK, "nothing was changed")
	g.site(t, "check", "--all").is(t, exit.OK, "0 findings")

	// Half of the files: a leftover of a writer, the modules without the jar.
	g.write(t, "etc/.refdb-123", "x")
	os.Remove(filepath.Join(g.path, "lib/globalrefdb-gerrit-3.9.jar"))
	os.Remove(filepath.Join(g.path, "etc/jgit.config"))
	g.gerrit(t, "enable", "--yes").is(t, exit.OK, "3 repositories guarded, 0 refs imported")
	g.has(t, guardedGerrit)
}
