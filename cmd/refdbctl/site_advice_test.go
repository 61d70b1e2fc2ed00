package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	sitecheck "github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

// An advised site is one whose operator does what it is told.
type advised struct {
	*gitSite
	testing.TB
	other *gitSite // that has the project, too
	stop  func()
}

// finding returns the only finding of the site, which has that code; nil if code is "" and there is none.
func (a *advised) finding(code string) *sitecheck.Finding {
	a.Helper()
	var found []sitecheck.Finding
	r := a.site(a, "check", "--hook", a.hook, "-o", "json")
	for _, f := range decode[struct {
		Findings []struct{ Project, Code, Subject, Detail string }
	}](a, r.out).Findings {
		found = append(found, sitecheck.Finding{Project: f.Project, Code: f.Code, Subject: f.Subject, Detail: f.Detail})
	}
	switch {
	case code == "" && len(found) == 0:
		return nil
	case len(found) == 1 && found[0].Code == code:
		return &found[0]
	}
	a.Fatalf("check finds %+v, and not %q: %s", found, code, r.err)
	return nil
}

// carriesOut does literally what is between back quotes in an advice, and between two numbers of them.
func (a *advised) carriesOut(advice string, from, upto int) {
	a.Helper()
	commands := regexp.MustCompile("`[^`]+`").FindAllString(advice, -1)
	if len(commands) < upto {
		a.Fatalf("there are %d commands in %q", len(commands), advice)
	}
	for _, command := range commands[from:upto] {
		command = strings.Trim(command, "`")
		words := shellWords(a, strings.ReplaceAll(command, "URL", a.other.repo.path))
		switch {
		case strings.HasPrefix(command, "[repository "):
			a.reconfigure(strings.Replace(command, "] ", "]\n", 1))
		case words[0] != "refdbctl":
			out, err := exec.Command("sh", "-c", command).CombinedOutput()
			if err != nil {
				a.Errorf("%s: %v: %s", command, err, out)
			}
		default:
			if words[1] == "site" {
				words = append(words, "--config", a.config)
				if words[2] == "enable" || words[2] == "check" {
					words = append(words, "--hook", a.hook)
				}
			}
			if words[1] == "project" && words[2] == "remove" || words[1] == "locks" && words[2] == "resolve" {
				words = append(words, "--yes") // the answer to the confirmation
			}
			if r := a.run(a, words[1:]...); r.code != exit.OK {
				a.Errorf("%s: %d: %s%s", command, r.code, r.err, r.out)
			}
		}
	}
}

// shellWords returns the words of a command line.
func shellWords(tb testing.TB, line string) []string {
	tb.Helper()
	if !strings.Contains(line, "'") {
		return strings.Fields(line)
	}
	out, err := exec.Command("sh", "-c", `printf '%s\n' `+line).Output()
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// reconfigure adds lines to the configuration, which the daemon reads.
func (a *advised) reconfigure(lines string) {
	a.Helper()
	text, err := os.ReadFile(a.config)
	if err == nil {
		err = os.WriteFile(a.config, append(text, lines+"\n"...), 0o644)
	}
	if err != nil {
		a.Fatal(err)
	}
	a.stop()
	a.stop = a.serve(a)
}

// hooksElsewhere lets a file that the repository's configuration includes after all else set core.hooksPath.
func (a *advised) hooksElsewhere(path string) {
	a.Helper()
	included := filepath.Join(a.dir, "included")
	if err := os.WriteFile(included, []byte("[core]\n\thooksPath = "+path+"\n"), 0o644); err != nil {
		a.Fatal(err)
	}
	a.quietly("config", "--add", "include.path", included)
}

// quietly runs git in the site's repository without the hooks.
func (a *advised) quietly(args ...string) {
	a.Helper()
	git(a, a.repo.path, append([]string{"-c", "core.hooksPath=/dev/null"}, args...)...)
}

func (a *advised) renames(from, to string) {
	a.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		a.Fatal(err)
	}
	if err := os.Rename(from, to); err != nil {
		a.Fatal(err)
	}
}

