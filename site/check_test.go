package site_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
)

// newGuarded makes site b a guarded one that is in step: main and tags/v1.
func newGuarded(tb testing.TB) *replicas {
	tb.Helper()
	r := newReplicas(tb)
	old := r.a.commit(tb, "old")
	r.both(tb, mainRef, old)
	r.both(tb, "refs/tags/v1", old)
	r.sync(tb)
	r.serve(tb)
	if _, err := r.enable(tb, hookFile(tb, "")); err != nil {
		tb.Fatal(err)
	}
	return r
}

// check returns the findings as "CODE SUBJECT", with the directory of the
// repository left out, and "mended" where they are.
func (r *replicas) check(tb testing.TB, db *refdb.DB, repair bool) string {
	tb.Helper()
	var all []string
	err := site.Check(tb.Context(), r.config, db, []site.Repository{r.repositoryB()},
		site.CheckOptions{Hook: hookFile(tb, ""), Repair: repair}, func(f site.Finding) {
			s := f.Code + " " + strings.TrimPrefix(f.Subject, r.b.dir+"/")
			if f.Mended {
				s += " mended"
			}
			if f.Detail == "" {
				tb.Errorf("%s: nothing says what to do", s)
			}
			all = append(all, s)
		})
	if err != nil {
		tb.Fatal(err)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// quietly runs git without the hooks.
func (b bare) quietly(tb testing.TB, args ...string) {
	tb.Helper()
	gitIn(tb, b.dir, append([]string{"-c", "core.hooksPath=/dev/null"}, args...)...)
}

func age(tb testing.TB, path string) {
	tb.Helper()
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, past, past); err != nil {
		tb.Fatal(err)
	}
}

func TestCheckFindsAndRepairMends(t *testing.T) {
	t.Parallel()
	in := func(r *replicas, name string) string { return filepath.Join(r.b.dir, name) }
	must := func(tb testing.TB, err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		do   func(tb testing.TB, r *replicas)
		want string
		left string // after the repair
	}{
		{"nothing", func(testing.TB, *replicas) {}, "", ""},
		{"a hook that is gone", func(tb testing.TB, r *replicas) { must(tb, os.Remove(in(r, "hooks/update"))) }, "hook-missing hooks/update", ""},
		{"another's hook", func(tb testing.TB, r *replicas) {
			must(tb, os.Remove(in(r, "hooks/reference-transaction")))
			hook(tb, r.b, "reference-transaction", "exit 0")
		}, "hook-foreign hooks/reference-transaction", ""},
		{"a hook that can't be run", func(tb testing.TB, r *replicas) {
			must(tb, os.Rename(hookFile(tb, ""), in(r, "hooks/update"))) // not a link, as the others are
			must(tb, os.Chmod(in(r, "hooks/update"), 0o644))
		}, "hook-not-executable hooks/update", ""},
		{"hooks that can't be run", func(tb testing.TB, r *replicas) { must(tb, os.Chmod(in(r, "hooks/update"), 0o444)) },
			"hook-not-executable hooks/pre-receive, hook-not-executable hooks/reference-transaction, hook-not-executable hooks/update", ""},
		{"an installation from before there was a hook pre-receive", func(tb testing.TB, r *replicas) {
			must(tb, os.Remove(in(r, "hooks/pre-receive")))
		}, "hook-missing hooks/pre-receive", ""},
		{"an old hook", func(tb testing.TB, r *replicas) {
			must(tb, os.Rename(hookFile(tb, "older"), in(r, "hooks/update")))
		}, "hook-outdated hooks/update", ""},
		{"a hook that is a link", func(tb testing.TB, r *replicas) {
			must(tb, os.Remove(in(r, "hooks/update")))
			must(tb, os.Symlink(hookFile(tb, ""), in(r, "hooks/update")))
		}, "hook-outdated hooks/update", ""},
		{"hooks elsewhere", func(tb testing.TB, r *replicas) { gitIn(tb, r.b.dir, "config", "core.hooksPath", "/dev/null") },
			"hooks-path /dev/null", "hooks-path /dev/null"},
		{"no link to the socket", func(tb testing.TB, r *replicas) { must(tb, os.Remove(in(r, "refdb/socket"))) }, "socket refdb/socket", ""},
		{"a wrong link to the socket", func(tb testing.TB, r *replicas) {
			must(tb, os.Remove(in(r, "refdb/socket")))
			must(tb, os.Symlink("/nowhere", in(r, "refdb/socket")))
		}, "socket refdb/socket", ""},
		{"settings", func(tb testing.TB, r *replicas) {
			gitIn(tb, r.b.dir, "config", "--unset", "gc.auto")
			gitIn(tb, r.b.dir, "config", "core.packedRefsTimeout", "100")
			gitIn(tb, r.b.dir, "config", "core.filesRefLockTimeout", "20000")
		}, "setting core.packedRefsTimeout, setting gc.auto", ""},
		{"a symbolic ref", func(tb testing.TB, r *replicas) { r.b.quietly(tb, "symbolic-ref", "refs/heads/alias", mainRef) },
			"symref refs/heads/alias", "symref refs/heads/alias"},
		{"a name that can't be stored", func(tb testing.TB, r *replicas) {
			r.b.quietly(tb, "update-ref", "refs/heads/not-utf8-\xff", mainRef)
		}, "ref-broken refs/heads/not-utf8-\xff", "ref-broken refs/heads/not-utf8-\xff"},
		{"a broken ref", func(tb testing.TB, r *replicas) { must(tb, os.WriteFile(in(r, mainRef), nil, 0o644)) },
			"ref-broken , ref-broken refs/heads/main", "ref-broken , ref-broken refs/heads/main"},
		{"a ref that the database does not know", func(tb testing.TB, r *replicas) { r.b.quietly(tb, "update-ref", "refs/heads/x", mainRef) },
			"local-unknown refs/heads/x", "local-unknown refs/heads/x"},
		{"another value", func(tb testing.TB, r *replicas) { r.put(tb, mainRef, r.a.commit(tb, "x")) },
			"local-differs refs/heads/main", "local-differs refs/heads/main"},
		{"a ref that was deleted elsewhere", func(tb testing.TB, r *replicas) { r.put(tb, "refs/tags/v1", "") },
			"local-differs refs/tags/v1", "local-differs refs/tags/v1"},
		{"a ref that is missing", func(tb testing.TB, r *replicas) { r.b.quietly(tb, "update-ref", "-d", mainRef) },
			"global-missing-here refs/heads/main", "global-missing-here refs/heads/main"},
		{"a ref that is not guarded", func(tb testing.TB, r *replicas) {
			r.b.quietly(tb, "update-ref", "refs/changes/01/1/1", mainRef)
			r.put(tb, "refs/changes/02/2/2", r.b.commit(tb, "x"))
		}, "", ""},
		{"a push under way", func(tb testing.TB, r *replicas) {
			next := r.b.commit(tb, "x")
			u := refdb.Update{Ref: mainRef, Old: r.get(tb, mainRef), New: refdb.Value(next)}
			if _, err := r.db.Prepare(tb.Context(), project, []refdb.Update{u}, "x"); err != nil {
				tb.Fatal(err)
			}
			r.b.quietly(tb, "update-ref", mainRef, next)
		}, "", ""},
		{"an intent that stays", func(tb testing.TB, r *replicas) {
			u := refdb.Update{Ref: mainRef, Old: r.get(tb, mainRef), New: "1"}
			if _, err := r.db.Prepare(tb.Context(), project, []refdb.Update{u}, "x"); err != nil {
				tb.Fatal(err)
			}
			r.Exec(tb, `UPDATE intents SET time = time - 60000000`)
		}, "intent-pending refs/heads/main", "intent-pending refs/heads/main"},
		{"lock files of a git that was killed", func(tb testing.TB, r *replicas) {
			for _, name := range []string{"refs/heads/main.lock", "refs/heads/new/er.lock", "packed-refs.lock", "packed-refs.new", "config.lock", "HEAD.lock"} {
				age(tb, lockFile(tb, r.b, name))
			}
		}, "leftover-lock HEAD.lock, leftover-lock config.lock, leftover-lock packed-refs.lock, leftover-lock packed-refs.new, " +
			"leftover-lock refs/heads/main.lock, leftover-lock refs/heads/new/er.lock", ""},
		{"a lock file that is young", func(tb testing.TB, r *replicas) { lockFile(tb, r.b, "refs/heads/main.lock") }, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newGuarded(t)
			c.do(t, r)
			if got := r.check(t, r.db, false); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			for f := range strings.SplitSeq(r.check(t, r.db, true), ", ") {
				f, mended := strings.CutSuffix(f, " mended")
				if f != "" && mended == strings.Contains(c.left, f) {
					t.Errorf("%s: mended %v", f, mended)
				}
			}
			if got := r.check(t, r.db, false); got != c.left {
				t.Errorf("after the repair\ngot  %s\nwant %s", got, c.left)
			}
		})
	}
}

