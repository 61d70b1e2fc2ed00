package install_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

func TestEnableAndDisableLeaveARepositoryAsItWas(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(testing.TB, *sitetest.Replicas){
		"a fresh one": func(testing.TB, *sitetest.Replicas) {},
		"with settings": func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "config", "receive.autogc", "true")
			sitetest.GitIn(tb, r.B.Dir, "config", "core.fsync", "committed")
			sitetest.GitIn(tb, r.B.Dir, "config", "gc.auto", "0")
			sitetest.GitIn(tb, r.B.Dir, "config", "core.filesRefLockTimeout", "-1")
		},
		"with hooks": func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.ForeignHook(tb, r.B, "update", "exit 0")
			sitetest.ForeignHook(tb, r.B, "reference-transaction", "exit 0")
			if err := os.Chmod(filepath.Join(r.B.Dir, "hooks", "update"), 0o644); err != nil {
				tb.Fatal(err)
			}
		},
		"with a hook that is a link": func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.ForeignHook(tb, r.B, "mine", "exit 0")
			if err := os.Symlink("mine", filepath.Join(r.B.Dir, "hooks", "update")); err != nil {
				tb.Fatal(err)
			}
		},
		"with its own hooks path": func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "config", "core.hooksPath", filepath.Join(r.B.Dir, "hooks"))
		},
		"without a hooks directory": func(tb testing.TB, r *sitetest.Replicas) {
			if err := os.RemoveAll(filepath.Join(r.B.Dir, "hooks")); err != nil {
				tb.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sitetest.NewReplicas(t)
			r.Serve(t)
			before(t, r)
			was := r.B.Files(t)
			if _, err := r.Enable(t, sitetest.HookFile(t, "older")); err != nil {
				t.Fatal(err)
			}
			steps, err := r.Enable(t, sitetest.HookFile(t, ""))
			if err != nil || steps["update"] != "replaced by this version" || steps["receive.autogc"] != "is false" {
				t.Errorf("the upgrade: %v, %v", steps, err)
			}
			steps, err = r.Enable(t, sitetest.HookFile(t, ""))
			if err != nil || steps["update"] != "is there" {
				t.Errorf("again: %v, %v", steps, err)
			}
			if got := sitetest.GitIn(t, r.B.Dir, "config", "core.fsync") + sitetest.GitIn(t, r.B.Dir, "config", "receive.autogc"); got != "allfalse" {
				t.Errorf("settings: %s", got)
			}
			if target, err := os.Readlink(filepath.Join(r.B.Dir, "refdb/socket")); target != r.Config.Socket {
				t.Errorf("the link leads to %q, %v", target, err)
			}
			if err := r.Disable(t); err != nil {
				t.Fatal(err)
			}
			if is := r.B.Files(t); is != was {
				t.Errorf("was:\n%s\nis:\n%s", was, is)
			}
			if err := r.Disable(t); err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
}

// links are the paths, of those given, that are one file.
func links(tb testing.TB, paths ...string) string {
	tb.Helper()
	first, err := os.Stat(paths[0])
	if err != nil {
		tb.Fatal(err)
	}
	var same []string
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil {
			tb.Fatal(err)
		} else if os.SameFile(first, info) {
			same = append(same, filepath.Base(path))
		}
	}
	return strings.Join(same, " ")
}

func TestTheHooksOfAllRepositoriesAreOneFile(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	shared := filepath.Join(r.Config.State, "refdb-hook")
	other := sitetest.Bare{Dir: filepath.Join(filepath.Dir(r.B.Dir), "other.git")}
	sitetest.GitIn(t, "/", "init", "--quiet", "--bare", other.Dir)
	enableOther := func(hook string) {
		t.Helper()
		found, err := r.Config.Find(other.Dir)
		if err == nil {
			err = install.Enable(t.Context(), r.Config, found, hook, func(install.Step) {})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	enableOther(sitetest.HookFile(t, "older"))
	if _, err := r.Enable(t, sitetest.HookFile(t, "older")); err != nil {
		t.Fatal(err)
	}
	const names = " reference-transaction update pre-receive"
	if got := links(t, slices.Concat([]string{shared}, r.B.Hooks(), other.Hooks())...); got != "refdb-hook"+names+names {
		t.Errorf("one file: %s", got)
	}
	// An upgrade leaves the other repository with what it has: it may be running.
	before, err := os.ReadFile(other.Hooks()[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	if got := links(t, slices.Concat([]string{shared}, r.B.Hooks(), other.Hooks())...); got != "refdb-hook"+names {
		t.Errorf("one file after the upgrade of one repository: %s", got)
	}
	if after, err := os.ReadFile(other.Hooks()[0]); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the other's hook is another: %v", err)
	}
	enableOther(sitetest.HookFile(t, ""))
	if got := links(t, slices.Concat([]string{shared}, r.B.Hooks(), other.Hooks())...); got != "refdb-hook"+names+names {
		t.Errorf("one file after the upgrade of both: %s", got)
	}
	if entries, err := filepath.Glob(filepath.Join(r.B.Dir, "hooks/*refdb*")); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %q, %v", entries, err)
	}
}

func TestWhereHooksCanNotBeLinksTheyAreCopies(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]func(testing.TB) string{
		"another file system": func(tb testing.TB) string {
			dir, err := os.MkdirTemp("/dev/shm", "site-test")
			if err != nil {
				tb.Skipf("no directory can be made in /dev/shm, so hooks on another file system are not looked at: %v", err)
			}
			tb.Cleanup(func() { os.RemoveAll(dir) })
			return dir
		},
		"no place for a copy of the site's": func(testing.TB) string { return "/dev/null/state" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sitetest.NewReplicas(t)
			r.Serve(t)
			c := *r.Config
			c.State = state(t)
			for _, version := range []string{"older", ""} {
				hook := sitetest.HookFile(t, version)
				if err := install.Enable(t.Context(), &c, r.RepositoryB(), hook, func(install.Step) {}); err != nil {
					t.Fatal(err)
				}
				want, err := os.ReadFile(hook)
				if err != nil {
					t.Fatal(err)
				}
				for _, path := range r.B.Hooks() {
					if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%s: %v", path, err)
					}
				}
				if got := links(t, r.B.Hooks()...); got != "reference-transaction" {
					t.Errorf("one file: %s", got)
				}
			}
		})
	}
}

