package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// firstSite is a guarded Gerrit, and a copy of what a second site needs of it.
func firstSite(t *testing.T, w *world) (g *gerritDir, etc string) {
	t.Helper()
	g = guardedStoring(t, w)
	g.write(t, "etc/ssh_host_ed25519_key", "the host's key")
	g.write(t, "plugins/delete-project.jar", "a plugin")
	g.write(t, "static/logo.png", "a picture")
	g.write(t, "lib/bcprov.jar", "a library")
	return g, g.path
}

func guardedStoring(t *testing.T, w *world) *gerritDir {
	t.Helper()
	g := w.newGerrit(t, "eu")
	g.serve(t)
	g.gerrit(t, "enable", "--yes").is(t, exit.OK, "3 repositories guarded")
	return g
}

// A secondSite has no Gerrit yet. Its java is a script.
type secondSite struct {
	*gerritDir
	etc, war, java string
}

// init is what java does for init in a site directory, $path.
const initScript = `mkdir -p "$path/bin" "$path/index" && cp "$war" "$path/bin/gerrit.war"
git config -f "$path/etc/gerrit.config" index.type lucene
git config -f "$path/etc/secure.config" auth.restTokenPrivateKey verysecret
echo new > "$path/etc/mail.config"
`

func (w *world) secondSite(t *testing.T, name, etc, script string) *secondSite {
	t.Helper()
	s := w.newSite(t, name)
	if err := os.RemoveAll(filepath.Join(s.dir, "git")); err != nil {
		t.Fatal(err)
	}
	g := &gerritDir{gitSite: s, path: filepath.Join(s.dir, "gerrit"), jar: filepath.Join(s.dir, "globalrefdb-gerrit-3.9.jar")}
	fakeJar(t, g.jar, "3.9", "1")
	two := &secondSite{gerritDir: g, etc: etc, war: filepath.Join(s.dir, "gerrit-3.9.4.war"), java: filepath.Join(s.dir, "java")}
	if err := os.MkdirAll(filepath.Join(g.path, "git"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(g.config, fmt.Appendf(nil, "[site]\nname = %s\nroot = %s/git\nsocket = %s/s\nstate = %s\n"+patientSite+"gerrit = %s\n[guard]\nalsoRef = refs/changes/*\nalsoRef = refs/draft-comments/*\n",
		name, g.path, g.dir, g.dir, g.path), 0o644); err != nil {
		t.Fatal(err)
	}
	fakeWAR(t, two.war, "v3.9.4\n")
	two.setJava(t, script)
	g.serve(t)
	return two
}

// setJava replaces java by a script, which checks its arguments, and gets $war and $path.
func (s *secondSite) setJava(t *testing.T, script string) {
	t.Helper()
	text := "#!/bin/sh -e\n[ \"$1 $3 $4 $5 $6\" = '-jar init --batch --no-auto-start -d' ]\nwar=$2 path=$7\n" + script
	writeProgram(t, s.java, text)
}

func (s *secondSite) joinArgs(args ...string) []string {
	return s.gerritArgs("join", append([]string{"--war", s.war, "--etc", s.etc, "--java", s.java}, args...)...)
}

func (s *secondSite) join(t *testing.T, args ...string) result {
	t.Helper()
	return s.run(t, s.joinArgs(args...)...)
}

func TestASecondSiteJoins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	eu, etc := firstSite(t, w)
	us := w.secondSite(t, "us", etc, initScript)
	r := us.join(t, "-o", "json")
	r.is(t, exit.OK, "then start Gerrit")
	got := decode[gerritReport](t, r.out)
	if !got.Complete || got.Cloned != 3 || got.Files < 6 {
		t.Errorf("%+v", got)
	}
	us.has(t, map[string]string{
		"etc/gerrit.config gerrit.instanceId": "gerrit-us", "etc/gerrit.config gerrit.serverId": gerritServerID, "etc/gerrit.config refdb.socket": us.dir + "/s",
		"etc/gerrit.config gerrit.basePath": us.path + "/git", "etc/gerrit.config gerrit.installDbModule": "com.github.globalrefdb.gerrit.DbModule",
		"etc/gerrit.config gerrit.installModule": "com.example.Other com.github.globalrefdb.gerrit.SysModule", "etc/gerrit.config gerrit.canonicalWebUrl": "http://eu/",
		"etc/jgit.config core.fsyncRefFiles": "true", "etc/secure.config auth.registerEmailPrivateKey": "secret",
	})
	files := us.files(t)
	for name, text := range map[string]string{"etc/ssh_host_ed25519_key": "the host's key", "plugins/delete-project.jar": "a plugin", "static/logo.png": "a picture", "lib/bcprov.jar": "a library"} {
		if files[name] != text {
			t.Errorf("%s is %q, not the first site's", name, files[name])
		}
	}
	if info, err := os.Stat(filepath.Join(us.path, "etc/secure.config")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("secure.config: %v, %v", info, err)
	}
	// What init has changed in the copy is named, without secrets.
	changes := fmt.Sprint(got.Changes)
	for _, change := range []string{"{etc/gerrit.config (by init) index.type  lucene}", "{etc/secure.config (by init) auth.resttokenprivatekey  (not shown)}", "{etc/mail.config (by init)   made}"} {
		if !strings.Contains(changes, change) {
			t.Errorf("no %s in %s", change, changes)
		}
	}
	if strings.Contains(r.out+r.err, "verysecret") {
		t.Error("a secret is shown")
	}
	for _, project := range []string{"team/app", "All-Projects", "All-Users"} {
		refs := func(g *gerritDir, root string) string {
			return git(t, filepath.Join(root, project+".git"), "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads", "refs/changes", "refs/users", "refs/sequences", "refs/draft-comments")
		}
		if a, b := refs(eu, eu.dir+"/git"), refs(us.gerritDir, us.path+"/git"); a == "" || a != b {
			t.Errorf("%s has\n%s\nat the first site\n%s", project, b, a)
		}
	}
	if codes, all := us.codes(t); len(codes) > 0 {
		t.Errorf("check finds %+v", all.Findings)
	}
	us.join(t).is(t, exit.OK, "has already joined: nothing was changed")
	if !maps.Equal(files, us.files(t)) {
		t.Error("the second join has changed files")
	}
	us.start(t, "3.9.4")
	if codes, all := us.codes(t); len(codes) > 0 {
		t.Errorf("check finds %+v, once Gerrit runs", all.Findings)
	}
}

// Gerrit lists each repository below its root. One that the daemon is making vanishes while Gerrit indexes it.
func TestAJoinWaitsForTheDaemonsClonesBeforeInit(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a join that begins while the daemon clones; make test-all runs it")
	}
	t.Parallel()
	w := newWorld(t)
	_, etc := firstSite(t, w)
	us := w.secondSite(t, "us", etc, initScript)
	unfinished := filepath.Join(us.path, "git", config.UnfinishedDir, config.Unfinished+"1")
	us.setJava(t, initScript+"[ ! -e "+unfinished+" ]\n")
	joined := make(chan result, 1)
	go func() { joined <- us.join(t) }()
	eventually(t, "the join has begun", func() bool { return os.MkdirAll(unfinished, 0o755) == nil })
	eventually(t, "all but init is done", func() bool {
		_, err := os.Stat(filepath.Join(us.path, "git", "team", "app.git", "HEAD"))
		return err == nil
	})
	if err := os.Remove(unfinished); err != nil {
		t.Fatal(err)
	}
	(<-joined).is(t, exit.OK, "then start Gerrit")
}