func TestCheckSaysThatTheDaemonIsDown(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	stop := r.serve(t)
	if _, err := r.enable(t, hookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	stop()
	if got := r.check(t, r.db, false); got != "daemon-down "+strings.TrimPrefix(r.config.Socket, r.b.dir+"/") {
		t.Errorf("got %s", got)
	}
	if got := r.check(t, nil, false); !strings.HasPrefix(got, "daemon-down") {
		t.Errorf("without the database: %s", got)
	}
}

// A lock file is left over only if no git works on the repository.
func TestALockFileOfALivingGitIsNoFinding(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]func(r *replicas) *exec.Cmd{
		"by its directory": func(r *replicas) *exec.Cmd {
			cmd := exec.Command("git", "cat-file", "--batch")
			cmd.Dir = filepath.Join(r.b.dir, "refs")
			return cmd
		},
		"by its arguments": func(r *replicas) *exec.Cmd {
			cmd := exec.Command("git", "--git-dir="+r.b.dir, "cat-file", "--batch")
			cmd.Dir = "/"
			return cmd
		},
		"by its environment": func(r *replicas) *exec.Cmd {
			cmd := exec.Command("git", "cat-file", "--batch")
			cmd.Dir = "/"
			cmd.Env = append(os.Environ(), "GIT_DIR="+r.b.dir)
			return cmd
		},
		"in a linked work tree": func(r *replicas) *exec.Cmd {
			tree := filepath.Join(t.TempDir(), "tree")
			r.b.quietly(t, "worktree", "add", "--quiet", "--detach", tree, r.b.commit(t, "x"))
			cmd := exec.Command("git", "cat-file", "--batch")
			cmd.Dir = tree
			return cmd
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newGuarded(t)
			age(t, lockFile(t, r.b, mainRef+".lock"))
			cmd := command(r)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// Once it answers it is git, and not this test about to become it.
			fmt.Fprintln(in, strings.Repeat("1", 40))
			if _, err := io.ReadFull(out, make([]byte, 40)); err != nil {
				t.Fatal(err)
			}
			if got := r.check(t, r.db, true); got != "" {
				t.Errorf("while it lives: %s", got)
			}
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			if got := r.check(t, r.db, true); got != "leftover-lock "+mainRef+".lock mended" {
				t.Errorf("afterwards: %s", got)
			}
		})
	}
}