// empties has a power cut leave an empty file in the place of a ref's.
func (a *advised) empties(ref string) {
	a.Helper()
	a.quietly("pack-refs", "--all")
	if err := os.WriteFile(filepath.Join(a.repo.path, ref), nil, 0o644); err != nil {
		a.Fatal(err)
	}
}

// path returns the path of a project's repository.
func (a *advised) path(project string) string { return filepath.Join(a.dir, "git", project+".git") }

func newAdvised(t *testing.T, more string) *advised {
	t.Helper()
	w := newWorld(t)
	s, other := w.newSite(t, "eu", mainRef), w.newSite(t, "us")
	a := &advised{gitSite: s, TB: t, other: other, stop: s.serve(t)}
	if more != "" {
		a.reconfigure(more)
	}
	git(t, other.repo.path, "fetch", "--quiet", s.repo.path, "+refs/*:refs/*")
	a.site(t, "enable", "--new", "team/app", "--hook", a.hook).is(t, exit.OK, "")
	a.finding("")
	return a
}

// Following the advice in a finding removes the finding.
func TestTheAdviceOfAFindingWorks(t *testing.T) {
	t.Parallel()
	type row struct {
		short  bool   // it is not left out
		more   string // of the configuration
		breaks func(a *advised)
		code   string
		// Alternatives are the numbers of the commands, from one to another, that the advice has for one way out; or what it says without a command.
		alternatives []any
	}
	one := []any{[2]int{0, 1}}
	moves := func(a *advised) { a.renames(a.repo.path, a.path("tools/app")) }
	rows := map[string]row{
		"a symbolic ref": {breaks: func(a *advised) { a.quietly("symbolic-ref", "refs/remotes/origin/HEAD", mainRef) }, code: sitecheck.Symref, alternatives: one},
		"a symbolic ref with a quote in its name": {breaks: func(a *advised) { a.quietly("symbolic-ref", "refs/heads/o'brien$x", mainRef) }, code: sitecheck.Symref, alternatives: one},
		"a symbolic ref to nothing":               {breaks: func(a *advised) { a.quietly("symbolic-ref", "refs/heads/d", "refs/heads/nothere") }, code: sitecheck.Symref, alternatives: one},
		"a symbolic ref to nothing, in the way of a branch": {breaks: func(a *advised) {
			a.quietly("symbolic-ref", "refs/heads/d", "refs/heads/nothere")
			a.InsertRef(a, "team/app", "refs/heads/d", refdb.Value(a.repo.commit))
		}, code: sitecheck.Symref, alternatives: []any{func(a *advised, f *sitecheck.Finding) {
			a.carriesOut(f.Detail, 0, 1)
			f = a.finding(sitecheck.GlobalMissingHere)
			a.carriesOut(f.Detail, 0, 1)
		}}},
		"a ref that the database does not know": {breaks: func(a *advised) { a.quietly("update-ref", "refs/heads/x", a.repo.commit) }, code: sitecheck.LocalUnknown,
			alternatives: []any{[2]int{0, 1}, [2]int{1, 2}}},
		"a ref that is not here": {breaks: func(a *advised) { a.quietly("update-ref", "-d", mainRef) }, code: sitecheck.GlobalMissingHere, alternatives: one},
		"a ref that is not here, in a project that follows": {more: "[site]\nstore = all", breaks: func(a *advised) { a.quietly("update-ref", "-d", mainRef) },
			code: sitecheck.GlobalMissingHere, alternatives: one},
		"a remote that is fetched into the branches": {breaks: func(a *advised) { a.quietly("remote", "add", "--mirror=fetch", "up.stream", a.other.repo.path) },
			code: sitecheck.GuardedFetch, alternatives: []any{[2]int{0, 1}, [2]int{1, 2}}},
		"a remote that another site is to fetch": {breaks: func(a *advised) {
			a.quietly("remote", "add", "--mirror=fetch", "upstream", a.other.repo.path)
			a.InsertRef(a, presence.Project, "refs/sites/us", "generation")
			a.run(a, "project", "set", "team/app", "--mirror-at", "us").is(a, exit.OK, "")
		}, code: sitecheck.GuardedFetch, alternatives: one},
		"HEAD that an earlier version served, and an unknown authoritative value": {short: true, more: "[site]\nstore = all", breaks: func(a *advised) {
			a.stop()
			a.quietly("symbolic-ref", "HEAD", "refs/heads/trunk")
			if err := os.Remove(filepath.Join(a.repo.path, "refdb/head")); err != nil {
				a.Fatal(err)
			}
			a.stop = a.serve(a)
		}, code: sitecheck.HeadDiffers, alternatives: []any{[2]int{0, 1}, [2]int{1, 2}}},
		"a ref in the way of a peer": {breaks: func(a *advised) { a.quietly("update-ref", "refs/peer/us", a.repo.commit) }, code: sitecheck.PeerRef, alternatives: one},
		"a repository that was moved": {breaks: moves, code: sitecheck.Moved, alternatives: []any{
			[2]int{0, 1}, // a path in the configuration
			[2]int{1, 3}, // a project of its own
			func(a *advised, f *sitecheck.Finding) { // "move it back to"
				to := regexp.MustCompile(`move it back to (\S+),`).FindStringSubmatch(f.Detail)
				if to == nil || to[1] != a.repo.path {
					a.Fatalf("where it belongs is not said: %s", f.Detail)
				}
				a.renames(a.path("tools/app"), to[1])
			},
		}},
		"a repository that was copied": {short: true, breaks: func(a *advised) {
			if out, err := exec.Command("cp", "-a", a.repo.path, a.path("team/copy")).CombinedOutput(); err != nil {
				a.Fatalf("%v: %s", err, out)
			}
		}, code: sitecheck.Moved, alternatives: []any{
			[2]int{0, 2},
			func(a *advised, _ *sitecheck.Finding) { a.renames(a.path("team/copy"), filepath.Join(a.dir, "away")) },
		}},
		"a repository that was never put under guard": {breaks: func(a *advised) { a.renames(newRepo(a, mainRef).path, a.path("new")) }, code: sitecheck.NotGuarded,
			alternatives: []any{[2]int{0, 1}, [2]int{1, 2}}},
		"an empty one, of a project that was here": {breaks: func(a *advised) {
			a.renames(a.repo.path, filepath.Join(a.dir, "away"))
			a.renames(newRepo(a).path, a.repo.path)
		}, code: sitecheck.NotGuarded, alternatives: []any{
			func(a *advised, f *sitecheck.Finding) {
				a.carriesOut(f.Detail, 0, 1)
				f = a.finding(sitecheck.GlobalMissingHere)
				a.carriesOut(f.Detail, 0, 1)
			},
			[2]int{1, 2},
		}},
		"a repository whose guard was ended": {breaks: func(a *advised) {
			a.site(a, "disable", "team/app").is(a, exit.OK, "")
			a.site(a, "check").is(a, exit.OK, "checked 1 repository: 0 findings; 1 repository not compared, because not under guard")
			a.finding("") // it was said that nothing is to guard it
			a.quietly("config", "--unset", "refdb.disabled")
		}, code: sitecheck.NotGuarded, alternatives: []any{[2]int{0, 1}, [2]int{1, 2}}},
		"a project in mode log": {breaks: func(a *advised) {
			a.run(a, "project", "set", "team/app", "--mode", "log", "--reason", "x").is(a, exit.OK, "")
		},
			code: sitecheck.NotEnforced, alternatives: one},
		"a project without a base": {more: "[site]\nstore = all", breaks: func(a *advised) {
			a.Exec(a, "DELETE FROM packs")
			a.Exec(a, "DELETE FROM pack_parts")
		}, code: sitecheck.NoBase, alternatives: one},
		"hooks that git looks for elsewhere":                    {breaks: func(a *advised) { a.hooksElsewhere(filepath.Join(a.dir, "elsewhere")) }, code: install.HooksPath, alternatives: one},
		"hooks that git looks for in a relative place":          {breaks: func(a *advised) { a.hooksElsewhere("hooks") }, code: install.HooksPath, alternatives: one},
		"a ref file that is empty":                              {breaks: func(a *advised) { a.empties(mainRef) }, code: sitecheck.RefBroken, alternatives: one},
		"a ref file that is empty, of no ref of the database's": {breaks: func(a *advised) { a.empties("refs/heads/o'brien$x") }, code: sitecheck.RefBroken, alternatives: one},
		"a lock file that a git has left": {breaks: func(a *advised) {
			path := filepath.Join(a.repo.path, mainRef+".lock")
			old := time.Now().Add(-time.Hour)
			if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Chtimes(path, old, old)); err != nil {
				a.Fatal(err)
			}
		}, code: sitecheck.LeftoverLock, alternatives: one},
		"a push of another site that does not end": {breaks: func(a *advised) {
			a.prepare(a, "us", "team/app", refdb.Update{Ref: "refs/heads/x", New: refdb.Value(a.repo.commit)})
			a.Exec(a, "UPDATE intents SET time = time - ?", time.Hour.Microseconds())
		}, code: sitecheck.IntentPending, alternatives: []any{
			func(a *advised, f *sitecheck.Finding) { // "there"
				if !strings.Contains(f.Detail, "`refdbctl site repair` there") {
					a.Fatal(f.Detail)
				}
				a.other.site(a, "repair").is(a, exit.OK, "")
			},
			func(a *advised, f *sitecheck.Finding) {
				a.carriesOut(f.Detail, 1, 2)
				f = a.finding(sitecheck.GlobalMissingHere)
				a.carriesOut(f.Detail, 0, 1)
			},
			func(a *advised, f *sitecheck.Finding) {
				a.carriesOut(strings.Replace(f.Detail, "--take-new", "--keep-old", 1), 1, 2) // "else with --keep-old"
			},
		}},
		"the repository of a project that was removed": {breaks: func(a *advised) {
			a.run(a, "project", "remove", "team/app", "--yes").is(a, exit.OK, "")
			a.Exec(a, "UPDATE projects SET time = time - ?", time.Hour.Microseconds())
		}, code: sitecheck.ProjectRemoved, alternatives: []any{
			[2]int{0, 1},
			func(a *advised, _ *sitecheck.Finding) { a.renames(a.repo.path, filepath.Join(a.dir, "away")) }, // "move it out of site.root"
		}},
		"the daily maintenance does not come": {more: "[site]\nmaintain = daily", breaks: func(a *advised) {
			a.site(a, "maintain", "team/app").is(a, exit.OK, "")
			old := time.Now().Add(-9 * 24 * time.Hour)
			if err := os.Chtimes(filepath.Join(a.repo.path, "refdb", "maintained"), old, old); err != nil {
				a.Fatal(err)
			}
		}, code: sitecheck.NotMaintained, alternatives: one},
	}
	if os.Geteuid() == 0 {
		rows["a repository of another user"] = row{breaks: func(a *advised) {
			if err := os.Chown(a.repo.path, 65534, -1); err != nil {
				a.Fatal(err)
			}
		}, code: sitecheck.ForeignOwner, alternatives: one}
	}
	for name, row := range rows {
		for i, alternative := range row.alternatives {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				if testing.Short() && !row.short {
					t.Skip("left out by -short: the same with another finding; make test-all runs it")
				}
				t.Parallel()
				a := newAdvised(t, row.more)
				row.breaks(a)
				f := a.finding(row.code)
				t.Log(f.Detail)
				switch act := alternative.(type) {
				case [2]int:
					a.carriesOut(f.Detail, act[0], act[1])
				case func(*advised, *sitecheck.Finding):
					act(a, f)
				}
				eventually(t, "check is content", func() bool { r := a.site(t, "check", "--hook", a.hook); return r.code == exit.OK })
			})
		}
	}
}