// Gerrit's init says nothing of an index that it could not build, and Gerrit does not start then.
func TestAJoinIsNotCompleteWithoutItsIndexes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, etc := firstSite(t, w)
	index := func(ready string) string {
		return `git config -f "$path/index/gerrit_index.config" index.changes_0084.ready ` + ready + "\n"
	}
	us := w.secondSite(t, "us", etc, initScript+index("false"))
	us.join(t).is(t, exit.Failed, "init has not built changes_0084: ")
	us.setJava(t, initScript+index("true"))
	us.join(t).is(t, exit.OK, "init builds the indexes")
}

// Interrupted anywhere, a join goes on when it is run again.
func TestAJoinIsRunAgainAfterAnInterruption(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, etc := firstSite(t, w)
	started := filepath.Join(t.TempDir(), "started")
	us := w.secondSite(t, "us", etc, "touch "+started+"; exec sleep 1000\n")

	// While init runs, which ends with it.
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan result, 1)
	go func() { ended <- us.runIn(t, ctx, us.joinArgs()...) }()
	eventually(t, "init runs", func() bool { _, err := os.Stat(started); return err == nil })
	cancel(&exit.Interrupted{Signal: syscall.SIGINT})
	r := <-ended
	r.is(t, exit.BySignal+int(syscall.SIGINT), "")
	us.setJava(t, "false\n")

	// While projects are cloned: one is not there.
	if err := os.Rename(filepath.Join(us.path, "git/All-Users.git"), filepath.Join(t.TempDir(), "away")); err != nil {
		t.Fatal(err)
	}

	// Init fails, before and after what it writes.
	us.join(t).is(t, exit.Failed, "logs/refdb-init.log, then run this command again")
	us.setJava(t, initScript+"echo out of memory; exit 3\n")
	us.join(t).is(t, exit.Failed, "init failed (exit status 3)")
	if log := us.files(t)["logs/refdb-init.log"]; log != "out of memory\n" {
		t.Errorf("the log has %q", log)
	}
	// An earlier run has copied half of it.
	if err := errors.Join(os.Remove(filepath.Join(us.path, "lib/bcprov.jar")), os.RemoveAll(filepath.Join(us.path, "plugins"))); err != nil {
		t.Fatal(err)
	}
	// What was edited meanwhile stays.
	git(t, us.dir, "config", "-f", filepath.Join(us.path, "etc/gerrit.config"), "gerrit.canonicalWebUrl", "http://us/")
	us.setJava(t, initScript)
	us.join(t).is(t, exit.OK, "then start Gerrit")
	us.has(t, map[string]string{"etc/gerrit.config gerrit.canonicalWebUrl": "http://us/"})
	if files := us.files(t); files["lib/bcprov.jar"] == "" || files["plugins/delete-project.jar"] == "" || us.value(t, "etc/gerrit.config", "gerrit.instanceId") != "gerrit-us" {
		t.Errorf("files: %v", slices.Sorted(maps.Keys(files)))
	}
	if codes, all := us.codes(t); len(codes) > 0 {
		t.Errorf("check finds %+v", all.Findings)
	}
}

