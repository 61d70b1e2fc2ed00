package site_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
)

// hookFile returns the path of a copy of the hook's program; mark makes it of another version.
func hookFile(tb testing.TB, mark string) string {
	tb.Helper()
	program, err := os.ReadFile(hookBinary)
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(tb.TempDir(), "refdb-hook")
	if err := os.WriteFile(path, append(program[:len(program):len(program)], mark...), 0o755); err != nil {
		tb.Fatal(err)
	}
	return path
}

func (r *replicas) repositoryB() site.Repository {
	return site.Repository{Project: project, Path: r.b.dir}
}

// enable returns what was done at site b, by the names of the steps.
func (r *replicas) enable(tb testing.TB, hook string) (map[string]string, error) {
	tb.Helper()
	steps := map[string]string{}
	err := site.Enable(tb.Context(), r.config, r.repositoryB(), hook, func(s site.Step) { steps[s.Name] = s.Detail })
	return steps, err
}

func (r *replicas) disable(tb testing.TB) error {
	tb.Helper()
	return site.Disable(tb.Context(), r.config, r.db, r.repositoryB(), func(site.Step) {})
}

// serve runs site b's daemon until stop is called, at the test's end at the latest.
func (r *replicas) serve(tb testing.TB) (stop func()) {
	tb.Helper()
	db, err := refdb.New(r.Open(tb), refdb.Options{Site: "b"})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- site.New(r.config, db, site.Options{}).Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
		db.Close()
	})
	tb.Cleanup(stop)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		s, err := site.Query(tb.Context(), r.config.Socket)
		if err == nil && s.OK() {
			return stop
		}
		if time.Now().After(deadline) {
			tb.Fatalf("the daemon does not serve: %+v, %v", s, err)
		}
	}
}

// files are a repository's hooks and configuration, as they are.
func (b bare) files(tb testing.TB) string {
	tb.Helper()
	var all strings.Builder
	all.WriteString(b.file(tb, "config"))
	for _, name := range []string{"reference-transaction", "update", "pre-receive", "reference-transaction.chained", "update.chained", "pre-receive.chained"} {
		path := filepath.Join(b.dir, "hooks", name)
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintf(&all, "no %s\n", name)
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			tb.Fatal(err)
		}
		fmt.Fprintf(&all, "%s %s %.40q\n", name, info.Mode(), text)
	}
	return all.String()
}

