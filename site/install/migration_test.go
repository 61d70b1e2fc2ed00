package install_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// asEarlier gives site b the form in which earlier versions guarded a repository: refdb-hook in the places of the repository's own hooks,
// which are NAME.chained.
func asEarlier(tb testing.TB, r *sitetest.Replicas) {
	tb.Helper()
	for _, name := range hookdir.Names[:3] {
		path := filepath.Join(r.B.Dir, "hooks", name)
		if _, err := os.Lstat(path); err == nil {
			if err := os.Rename(path, path+".chained"); err != nil {
				tb.Fatal(err)
			}
		}
		if err := os.Link(sitetest.HookFile(tb, ""), path); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(r.B.Dir, "refdb"), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.Symlink(r.Config.Socket, filepath.Join(r.B.Dir, "refdb/socket")); err != nil {
		tb.Fatal(err)
	}
}

// withoutID is a repository's files without the ID of its project, which stays when the guard ends.
func withoutID(tb testing.TB, b sitetest.Bare) string {
	tb.Helper()
	return regexp.MustCompile(`(?m)^\[refdb\]\n\tprojectid = .*\n`).ReplaceAllString(b.Files(tb), "")
}

func TestARepositoryOfAnEarlierVersionComesToThisForm(t *testing.T) {
	t.Parallel()
	for name, mend := range map[string]func(*testing.T, *sitetest.Replicas){
		"by enable": func(t *testing.T, r *sitetest.Replicas) {
			if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
				t.Fatal(err)
			}
		},
		"by a repair": func(t *testing.T, r *sitetest.Replicas) {
			if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil { // a repair makes no directory for repositories that don't need it
				t.Fatal(err)
			}
			if err := r.Disable(t); err != nil {
				t.Fatal(err)
			}
			asEarlier(t, r)
			if found := r.Check(t, r.DB, true); !strings.Contains(found, "hook-outdated hooks/reference-transaction mended") {
				t.Errorf("the repair: %s", found)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sitetest.NewReplicas(t)
			r.Serve(t)
			protect(t, r.B, "1")
			sitetest.ForeignHook(t, r.B, "reference-transaction", "exit 0")
			was := r.B.Files(t)
			if name == "by enable" {
				asEarlier(t, r)
				if found := r.Check(t, r.DB, false); !strings.Contains(found, "hook-outdated hooks/update") {
					t.Errorf("check finds %q", found)
				}
			}
			mend(t, r)
			if found := r.Check(t, r.DB, true); strings.Contains(found, "hook") {
				t.Errorf("check finds %q", found)
			}
			tip := r.A.Commit(t, "x")
			if says, ok := push(t, r, tip, "refs/heads/closed"); ok || !strings.Contains(says, "protected branch") {
				t.Errorf("%v, %s", ok, says)
			}
			if says, ok := push(t, r, tip, "refs/heads/open"); !ok || r.Get(t, "refs/heads/open") != refdb.Value(tip) {
				t.Errorf("%v, %s", ok, says)
			}
			for _, name := range []string{"update", "pre-receive", "reference-transaction"} {
				if text := r.B.File(t, "hooks/"+name); !strings.HasPrefix(text, "#!/bin/sh\n# 1\n") && text != "#!/bin/sh\nexit 0\n" {
					t.Errorf("hooks/%s is %.60q", name, text)
				}
			}
			if err := r.Disable(t); err != nil {
				t.Fatal(err)
			}
			if is := withoutID(t, r.B); is != was {
				t.Errorf("was:\n%s\nis:\n%s", was, is)
			}
		})
	}
}