// Init must move no ref: what it moves past the guard no other site has.
func TestAJoinFailsIfInitMovesRefs(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a join whose init moves refs of the copy; make test-all runs it")
	}
	t.Parallel()
	w := newWorld(t)
	_, etc := firstSite(t, w)
	const past = `git -C "$path/git/All-Users.git" -c core.hooksPath=/dev/null `
	us := w.secondSite(t, "us", etc, initScript+past+"update-ref refs/users/01/1000001 refs/users/00/1000000\n"+past+"update-ref -d refs/draft-comments/01/1/1000000\n")
	// The daemon would bring the deleted one back.
	git(t, us.dir, "config", "-f", us.config, "site.store", "none")
	us.daemonPatience = 200 * time.Millisecond // a daemon that does not follow changes nothing later
	us.join(t).is(t, exit.Failed, "refs of All-Users differ from the database, for example because init moved them without the guard: ")
	us.setJava(t, initScript)
	us.join(t).is(t, exit.Failed, "refs of All-Users differ from the database") // also if this init moves nothing
	if _, err := os.Stat(filepath.Join(us.path, ".refdb-join")); err != nil {
		t.Errorf("the join counts as ended: %v", err)
	}
}

// What other sites move while init runs, and this site follows, is not init's.
func TestAJoinDoesNotMindWhatOtherSitesMove(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a join while another site moves refs; make test-all runs it")
	}
	t.Parallel()
	w := newWorld(t)
	eu, etc := firstSite(t, w)
	us := w.secondSite(t, "us", etc, initScript)
	theirs := eu.dir + "/git/All-Users.git"
	us.setJava(t, initScript+"git -C "+theirs+" push -q "+theirs+" refs/users/00/1000000:refs/users/02/1000002\n"+
		"until git -C \"$path/git/All-Users.git\" rev-parse -q --verify refs/users/02/1000002; do sleep 0.05; done\n")
	us.join(t).is(t, exit.OK, "then start Gerrit")
}

func TestJoinRefusesBeforeAnyWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, etc := firstSite(t, w)
	for i, c := range []struct {
		name, says string
		spoil      func(*testing.T, *secondSite)
	}{
		{"no WAR", "the WAR of Gerrit, which tells its version", func(t *testing.T, s *secondSite) { s.war += ".no" }},
		{"a version that was never tried", "3.15.0 was never tried", func(t *testing.T, s *secondSite) { fakeWAR(t, s.war, "v3.15.0") }},
		{"a WAR of another series than the jar", "needs globalrefdb-gerrit-3.13.jar", func(t *testing.T, s *secondSite) { fakeWAR(t, s.war, "v3.13.5") }},
		{"no copy", "is not the site directory of a Gerrit", func(t *testing.T, s *secondSite) { s.etc = s.dir + "/no" }},
		{"etc itself", "it seems to be etc itself: name the directory above", func(t *testing.T, s *secondSite) { s.etc += "/etc" }},
		{"a copy of a Gerrit that has never run", "gerrit.serverId is missing", func(t *testing.T, s *secondSite) { s.copyOf(t, "--unset", "gerrit.serverId") }},
		{"a copy of a Gerrit without the guard", "the first site's Gerrit is not guarded", func(t *testing.T, s *secondSite) { s.copyOf(t, "--unset", "gerrit.installDbModule") }},
		{"a copy of another Gerrit", "the database has no project Everything", func(t *testing.T, s *secondSite) { s.copyOf(t, "gerrit.allProjects", "Everything") }},
		{"no java", "java, which runs init", func(t *testing.T, s *secondSite) { s.java += ".no" }},
		{"no daemon", "start it: systemctl start refdb-site", func(t *testing.T, s *secondSite) { s.configureSocket(t, s.dir+"/none") }},
		{"a directory that is in use", "has logs: a second site begins in a directory that is new", func(t *testing.T, s *secondSite) { s.write(t, "logs/error_log", "") }},
		{"another Gerrit", "has etc: a second site begins in a directory that is new", func(t *testing.T, s *secondSite) { s.write(t, "etc/gerrit.config", "") }},
		{"Gerrit runs", "a Gerrit runs in ", func(t *testing.T, s *secondSite) { s.start(t, "") }},
		{"no root", "the site has no root: set site.root", func(t *testing.T, s *secondSite) { git(t, s.dir, "config", "-f", s.config, "--unset", "site.root") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := w.secondSite(t, fmt.Sprintf("us-%d", i), etc, "exit 1\n")
			c.spoil(t, s)
			before := s.files(t)
			r := s.join(t)
			r.is(t, exit.Failed, c.says)
			r.isOneLine(t)
			if !maps.Equal(before, s.files(t)) {
				t.Error("files were changed")
			}
		})
	}
	s := w.secondSite(t, "us", etc, "")
	s.gerrit(t, "join").is(t, exit.Misuse, "--war and --etc are required")
}

// copyOf lets the copy be one of its own, with another gerrit.config.
func (s *secondSite) copyOf(t *testing.T, change ...string) {
	t.Helper()
	to := filepath.Join(s.dir, "copy")
	if out, err := exec.Command("cp", "-a", s.etc, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.etc = to
	git(t, s.dir, append([]string{"config", "-f", filepath.Join(to, "etc/gerrit.config")}, change...)...)
}

// Projects without objects in the database can't be cloned.
func TestAJoinNeedsTheObjectsOfAllProjects(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a join to projects whose objects the database does not keep; make test-all runs it")
	}
	t.Parallel()
	w := newWorld(t)
	g := guardedAt(t, w, "eu")
	us := w.secondSite(t, "us", g.path, initScript)
	us.join(t).is(t, exit.Failed, "the database does not keep the objects of All-Projects; All-Users; team/app: run refdbctl site store start at the first site")
}