func TestEnableAndDisableLeaveARepositoryAsItWas(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(testing.TB, *replicas){
		"a fresh one": func(testing.TB, *replicas) {},
		"with settings": func(tb testing.TB, r *replicas) {
			gitIn(tb, r.b.dir, "config", "receive.autogc", "true")
			gitIn(tb, r.b.dir, "config", "core.fsync", "committed")
			gitIn(tb, r.b.dir, "config", "gc.auto", "0")
			gitIn(tb, r.b.dir, "config", "core.filesRefLockTimeout", "-1")
		},
		"with hooks": func(tb testing.TB, r *replicas) {
			hook(tb, r.b, "update", "exit 0")
			hook(tb, r.b, "reference-transaction", "exit 0")
			if err := os.Chmod(filepath.Join(r.b.dir, "hooks", "update"), 0o644); err != nil {
				tb.Fatal(err)
			}
		},
		"with a hook that is a link": func(tb testing.TB, r *replicas) {
			hook(tb, r.b, "mine", "exit 0")
			if err := os.Symlink("mine", filepath.Join(r.b.dir, "hooks", "update")); err != nil {
				tb.Fatal(err)
			}
		},
		"with its own hooks path": func(tb testing.TB, r *replicas) {
			gitIn(tb, r.b.dir, "config", "core.hooksPath", filepath.Join(r.b.dir, "hooks"))
		},
		"without a hooks directory": func(tb testing.TB, r *replicas) {
			if err := os.RemoveAll(filepath.Join(r.b.dir, "hooks")); err != nil {
				tb.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplicas(t)
			r.serve(t)
			before(t, r)
			was := r.b.files(t)
			if _, err := r.enable(t, hookFile(t, "older")); err != nil {
				t.Fatal(err)
			}
			steps, err := r.enable(t, hookFile(t, ""))
			if err != nil || steps["update"] != "replaced by this version" || steps["receive.autogc"] != "is false" {
				t.Errorf("the upgrade: %v, %v", steps, err)
			}
			steps, err = r.enable(t, hookFile(t, ""))
			if err != nil || steps["update"] != "is there" {
				t.Errorf("again: %v, %v", steps, err)
			}
			if got := gitIn(t, r.b.dir, "config", "core.fsync") + gitIn(t, r.b.dir, "config", "receive.autogc"); got != "allfalse" {
				t.Errorf("settings: %s", got)
			}
			if target, err := os.Readlink(filepath.Join(r.b.dir, "refdb/socket")); target != r.config.Socket {
				t.Errorf("the link leads to %q, %v", target, err)
			}
			if err := r.disable(t); err != nil {
				t.Fatal(err)
			}
			if is := r.b.files(t); is != was {
				t.Errorf("was:\n%s\nis:\n%s", was, is)
			}
			if err := r.disable(t); err != nil {
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

func (b bare) hooks() (paths []string) {
	for _, name := range []string{"reference-transaction", "update", "pre-receive"} {
		paths = append(paths, filepath.Join(b.dir, "hooks", name))
	}
	return paths
}

func TestTheHooksOfAllRepositoriesAreOneFile(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	r.serve(t)
	shared := filepath.Join(r.config.State, "refdb-hook")
	other := bare{filepath.Join(filepath.Dir(r.b.dir), "other.git")}
	gitIn(t, "/", "init", "--quiet", "--bare", other.dir)
	enableOther := func(hook string) {
		t.Helper()
		found, err := r.config.Find(other.dir)
		if err == nil {
			err = site.Enable(t.Context(), r.config, found, hook, func(site.Step) {})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	enableOther(hookFile(t, "older"))
	if _, err := r.enable(t, hookFile(t, "older")); err != nil {
		t.Fatal(err)
	}
	const names = " reference-transaction update pre-receive"
	if got := links(t, slices.Concat([]string{shared}, r.b.hooks(), other.hooks())...); got != "refdb-hook"+names+names {
		t.Errorf("one file: %s", got)
	}
	// An upgrade leaves the other repository with what it has: it may be running.
	before, err := os.ReadFile(other.hooks()[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.enable(t, hookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	if got := links(t, slices.Concat([]string{shared}, r.b.hooks(), other.hooks())...); got != "refdb-hook"+names {
		t.Errorf("one file after the upgrade of one repository: %s", got)
	}
	if after, err := os.ReadFile(other.hooks()[0]); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the other's hook is another: %v", err)
	}
	enableOther(hookFile(t, ""))
	if got := links(t, slices.Concat([]string{shared}, r.b.hooks(), other.hooks())...); got != "refdb-hook"+names+names {
		t.Errorf("one file after the upgrade of both: %s", got)
	}
	if entries, err := filepath.Glob(filepath.Join(r.b.dir, "hooks/*refdb*")); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %q, %v", entries, err)
	}
}

func TestWhereHooksCanNotBeLinksTheyAreCopies(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]func(testing.TB) string{
		"another file system": func(tb testing.TB) string {
			dir, err := os.MkdirTemp("/dev/shm", "site-test")
			if err != nil {
				tb.Skip(err)
			}
			tb.Cleanup(func() { os.RemoveAll(dir) })
			return dir
		},
		"no place for a copy of the site's": func(testing.TB) string { return "/dev/null/state" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplicas(t)
			r.serve(t)
			c := *r.config
			c.State = state(t)
			for _, version := range []string{"older", ""} {
				hook := hookFile(t, version)
				if err := site.Enable(t.Context(), &c, r.repositoryB(), hook, func(site.Step) {}); err != nil {
					t.Fatal(err)
				}
				want, err := os.ReadFile(hook)
				if err != nil {
					t.Fatal(err)
				}
				for _, path := range r.b.hooks() {
					if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%s: %v", path, err)
					}
				}
				if got := links(t, r.b.hooks()...); got != "reference-transaction" {
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
	r := newReplicas(t)
	r.serve(t)
	lock := lockFile(t, r.b, mainRef+".lock")
	if _, err := r.enable(t, hookFile(t, "")); err == nil {
		t.Error("it was not waited for")
	}
	var over atomic.Bool
	time.AfterFunc(300*time.Millisecond, func() {
		over.Store(true)
		os.Remove(lock)
	})
	if _, err := r.enable(t, hookFile(t, "")); err != nil || !over.Load() {
		t.Errorf("it was over: %v, %v", over.Load(), err)
	}
}

func TestEnableChainsAHookThatIsThere(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	r.serve(t)
	hook(t, r.b, "update", `echo "no $1 on Fridays" >&2; exit 1`)
	old := r.b.commit(t, "x")
	steps, err := r.enable(t, hookFile(t, ""))
	if err != nil || !strings.Contains(steps["update"], "update.chained") {
		t.Fatalf("%v, %v", steps, err)
	}
	cmd := exec.Command("git", "push", r.b.dir, old+":"+mainRef)
	cmd.Dir = r.b.dir
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "no refs/heads/main on Fridays") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestEnableRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		before func(testing.TB, *replicas) (hookPath string)
		says   string
	}{
		{"hooks that are shared", func(tb testing.TB, r *replicas) string {
			gitIn(tb, r.b.dir, "config", "core.hooksPath", "/etc/git-hooks")
			return hookFile(tb, "")
		}, "core.hooksPath"},
		{"hooks that git looks for wherever it runs", func(tb testing.TB, r *replicas) string {
			gitIn(tb, r.b.dir, "config", "core.hooksPath", "hooks")
			return hookFile(tb, "")
		}, "core.hooksPath"},
		{"a repository whose refs are being moved", func(tb testing.TB, r *replicas) string {
			lockFile(tb, r.b, mainRef+".lock")
			return hookFile(tb, "")
		}, "may be moving refs"},
		{"a hook's program that is another", func(tb testing.TB, r *replicas) string { return "/bin/sh" }, "is not refdb-hook"},
		{"a hook's program that is none", func(tb testing.TB, r *replicas) string { return "/nowhere/refdb-hook" }, "no such file"},
		{"a repository that the daemon does not know", func(tb testing.TB, r *replicas) string {
			r.b.dir = filepath.Join(tb.TempDir(), "elsewhere.git")
			gitIn(tb, "/", "init", "--quiet", "--bare", r.b.dir)
			r.config = siteConfig(tb, tb.TempDir(), "[repository \""+project+"\"]\npath = "+r.b.dir+"\n[site]\nsocket = "+r.config.Socket+"\n")
			return hookFile(tb, "")
		}, "not a repository of this site"},
		{"two hooks of others", func(tb testing.TB, r *replicas) string {
			hook(tb, r.b, "update", "exit 0")
			hook(tb, r.b, "update.chained", "exit 1")
			return hookFile(tb, "")
		}, "update.chained"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newReplicas(t)
			r.serve(t)
			path := c.before(t, r)
			if _, err := r.enable(t, path); err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestDisableWaitsForPushes(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	r.serve(t)
	if _, err := r.enable(t, hookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	b, err := refdb.New(r.Open(t), refdb.Options{Site: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Prepare(t.Context(), project, []refdb.Update{{Ref: mainRef, New: "1"}}, "x"); err != nil {
		t.Fatal(err)
	}
	if err := r.disable(t); err == nil || !strings.Contains(err.Error(), mainRef) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.b.dir, "hooks/update")); err != nil {
		t.Error("the hook is gone")
	}
	if err := site.Disable(t.Context(), r.config, nil, r.repositoryB(), func(site.Step) {}); err != nil {
		t.Errorf("without asking: %v", err)
	}
}

func TestASettingThatWasChangedSinceIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	r.serve(t)
	if _, err := r.enable(t, hookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	gitIn(t, r.b.dir, "config", "core.fsync", "committed,reference")
	if err := r.disable(t); err != nil {
		t.Fatal(err)
	}
	if got := gitIn(t, r.b.dir, "config", "core.fsync"); got != "committed,reference" {
		t.Errorf("core.fsync is %s", got)
	}
}