// Git asked no hook about a move that it began before, and imported refs would be
// behind it.
func TestEnableWaitsForMovesThatBeganBefore(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	lock := sitetest.LockFile(t, r.B, sitetest.MainRef+".lock")
	synctest.Test(t, func(t *testing.T) {
		if err := install.AwaitLocks(t.Context(), r.B.Dir); err == nil {
			t.Error("it was not waited for")
		}
		var over atomic.Bool
		go func() {
			time.Sleep(gitrepo.LockPatience / 2)
			over.Store(true)
			os.Remove(lock)
		}()
		if err := install.AwaitLocks(t.Context(), r.B.Dir); err != nil || !over.Load() {
			t.Errorf("it was over: %v, %v", over.Load(), err)
		}
	})
}

func TestEnableChainsAHookThatIsThere(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	sitetest.ForeignHook(t, r.B, "update", `echo "no $1 on Fridays" >&2; exit 1`)
	old := r.B.Commit(t, "x")
	steps, err := r.Enable(t, sitetest.HookFile(t, ""))
	if err != nil || !strings.Contains(steps["update"], "update.chained") {
		t.Fatalf("%v, %v", steps, err)
	}
	cmd := exec.Command("git", "push", r.B.Dir, old+":"+sitetest.MainRef)
	cmd.Dir = r.B.Dir
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "no refs/heads/main on Fridays") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestEnableRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		before func(testing.TB, *sitetest.Replicas) (hookPath string)
		says   string
	}{
		{"hooks that are shared", func(tb testing.TB, r *sitetest.Replicas) string {
			sitetest.GitIn(tb, r.B.Dir, "config", "core.hooksPath", "/etc/git-hooks")
			return sitetest.HookFile(tb, "")
		}, "core.hooksPath"},
		{"hooks that git looks for wherever it runs", func(tb testing.TB, r *sitetest.Replicas) string {
			sitetest.GitIn(tb, r.B.Dir, "config", "core.hooksPath", "hooks")
			return sitetest.HookFile(tb, "")
		}, "core.hooksPath"},
		{"a repository whose refs are being moved", func(tb testing.TB, r *sitetest.Replicas) string {
			sitetest.LockFile(tb, r.B, sitetest.MainRef+".lock")
			return sitetest.HookFile(tb, "")
		}, "may be moving refs"},
		{"a hook's program that is another", func(tb testing.TB, r *sitetest.Replicas) string { return "/bin/sh" }, "is not refdb-hook"},
		{"a hook's program that is none", func(tb testing.TB, r *sitetest.Replicas) string { return "/nowhere/refdb-hook" }, "no such file"},
		{"a repository that the daemon does not know", func(tb testing.TB, r *sitetest.Replicas) string {
			r.B.Dir = filepath.Join(tb.TempDir(), "elsewhere.git")
			sitetest.GitIn(tb, "/", "init", "--quiet", "--bare", r.B.Dir)
			r.Config = sitetest.SiteConfig(tb, tb.TempDir(), "[repository \""+sitetest.Project+"\"]\npath = "+r.B.Dir+"\n[site]\nsocket = "+r.Config.Socket+"\n")
			return sitetest.HookFile(tb, "")
		}, "not a repository of this site"},
		{"two hooks of others", func(tb testing.TB, r *sitetest.Replicas) string {
			sitetest.ForeignHook(tb, r.B, "update", "exit 0")
			sitetest.ForeignHook(tb, r.B, "update.chained", "exit 1")
			return sitetest.HookFile(tb, "")
		}, "update.chained"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := sitetest.NewReplicas(t)
			r.Serve(t)
			path := c.before(t, r)
			if _, err := r.Enable(t, path); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestDisableWaitsForPushes(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	b, err := refdb.New(r.Open(t), refdb.Options{Site: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Prepare(t.Context(), sitetest.Project, []refdb.Update{{Ref: sitetest.MainRef, New: "1"}}, "x"); err != nil {
		t.Fatal(err)
	}
	if err := r.Disable(t); err == nil || !strings.Contains(err.Error(), sitetest.MainRef) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.B.Dir, "hooks/update")); err != nil {
		t.Error("the hook is gone")
	}
	if err := install.Disable(t.Context(), r.Config, nil, r.RepositoryB(), func(install.Step) {}); err != nil {
		t.Errorf("without asking: %v", err)
	}
}

func TestASettingThatWasChangedSinceIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	sitetest.GitIn(t, r.B.Dir, "config", "core.fsync", "committed,reference")
	if err := r.Disable(t); err != nil {
		t.Fatal(err)
	}
	if got := sitetest.GitIn(t, r.B.Dir, "config", "core.fsync"); got != "committed,reference" {
		t.Errorf("core.fsync is %s", got)
	}
}