// A repair never partly guards a repository that was not enabled.
func TestRepairIgnoresARepositoryThatWasNotEnabled(t *testing.T) {
	t.Parallel()
	a := newAdvised(t, "")
	a.renames(newRepo(t, mainRef).path, a.path("new"))
	files := func() string {
		out, err := exec.Command("sh", "-c", `cd "$0" && find . | sort | xargs ls -dl && cat config`, a.path("new")).CombinedOutput()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	before := files()
	a.site(t, "check", "--repair", "--hook", a.hook).is(t, exit.Failed, "1 finding")
	if after := files(); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

// What a program of the site can't serve is not put under guard.
func TestARepositoryOfAnotherUserIsNotEnabled(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make a repository of another user")
	}
	a := newAdvised(t, "")
	a.site(t, "disable", "team/app").is(t, exit.OK, "")
	if out, err := exec.Command("chown", "-R", "65534", a.repo.path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := a.site(t, "enable", "team/app", "--hook", a.hook)
	r.is(t, exit.Failed, "as root: chown -R 0 "+a.repo.path)
	if _, err := os.Lstat(filepath.Join(a.repo.path, "refdb", "socket")); err == nil {
		t.Error("it is under guard")
	}
	advice := strings.TrimSpace(r.err[strings.Index(r.err, "chown"):])
	if out, err := exec.Command("sh", "-c", advice).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, bytes.TrimSpace(out))
	}
	a.site(t, "enable", "team/app", "--hook", a.hook).is(t, exit.OK, "is guarded")
	a.finding("")
}