// A push reads core.hooksPath when it begins, and runs what is in the repository's hooks from then on.
func TestAPushThatBeganBeforeIsGuardedToItsEnd(t *testing.T) {
	t.Parallel()
	for name, earlier := range map[string]bool{"before a first enable": false, "when the hooks were those of an earlier version": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sitetest.NewReplicas(t)
			r.Serve(t)
			dir := t.TempDir()
			sitetest.ForeignHook(t, r.B, "pre-receive", "cat >/dev/null; [ -e "+dir+"/came ] && exit 0; touch "+dir+"/came; until [ -e "+dir+"/go ]; do sleep 0.01; done")
			sitetest.ForeignHook(t, r.B, "update", "echo $0 $1 >>"+dir+"/updates")
			if earlier {
				asEarlier(t, r)
				// As the program of an earlier version does, in whose place it is.
				os.Remove(filepath.Join(r.B.Dir, "hooks", "pre-receive"))
				sitetest.ForeignHook(t, r.B, "pre-receive", `exec "$0.chained"`)
			}
			tip := r.A.Commit(t, "x")
			cmd := exec.Command("git", "push", r.B.Dir, tip+":refs/heads/x")
			cmd.Dir = r.A.Dir
			var says sitetest.Buffer
			cmd.Stdout, cmd.Stderr = &says, &says
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			sitetest.Eventually(t, "the push is in the hook pre-receive", func() bool { _, err := os.Lstat(dir + "/came"); return err == nil })
			if earlier {
				if err := os.Rename(sitetest.HookFile(t, ""), filepath.Join(r.B.Dir, "hooks", "pre-receive")); err != nil {
					t.Fatal(err)
				}
			}
			steps, err := r.Enable(t, sitetest.HookFile(t, ""))
			if err != nil {
				t.Fatal(err)
			}
			if unfinished := strings.Contains(steps["core.hooksPath"], "update stays there"); unfinished != earlier {
				t.Errorf("core.hooksPath: %s", steps["core.hooksPath"])
			}
			if says, ok := push(t, r, tip, "refs/heads/meanwhile"); !ok {
				t.Errorf("a push meanwhile: %s", says)
			}
			if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("the push: %v, %s", err, says.String())
			}
			for _, ref := range []string{"refs/heads/x", "refs/heads/meanwhile"} {
				if got := r.Get(t, ref); got != refdb.Value(tip) {
					t.Errorf("the database has %q of %s", got, ref)
				}
			}
			if text, err := os.ReadFile(dir + "/updates"); err != nil || strings.Count(string(text), "/update refs/heads/") != 2 {
				t.Errorf("the own hook update ran as %q, %v", text, err)
			}
			if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
				t.Fatal(err)
			}
			if found := r.Check(t, r.DB, false); found != "" {
				t.Errorf("check finds %q", found)
			}
			if text := r.B.File(t, "hooks/update"); !strings.Contains(text, "/updates") {
				t.Errorf("the hook update is %.60q", text)
			}
		})
	}
}

