package install_test

import (
	"os"
	"path/filepath"
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
		"with settings that ours are added to": func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "config", "receive.denyDeletes", "true")
			sitetest.GitIn(tb, r.B.Dir, "config", "receive.hideRefs", "refs/secret")
			sitetest.GitIn(tb, r.B.Dir, "config", "include.path", "elsewhere")
			sitetest.GitIn(tb, r.B.Dir, "config", "transfer.hideRefs", "refs/")
			sitetest.GitIn(tb, r.B.Dir, "config", "--add", "transfer.hideRefs", "!refs/heads")
		},
		"whose configuration ends without a line's end": func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "config", "core.hooksPath", filepath.Join(r.B.Dir, "hooks"))
			text := r.B.File(tb, "config")
			if err := os.WriteFile(filepath.Join(r.B.Dir, "config"), []byte(text+"[x]\ny = z\n"), 0o644); err != nil {
				tb.Fatal(err)
			}
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
			steps, err := r.Enable(t, sitetest.HookFile(t, "older"))
			if err != nil || steps["site hooks"] != "is there" || steps["receive.autogc"] != "is false" || !strings.HasPrefix(steps["core.hooksPath"], "is ") {
				t.Errorf("again: %v, %v", steps, err)
			}
			steps, err = r.Enable(t, sitetest.HookFile(t, ""))
			if err != nil || !strings.HasPrefix(steps["site hooks"], "is there, but of another version") {
				t.Errorf("another version: %v, %v", steps, err)
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

func TestEnableRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		before func(testing.TB, *sitetest.Replicas) (hookPath string)
		says   string
		begins bool // and finds that out at the end
	}{
		{"a hook that git would not run any more", func(tb testing.TB, r *sitetest.Replicas) string {
			sitetest.ForeignHook(tb, r.B, "push-to-checkout", "exit 0")
			return sitetest.HookFile(tb, "")
		}, "hooks/push-to-checkout would not be run", false},
		{"a directory of hooks that not everybody can enter who can enter the repository", func(tb testing.TB, r *sitetest.Replicas) string {
			dir := filepath.Join(tb.TempDir(), "closed")
			if err := os.Mkdir(dir, 0o700); err != nil {
				tb.Fatal(err)
			}
			c := *r.Config
			c.Hooks = filepath.Join(dir, "hooks")
			r.Config = &c
			return sitetest.HookFile(tb, "")
		}, "not all users can enter", false},
		{"a configuration that another git changes", func(tb testing.TB, r *sitetest.Replicas) string {
			sitetest.LockFile(tb, r.B, "config.lock")
			return sitetest.HookFile(tb, "")
		}, "config.lock: file exists: another program is changing the settings, or was killed while it did", false},
		{"hooks that git looks for wherever it runs", func(tb testing.TB, r *sitetest.Replicas) string {
			sitetest.GitIn(tb, r.B.Dir, "config", "core.hooksPath", "hooks")
			return sitetest.HookFile(tb, "")
		}, "core.hooksPath", false},
		{"a repository whose refs are being moved", func(tb testing.TB, r *sitetest.Replicas) string {
			sitetest.LockFile(tb, r.B, sitetest.MainRef+".lock")
			return sitetest.HookFile(tb, "")
		}, "may be moving refs", true},
		{"a hook's program that is another", func(tb testing.TB, r *sitetest.Replicas) string { return "/bin/sh" }, "is not refdb-hook", false},
		{"a hook's program that is none", func(tb testing.TB, r *sitetest.Replicas) string { return "/nowhere/refdb-hook" }, "no such file", false},
		{"a repository that the daemon does not know", func(tb testing.TB, r *sitetest.Replicas) string {
			r.B.Dir = filepath.Join(tb.TempDir(), "elsewhere.git")
			sitetest.GitIn(tb, "/", "init", "--quiet", "--bare", r.B.Dir)
			r.Config = sitetest.SiteConfig(tb, tb.TempDir(), "[repository \""+sitetest.Project+"\"]\npath = "+r.B.Dir+"\n[site]\nsocket = "+r.Config.Socket+"\n")
			return sitetest.HookFile(tb, "")
		}, "not a repository of this site", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := sitetest.NewReplicas(t)
			r.Serve(t)
			path := c.before(t, r)
			was := r.B.Files(t)
			if _, err := r.Enable(t, path); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, c.says)
			}
			if is := r.B.Files(t); is != was && !c.begins {
				t.Errorf("was:\n%s\nis:\n%s", was, is)
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
	if _, err := b.Intents().Prepare(t.Context(), sitetest.Project, []refdb.Update{{Ref: sitetest.MainRef, New: "1"}}, "x"); err != nil {
		t.Fatal(err)
	}
	if err := r.Disable(t); err == nil || !strings.Contains(err.Error(), sitetest.MainRef) {
		t.Errorf("got %v", err)
	}
	if got := sitetest.GitIn(t, r.B.Dir, "config", "core.hooksPath"); got != filepath.Join(r.Config.Hooks, "current") {
		t.Errorf("core.hooksPath is %s", got)
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