// Following the advice in a refusal makes the refused request possible.
func TestTheAdviceOfARefusalWorks(t *testing.T) {
	t.Parallel()
	const enable, push = "enable", "push"
	commit := func(a *advised) string { // at the other site
		a.Helper()
		return git(a, a.other.repo.path, "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", "more", "-p", mainRef, mainRef+"^{tree}")
	}
	// try pushes to the repository, or enables it, and returns why it was refused.
	try := func(a *advised, what string, args ...string) string {
		a.Helper()
		if what == enable {
			if r := a.site(a, append([]string{"enable", "--hook", a.hook}, args...)...); r.code != exit.OK {
				return r.err
			}
			return ""
		}
		out, err := exec.Command("git", "-C", a.other.repo.path, "push", "--quiet", args[0], args[1]).CombinedOutput()
		if err == nil {
			return ""
		}
		return strings.ReplaceAll(string(out), "\nremote: ", " ")
	}
	empty := func(a *advised) {
		a.renames(a.repo.path, filepath.Join(a.dir, "away"))
		a.renames(newRepo(a).path, a.repo.path)
	}
	leaves := func(a *advised, file string) { // as a program that was killed
		path := filepath.Join(a.repo.path, file)
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			a.Fatal(err)
		}
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			a.Fatal(err)
		}
	}
	locked := func(a *advised) { leaves(a, "config.lock") }
	later := func(a *advised) { a.Exec(a, "UPDATE projects SET time = time - ?", time.Hour.Microseconds()) }
	for name, row := range map[string]struct {
		breaks       func(a *advised)
		what         string
		args         func(a *advised) []string
		alternatives []func(a *advised, said string) // after which it is tried again
	}{
		"a name that is used again": {breaks: empty, what: enable, args: func(*advised) []string { return []string{"team/app"} }, alternatives: []func(*advised, string){
			func(a *advised, said string) { a.carriesOut(said, 0, 1) },
			func(a *advised, said string) { a.carriesOut(said, 1, 2); later(a) },
		}},
		"a project that is not new": {breaks: empty, what: enable, args: func(*advised) []string { return []string{"--new", "team/app"} }, alternatives: []func(*advised, string){
			func(a *advised, said string) { a.carriesOut(said, 0, 1) },
			func(a *advised, said string) { a.carriesOut(said, 1, 2); later(a) },
		}},
		"a ref with another value": {breaks: func(a *advised) {
			a.quietly("update-ref", mainRef, git(a, a.repo.path, "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", "another", mainRef+"^{tree}"))
		},
			what: enable, args: func(*advised) []string { return []string{"team/app"} }, alternatives: []func(*advised, string){
				func(a *advised, said string) {
					if !strings.Contains(said, "`refdbctl site check team/app`") {
						a.Errorf("it does not say where to look: %s", said)
					}
					a.carriesOut(a.finding(sitecheck.LocalDiffers).Detail, 0, 1)
				},
			}},
		"settings that are locked, after the guard was ended": {breaks: func(a *advised) { a.site(a, "disable", "team/app").is(a, exit.OK, ""); locked(a) }, what: enable,
			args: func(*advised) []string { return []string{"team/app"} }, alternatives: []func(*advised, string){
				func(a *advised, said string) { a.carriesOut(said, 0, 1) },
			}},
		"settings that are locked, of a repository that is new": {breaks: func(a *advised) {
			a.renames(a.repo.path, filepath.Join(a.dir, "away"))
			a.renames(newRepo(a, mainRef).path, a.repo.path)
			a.Exec(a, "DELETE FROM projects")
			a.Exec(a, "DELETE FROM refs")
			locked(a)
		}, what: enable, args: func(*advised) []string { return []string{"--new", "team/app"} }, alternatives: []func(*advised, string){
			func(a *advised, said string) {
				if !strings.Contains(said, "`refdbctl site check --repair "+a.repo.path+"`") {
					a.Errorf("it does not say what helps: %s", said)
				}
				a.site(a, "check", "--repair", a.repo.path, "--hook", a.hook).is(a, exit.Failed, "1 finding, and 1 mended") // it is not guarded yet
				a.carriesOut(try(a, enable, "--new", "team/app"), 0, 1)                                                     // the first one has made the project
			},
		}},
		"a ref that is locked": {breaks: func(a *advised) { leaves(a, mainRef+".lock") }, what: enable, args: func(*advised) []string { return []string{"team/app"} },
			alternatives: []func(*advised, string){func(a *advised, said string) { a.carriesOut(said, 0, 1) }}},
		"settings that are locked": {breaks: locked, what: enable, args: func(*advised) []string { return []string{"team/app"} }, alternatives: []func(*advised, string){
			func(a *advised, said string) { a.carriesOut(said, 0, 1) },
		}},
		"settings that are locked, without the project's ID": {breaks: func(a *advised) { a.quietly("config", "--unset", "refdb.projectid"); locked(a) }, what: enable,
			args: func(*advised) []string { return []string{"team/app"} }, alternatives: []func(*advised, string){
				func(a *advised, said string) { a.carriesOut(said, 0, 1) },
			}},
		"a repository that was moved": {breaks: func(a *advised) { a.renames(a.repo.path, a.path("tools/app")) }, what: push,
			args: func(a *advised) []string { return []string{a.path("tools/app"), "refs/heads/main:refs/heads/new"} }, alternatives: []func(*advised, string){
				func(a *advised, said string) {
					if !strings.Contains(said, "site check "+a.path("tools/app")) || !strings.Contains(said, "but of team/app") {
						a.Errorf("it does not say what it is: %s", said)
					}
					a.carriesOut(a.finding(sitecheck.Moved).Detail, 0, 1)
				},
			}},
		"a project that the database has lost": {breaks: func(a *advised) { a.Exec(a, "DELETE FROM projects"); a.stop(); a.stop = a.serve(a) }, what: push,
			args: func(a *advised) []string { return []string{a.repo.path, "refs/heads/main:refs/heads/new"} }, alternatives: []func(*advised, string){
				func(a *advised, said string) { a.carriesOut(said, 0, 1) },
			}},
		"a project that was removed": {breaks: func(a *advised) {
			a.run(a, "project", "remove", "team/app", "--yes").is(a, exit.OK, "")
			later(a)
			a.stop()
			a.stop = a.serve(a)
		}, what: push, args: func(a *advised) []string { return []string{a.repo.path, "refs/heads/main:refs/heads/new"} }, alternatives: []func(*advised, string){
			func(a *advised, said string) { a.carriesOut(said, 0, 1) },
		}},
		"a ref that is only here": {breaks: func(a *advised) { a.quietly("update-ref", "refs/heads/new", a.repo.commit) }, what: push,
			args: func(a *advised) []string { return []string{a.repo.path, "+" + commit(a) + ":refs/heads/new"} }, alternatives: []func(*advised, string){
				func(a *advised, _ string) { a.carriesOut(a.finding(sitecheck.LocalUnknown).Detail, 0, 1) },
			}},
	} {
		for i, alternative := range row.alternatives {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				if testing.Short() && row.what == push {
					t.Skip("left out by -short: the same with pushes; make test-all runs it")
				}
				t.Parallel()
				a := newAdvised(t, "")
				args := row.args(a)
				row.breaks(a)
				said := try(a, row.what, args...)
				if said == "" {
					t.Fatal("it was not refused")
				}
				alternative(a, said)
				eventually(t, "it is not refused any more", func() bool {
					said = try(a, row.what, args...)
					return said == ""
				})
			})
		}
	}
}