func TestAnOperatorsDecisionThatNobodyHeedsIsAFinding(t *testing.T) {
	t.Parallel()
	r := newReplicas(t)
	b, err := refdb.New(r.Open(t), refdb.Options{Site: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Prepare(t.Context(), project, []refdb.Update{{Ref: mainRef, New: refdb.Value(r.b.commit(t, "x"))}}, "x"); err != nil {
		t.Fatal(err)
	}
	for i, err := range b.Intents(t.Context(), refdb.IntentFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.db.Resolve(t.Context(), []refdb.Intent{i}, refdb.TakeNew, "me", "it is gone"); err != nil {
			t.Fatal(err)
		}
	}
	r.Exec(t, `UPDATE intents SET time = time - 60000000`)
	if got := r.check(t, r.db, false); !strings.Contains(got, "intent-decided "+mainRef) || !strings.Contains(got, "global-missing-here "+mainRef) {
		t.Errorf("got %s", got)
	}
}

// Refs that are pushed to all the time are no findings.
func TestCheckBesidePushes(t *testing.T) {
	t.Parallel()
	r := newGuarded(t)
	a, b := r.b.commit(t, "a", r.b.refs(t)[mainRef]), r.b.commit(t, "b", r.b.refs(t)[mainRef])
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			value := []string{a, b}[i%2]
			for _, ref := range []string{mainRef, "refs/heads/x", "refs/heads/y"} {
				cmd := exec.Command("git", "-C", r.b.dir, "update-ref", ref, value)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
					return
				}
			}
		}
	}()
	for range 20 {
		if got := r.check(t, r.db, false); got != "" {
			t.Errorf("got %s", got)
		}
	}
	stop()
	<-ended
}