// A crash leaves the repository as it was, or under guard.
func TestAnEnableThatDiesLeavesEitherForm(t *testing.T) {
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	protect(t, r.B, "1")
	asEarlier(t, r)
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	// It goes as far as to change what leads git to the site's hooks.
	path, dir := os.Getenv("PATH"), t.TempDir()
	script := "#!/bin/sh\nfor arg; do [ $arg = receive.hideRefs ] && exit 1; done\nexec " + git + ` "$@"` + "\n"
	if err := testprogram.Write(filepath.Join(dir, "git"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+path)
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err == nil {
		t.Fatal("it went on")
	}
	t.Setenv("PATH", path)
	if _, err := os.Lstat(filepath.Join(r.B.Dir, "refdb", "chained", "update")); err != nil {
		t.Fatal(err)
	}
	tip := r.A.Commit(t, "x")
	look := func(when, ref string) {
		t.Helper()
		if says, ok := push(t, r, tip, "refs/heads/closed"); ok || !strings.Contains(says, "protected branch") {
			t.Errorf("%s: %v, %s", when, ok, says)
		}
		sitetest.ForeignHook(t, r.B, "pre-receive.d/forge", "exit 0")
		if says, ok := push(t, r, tip, ref); !ok || r.Get(t, ref) != refdb.Value(tip) {
			t.Errorf("%s: the database has %q: %v, %s", when, r.Get(t, ref), ok, says)
		}
		protect := "while read old new ref; do [ $ref = refs/heads/open ] || { echo protected branch >&2; exit 1; }; done"
		sitetest.ForeignHook(t, r.B, "pre-receive.d/forge", protect)
	}
	look("halfway", "refs/heads/one")
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	look("afterwards", "refs/heads/two")
}

// A git that began before `enable` does not ask the daemon if it looks where the repository has a hook of its own, or where other repositories have
// theirs, too.
func TestEnableIsNotThroughWhileAPushRunsThatAsksNobody(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	dir := t.TempDir()
	sitetest.ForeignHook(t, r.B, "reference-transaction", "exit 0")
	sitetest.ForeignHook(t, r.B, "pre-receive", "cat >/dev/null; touch "+dir+"/came; until [ -e "+dir+"/go ]; do sleep 0.01; done")
	tip := r.A.Commit(t, "x")
	cmd := exec.Command("git", "push", r.B.Dir, tip+":refs/heads/x")
	cmd.Dir = r.A.Dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sitetest.Eventually(t, "the push is in the hook pre-receive", func() bool { _, err := os.Lstat(dir + "/came"); return err == nil })
	for range 2 {
		if _, err := r.Enable(t, sitetest.HookFile(t, "")); err == nil || !strings.Contains(err.Error(), "run the command again") {
			t.Errorf("enable: %v", err)
		}
	}
	if found := r.Check(t, r.DB, false); !strings.Contains(found, "hook-outdated") {
		t.Errorf("check finds %q", found)
	}
	if err := os.WriteFile(dir+"/go", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Error(err)
	}
	if found := r.Check(t, r.DB, false); strings.Contains(found, "hook") {
		t.Errorf("check finds %q", found)
	}
}

func TestWhatWasEffectiveBeforeIsRun(t *testing.T) {
	t.Parallel()
	elsewhere := t.TempDir()
	said := filepath.Join(t.TempDir(), "said")
	for _, row := range []struct {
		name   string
		before func(testing.TB, *sitetest.Replicas)
		link   string
	}{
		{"the repository's own", func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.ForeignHook(tb, r.B, "post-receive", "touch "+said)
		}, "../hooks"},
		{"another directory of the repository", func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "config", "core.hooksPath", filepath.Join(r.B.Dir, "more"))
			sitetest.ForeignHook(tb, r.B, "../more/post-receive", "touch "+said)
		}, "../more"},
		{"a directory that several repositories share", func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "config", "core.hooksPath", elsewhere)
			if err := testprogram.Write(filepath.Join(elsewhere, "post-receive"), []byte("#!/bin/sh\ntouch "+said+"\n")); err != nil {
				tb.Fatal(err)
			}
		}, elsewhere},
		{"one that a file of all repositories names, as that of the system or a user", func(tb testing.TB, r *sitetest.Replicas) {
			file := filepath.Join(tb.TempDir(), "gitconfig")
			if err := os.WriteFile(file, []byte("[core]\n\thooksPath = "+elsewhere+"\n"), 0o644); err != nil {
				tb.Fatal(err)
			}
			sitetest.GitIn(tb, r.B.Dir, "config", "include.path", file)
		}, elsewhere},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := sitetest.NewReplicas(t)
			r.Serve(t)
			row.before(t, r)
			was := r.B.Files(t)
			if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
				t.Fatal(err)
			}
			if link, err := os.Readlink(filepath.Join(r.B.Dir, "refdb/own-hooks")); link != row.link {
				t.Errorf("refdb/own-hooks leads to %q, %v", link, err)
			}
			os.Remove(said)
			tip := r.A.Commit(t, "x")
			if says, ok := push(t, r, tip, "refs/heads/x"); !ok || r.Get(t, "refs/heads/x") != refdb.Value(tip) {
				t.Errorf("the database has %q: %v, %s", r.Get(t, "refs/heads/x"), ok, says)
			}
			if _, err := os.Lstat(said); err != nil {
				t.Errorf("the hook was not run: %v", err)
			}
			if err := r.Disable(t); err != nil {
				t.Fatal(err)
			}
			if is := withoutID(t, r.B); is != was {
				t.Errorf("was:\n%s\nis:\n%s", was, is)
			}
		})
	}
}
