package check_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

func age(tb testing.TB, path string) {
	tb.Helper()
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, past, past); err != nil {
		tb.Fatal(err)
	}
}

// stored lets the database keep the objects of the rig's project from now on.
func stored(tb testing.TB, r *sitetest.Replicas) {
	tb.Helper()
	row := driver.Project{Project: sitetest.Project, ID: "1", Rules: r.Config.Rules().String(), Mode: config.Enforce, Store: config.StoreAll}
	if _, err := r.DB.Projects().Put(tb.Context(), row); err != nil {
		tb.Fatal(err)
	}
}

// mirrored declares the rig's project a mirror at a site.
func mirrored(tb testing.TB, r *sitetest.Replicas, site string) {
	tb.Helper()
	sitetest.GitIn(tb, r.B.Dir, "remote", "add", "--mirror=fetch", "upstream", r.A.Dir)
	row, err := r.DB.Projects().Put(tb.Context(), driver.Project{Project: sitetest.Project, ID: "1", Rules: r.Config.Rules().String(), Mode: config.Enforce})
	if err == nil {
		err = projects.SetMirror(tb.Context(), r.DB, row, "", site)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func TestCheckFindsAndRepairMends(t *testing.T) {
	t.Parallel()
	in := func(r *sitetest.Replicas, name string) string { return filepath.Join(r.B.Dir, name) }
	hook := func(r *sitetest.Replicas, name string) string { return filepath.Join(r.Config.Hooks, "current", name) }
	must := func(tb testing.TB, err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		do   func(tb testing.TB, r *sitetest.Replicas)
		want string
		left string // after the repair
	}{
		{"nothing", func(testing.TB, *sitetest.Replicas) {}, "", ""},
		{"a hook that is gone", func(tb testing.TB, r *sitetest.Replicas) { must(tb, os.Remove(hook(r, "update"))) }, "hook-missing HOOKS/current/update", ""},
		{"another's hook", func(tb testing.TB, r *sitetest.Replicas) {
			must(tb, os.Remove(hook(r, "reference-transaction")))
			must(tb, testprogram.Write(hook(r, "reference-transaction"), []byte("#!/bin/sh\n")))
		}, "hook-foreign HOOKS/current/reference-transaction", ""},
		{"a hook that can't be run", func(tb testing.TB, r *sitetest.Replicas) {
			must(tb, os.Rename(sitetest.HookFile(tb, ""), hook(r, "update"))) // not a link, as the others are
			must(tb, os.Chmod(hook(r, "update"), 0o644))
		}, "hook-not-executable HOOKS/current/update", ""},
		{"hooks that can't be run", func(tb testing.TB, r *sitetest.Replicas) { must(tb, os.Chmod(hook(r, "update"), 0o444)) },
			"hook-not-executable HOOKS/current/post-receive, hook-not-executable HOOKS/current/post-update, hook-not-executable HOOKS/current/pre-receive, " +
				"hook-not-executable HOOKS/current/proc-receive, hook-not-executable HOOKS/current/reference-transaction, hook-not-executable HOOKS/current/update", ""},
		{"a directory of hooks that is gone", func(tb testing.TB, r *sitetest.Replicas) { must(tb, os.RemoveAll(r.Config.Hooks)) },
			"hook-missing HOOKS/current", ""},
		{"a directory of hooks that leads nowhere", func(tb testing.TB, r *sitetest.Replicas) { must(tb, os.Remove(r.Config.Hooks+"/current")) },
			"hook-missing HOOKS/current", ""},
		{"no file that shows refs to pushes", func(tb testing.TB, r *sitetest.Replicas) { must(tb, os.Remove(hook(r, "config"))) },
			"hook-missing HOOKS/current/config", ""},
		{"hooks that not everybody can enter", func(tb testing.TB, r *sitetest.Replicas) { must(tb, os.Chmod(r.Config.Hooks, 0o700)) },
			"hook-not-executable HOOKS, hook-not-executable HOOKS/current", ""},
		{"hooks of another version", func(tb testing.TB, r *sitetest.Replicas) {
			older, err := os.ReadFile(sitetest.HookFile(tb, "older"))
			must(tb, err)
			_, err = hookdir.Dir(r.Config.Hooks).Provide(tb.Context(), older, true)
			must(tb, err)
		}, "hook-outdated HOOKS/current", ""},
		{"hooks elsewhere, by a file that is included later", func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "config", "--file", in(r, "more"), "core.hooksPath", "/dev/null")
			sitetest.GitIn(tb, r.B.Dir, "config", "--add", "include.path", in(r, "more"))
		}, "hooks-path /dev/null", ""},
		{"hooks elsewhere, by the configuration of a work tree", func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "config", "extensions.worktreeConfig", "true")
			sitetest.GitIn(tb, r.B.Dir, "config", "--worktree", "core.hooksPath", "/dev/null")
		}, "hooks-path config.worktree", "hooks-path config.worktree"},
		{"no link to the repository's own hooks", func(tb testing.TB, r *sitetest.Replicas) { must(tb, os.Remove(in(r, "refdb/own-hooks"))) },
			"hooks-path refdb/own-hooks", ""},
		{"a hook that git does not run", func(tb testing.TB, r *sitetest.Replicas) { sitetest.ForeignHook(tb, r.B, "push-to-checkout", "exit 0") },
			"hook-other hooks/push-to-checkout", "hook-other hooks/push-to-checkout"},
		{"pushes that are accepted without the site's hooks", func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "config", "--unset-all", "receive.hideRefs")
		}, "setting receive.hideRefs", ""},
		{"pushes that are not accepted with the site's hooks", func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "config", "--unset-all", "include.path")
		}, "hook-missing include.path", ""},
		{"refs that pushes are shown all the same", func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "config", "--add", "receive.hideRefs", "!refs/heads/x")
		}, "setting receive.hideRefs", ""},
		{"refs that pushes are shown later, all the same", func(tb testing.TB, r *sitetest.Replicas) {
			must(tb, os.WriteFile(in(r, "config"), []byte(r.B.File(tb, "config")+"[receive]\n\thideRefs = !refs/heads/x\n"), 0o644))
		}, "setting receive.hideRefs", ""},
		{"refs that pushes are shown by the configuration of a work tree", func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "config", "extensions.worktreeConfig", "true")
			sitetest.GitIn(tb, r.B.Dir, "config", "--worktree", "receive.hideRefs", "!refs/heads/x")
		}, "hooks-path config.worktree", "hooks-path config.worktree"},
		{"refs that an administrator hides", func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "config", "--add", "transfer.hideRefs", "refs/secret")
		}, "setting receive.hideRefs", ""},
		{"no link to the socket", func(tb testing.TB, r *sitetest.Replicas) { must(tb, os.Remove(in(r, "refdb/socket"))) }, "socket refdb/socket", ""},
		{"a wrong link to the socket", func(tb testing.TB, r *sitetest.Replicas) {
			must(tb, os.Remove(in(r, "refdb/socket")))
			must(tb, os.Symlink("/nowhere", in(r, "refdb/socket")))
		}, "socket refdb/socket", ""},
		{"settings", func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "config", "--unset", "gc.auto")
			sitetest.GitIn(tb, r.B.Dir, "config", "core.packedRefsTimeout", "100")
			sitetest.GitIn(tb, r.B.Dir, "config", "core.filesRefLockTimeout", "20000")
		}, "setting core.packedRefsTimeout, setting gc.auto", ""},
		{"a mirror of another repository", func(tb testing.TB, r *sitetest.Replicas) {
			sitetest.GitIn(tb, r.B.Dir, "remote", "add", "--mirror=fetch", "up.stream", r.A.Dir)
			sitetest.GitIn(tb, r.B.Dir, "remote", "add", "tracked", r.A.Dir)
			sitetest.GitIn(tb, r.B.Dir, "remote", "add", "--mirror=push", "backup", r.A.Dir)
			sitetest.GitIn(tb, r.B.Dir, "config", "remote.one.fetch", "main:main")
			sitetest.GitIn(tb, r.B.Dir, "config", "remote.none.fetch", "main")
		}, "guarded-fetch remote.one.fetch, guarded-fetch remote.up.stream.fetch", "guarded-fetch remote.one.fetch, guarded-fetch remote.up.stream.fetch"},
		{"a mirror that this site fetches", func(tb testing.TB, r *sitetest.Replicas) { mirrored(tb, r, r.Config.Site) }, "", ""},
		{"a mirror that another site fetches", func(tb testing.TB, r *sitetest.Replicas) { mirrored(tb, r, "another") },
			"guarded-fetch remote.upstream.fetch", "guarded-fetch remote.upstream.fetch"},
		{"a symbolic ref", func(tb testing.TB, r *sitetest.Replicas) {
			r.B.Quietly(tb, "symbolic-ref", "refs/heads/alias", sitetest.MainRef)
		},
			"symref refs/heads/alias", "symref refs/heads/alias"},
		{"a name that can't be stored", func(tb testing.TB, r *sitetest.Replicas) {
			r.B.Quietly(tb, "update-ref", "refs/heads/not-utf8-\xff", sitetest.MainRef)
		}, "ref-broken refs/heads/not-utf8-\xff", "ref-broken refs/heads/not-utf8-\xff"},
		{"an empty file in the place of a ref", func(tb testing.TB, r *sitetest.Replicas) { must(tb, os.WriteFile(in(r, sitetest.MainRef), nil, 0o644)) },
			"ref-broken refs/heads/main", ""},
		{"zeros in the file of a ref that is packed with an older value", func(tb testing.TB, r *sitetest.Replicas) {
			r.B.Quietly(tb, "pack-refs", "--all")
			next := r.B.Commit(tb, "next", r.B.Refs(tb)[sitetest.MainRef])
			r.Put(tb, sitetest.MainRef, next)
			must(tb, os.MkdirAll(filepath.Dir(in(r, sitetest.MainRef)), 0o755))
			must(tb, os.WriteFile(in(r, sitetest.MainRef), make([]byte, 41), 0o644))
		}, "ref-broken refs/heads/main", ""},
		{"a broken ref that the database does not know", func(tb testing.TB, r *sitetest.Replicas) { must(tb, os.WriteFile(in(r, "refs/heads/x"), nil, 0o644)) },
			"ref-broken refs/heads/x", "ref-broken refs/heads/x"},
		{"a ref that the database does not know", func(tb testing.TB, r *sitetest.Replicas) {
			r.B.Quietly(tb, "update-ref", "refs/heads/x", sitetest.MainRef)
		},
			"local-unknown refs/heads/x", "local-unknown refs/heads/x"},
		{"another value", func(tb testing.TB, r *sitetest.Replicas) { r.Put(tb, sitetest.MainRef, r.A.Commit(tb, "x")) },
			"local-differs refs/heads/main", "local-differs refs/heads/main"},
		{"a ref that was deleted elsewhere", func(tb testing.TB, r *sitetest.Replicas) { r.Put(tb, "refs/tags/v1", "") },
			"local-differs refs/tags/v1", "local-differs refs/tags/v1"},
		{"a ref that is missing", func(tb testing.TB, r *sitetest.Replicas) { r.B.Quietly(tb, "update-ref", "-d", sitetest.MainRef) },
			"global-missing-here refs/heads/main", "global-missing-here refs/heads/main"},
		{"two refs that git can't hold both", func(tb testing.TB, r *sitetest.Replicas) {
			next := r.B.Commit(tb, "x")
			for _, ref := range []string{sitetest.MainRef + "-beside", sitetest.MainRef + "/x", sitetest.MainRef + "0"} {
				r.Put(tb, ref, next)
			}
			r.Put(tb, sitetest.MainRef+"/deleted", next)
			r.Put(tb, sitetest.MainRef+"/deleted", "")
		}, "global-missing-here refs/heads/main-beside, global-missing-here refs/heads/main0, name-conflict refs/heads/main/x",
			"global-missing-here refs/heads/main-beside, global-missing-here refs/heads/main0, name-conflict refs/heads/main/x"},
		{"a ref that is not guarded", func(tb testing.TB, r *sitetest.Replicas) {
			r.B.Quietly(tb, "update-ref", "refs/changes/01/1/1", sitetest.MainRef)
			r.Put(tb, "refs/changes/02/2/2", r.B.Commit(tb, "x"))
		}, "", ""},
		{"a push under way", func(tb testing.TB, r *sitetest.Replicas) {
			next := r.B.Commit(tb, "x")
			u := refdb.Update{Ref: sitetest.MainRef, Old: r.Get(tb, sitetest.MainRef), New: refdb.Value(next)}
			if _, err := r.DB.Intents().Prepare(tb.Context(), sitetest.Project, []refdb.Update{u}, "x"); err != nil {
				tb.Fatal(err)
			}
			r.Exec(tb, `UPDATE intents SET time = time + 3600000000`) // it stays young
			r.B.Quietly(tb, "update-ref", sitetest.MainRef, next)
		}, "", ""},
		{"an intent that stays", func(tb testing.TB, r *sitetest.Replicas) {
			u := refdb.Update{Ref: sitetest.MainRef, Old: r.Get(tb, sitetest.MainRef), New: "1"}
			if _, err := r.DB.Intents().Prepare(tb.Context(), sitetest.Project, []refdb.Update{u}, "x"); err != nil {
				tb.Fatal(err)
			}
			r.Exec(tb, `UPDATE intents SET time = time - 60000000`)
		}, "intent-pending refs/heads/main", "intent-pending refs/heads/main"},
		{"lock files of a git that was killed", func(tb testing.TB, r *sitetest.Replicas) {
			for _, name := range []string{"refs/heads/main.lock", "refs/heads/new/er.lock", "packed-refs.lock", "packed-refs.new", "config.lock", "HEAD.lock", "logs/refs/heads/main.lock"} {
				age(tb, sitetest.LockFile(tb, r.B, name))
			}
		}, "leftover-lock HEAD.lock, leftover-lock config.lock, leftover-lock logs/refs/heads/main.lock, leftover-lock packed-refs.lock, leftover-lock packed-refs.new, " +
			"leftover-lock refs/heads/main.lock, leftover-lock refs/heads/new/er.lock", ""},
		{"objects that the database is to keep and lacks", func(tb testing.TB, r *sitetest.Replicas) {
			stored(tb, r)
		}, "no-base team/app", "no-base team/app"},
		{"a first pack that builds on what the database lacks", func(tb testing.TB, r *sitetest.Replicas) {
			stored(tb, r)
			r.Exec(tb, `INSERT INTO packs VALUES ('1', 'team/app', 'b/1', 'x', 'y', 0, 1, 1, 1, '', 0)`)
		}, "no-base team/app", "no-base team/app"},
		{"objects from the first push on", func(tb testing.TB, r *sitetest.Replicas) {
			stored(tb, r)
			r.Exec(tb, `INSERT INTO packs VALUES ('1', 'team/app', 'b/1', '', 'y', 0, 1, 1, 1, '', 0)`)
		}, "", ""},
		{"packs that nobody uses", func(tb testing.TB, r *sitetest.Replicas) {
			r.Exec(tb, `INSERT INTO packs VALUES ('1', 'team/app', 'b/1', '', 'y', 0, NULL, 1, 2 << 30, '', 0)`)
		}, "packs-unused ", "packs-unused "},
		{"maintenance that does not come", func(tb testing.TB, r *sitetest.Replicas) {
			daily := *r.Config
			daily.Maintain, r.Config = true, &daily
			file := in(r, "refdb/maintained")
			past := time.Now().Add(-9 * 24 * time.Hour)
			must(tb, os.WriteFile(file, nil, 0o644))
			must(tb, os.Chtimes(file, past, past))
		}, "not-maintained team/app", "not-maintained team/app"},
		{"a lock file that a guard may have made which lives", func(tb testing.TB, r *sitetest.Replicas) {
			guardsIntent(tb, r)
			age(tb, sitetest.LockFile(tb, r.B, "packed-refs.lock"))
		}, "leftover-lock packed-refs.lock", "leftover-lock packed-refs.lock"},
		{"a lock file that is young", func(tb testing.TB, r *sitetest.Replicas) {
			file, future := sitetest.LockFile(tb, r.B, "refs/heads/main.lock"), time.Now().Add(time.Hour) // it stays young
			must(tb, os.Chtimes(file, future, future))
		}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := sitetest.NewGuarded(t)
			c.do(t, r)
			if got := r.Check(t, r.DB, false); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			for f := range strings.SplitSeq(r.Check(t, r.DB, true), ", ") {
				f, mended := strings.CutSuffix(f, " mended")
				if f != "" && mended == strings.Contains(c.left, f) {
					t.Errorf("%s: mended %v", f, mended)
				}
			}
			if got := r.Check(t, r.DB, false); got != c.left {
				t.Errorf("after the repair\ngot  %s\nwant %s", got, c.left)
			}
		})
	}
}

func TestCheckSaysThatTheDaemonIsDown(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	stop := r.Serve(t)
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	stop()
	if got := r.Check(t, r.DB, false); got != "daemon-down "+strings.TrimPrefix(r.Config.Socket, r.B.Dir+"/") {
		t.Errorf("got %s", got)
	}
	if got := r.Check(t, nil, false); !strings.HasPrefix(got, "daemon-down") {
		t.Errorf("without the database: %s", got)
	}
}

// A lock file is left over only if no git works on the repository.
func TestALockFileOfALivingGitIsNoFinding(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]func(r *sitetest.Replicas) *exec.Cmd{
		"by its directory": func(r *sitetest.Replicas) *exec.Cmd {
			cmd := exec.Command("git", "cat-file", "--batch")
			cmd.Dir = filepath.Join(r.B.Dir, "refs")
			return cmd
		},
		"by its arguments": func(r *sitetest.Replicas) *exec.Cmd {
			cmd := exec.Command("git", "--git-dir="+r.B.Dir, "cat-file", "--batch")
			cmd.Dir = "/"
			return cmd
		},
		"by its environment": func(r *sitetest.Replicas) *exec.Cmd {
			cmd := exec.Command("git", "cat-file", "--batch")
			cmd.Dir = "/"
			cmd.Env = append(os.Environ(), "GIT_DIR="+r.B.Dir)
			return cmd
		},
		"in a linked work tree": func(r *sitetest.Replicas) *exec.Cmd {
			tree := filepath.Join(t.TempDir(), "tree")
			r.B.Quietly(t, "worktree", "add", "--quiet", "--detach", tree, r.B.Commit(t, "x"))
			cmd := exec.Command("git", "cat-file", "--batch")
			cmd.Dir = tree
			return cmd
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sitetest.NewGuarded(t)
			age(t, sitetest.LockFile(t, r.B, sitetest.MainRef+".lock"))
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
			if got := r.Check(t, r.DB, true); got != "" {
				t.Errorf("while it lives: %s", got)
			}
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			if got := r.Check(t, r.DB, true); got != "leftover-lock "+sitetest.MainRef+".lock mended" {
				t.Errorf("afterwards: %s", got)
			}
		})
	}
}

// A git that waits for the lock of one that was killed has it no more than others.
func TestALockFileIsRemovedThatAnotherGitWaitsFor(t *testing.T) {
	t.Parallel()
	r := sitetest.NewGuarded(t)
	age(t, sitetest.LockFile(t, r.B, sitetest.MainRef+".lock"))
	waiting := func() (found string, outlived bool) {
		// It sleeps 7 s between its attempts, and on a busy machine much longer: then it may outlive the check's patience.
		cmd := exec.Command("git", "-c", "core.hooksPath=/dev/null", "-c", "core.filesRefLockTimeout=7000", "update-ref", "--stdin")
		cmd.Env = append(os.Environ(), "GIT_DIR="+r.B.Dir)
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
		defer cmd.Wait()
		defer in.Close()
		io.WriteString(in, "start\n")
		if _, err := io.ReadFull(out, make([]byte, len("start: ok\n"))); err != nil {
			t.Fatal(err)
		}
		io.WriteString(in, "delete "+sitetest.MainRef+"\nprepare\n")
		gone := make(chan string, 1)
		go func() {
			said, _ := io.ReadAll(out) // to its end
			gone <- string(said)
		}()
		found = r.Check(t, r.DB, true)
		select {
		case said := <-gone:
			if said != "" {
				t.Errorf("the other git has got the lock: %q", said)
			}
		default:
			outlived = true
			in.Close()
			if said := <-gone; said != "" {
				t.Errorf("the other git has got the lock: %q", said)
			}
		}
		return found, outlived
	}
	const mended = "leftover-lock " + sitetest.MainRef + ".lock mended"
	for deadline := time.Now().Add(sitetest.Patience); ; {
		switch found, outlived := waiting(); {
		case found == mended:
			return
		case !outlived || time.Now().After(deadline):
			t.Fatalf("check finds %q", found)
		}
	}
}

func TestALockFileStaysWhileAGuardLivesThatADaemonHasMet(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Config.Socket = filepath.Join(t.TempDir(), "none") // it is the daemon's word otherwise
	age(t, sitetest.LockFile(t, r.B, "packed-refs.lock"))
	this, ok := pusher.ParseGuard(thisGuard(t))
	if !ok {
		t.Fatal(thisGuard(t))
	}
	for _, row := range []struct {
		noted []pusher.Guard
		want  string
	}{
		{[]pusher.Guard{this}, "leftover-lock packed-refs.lock,"},
		{nil, "leftover-lock packed-refs.lock mended"},
	} {
		if err := pusher.NoteGuards(r.Config.State, row.noted); err != nil {
			t.Fatal(err)
		}
		if got := r.Check(t, r.DB, true) + ","; !strings.Contains(got, row.want) {
			t.Errorf("with %d guards: %s", len(row.noted), got)
		}
	}
}

// Between the look and the repair a guard may have begun to work there.
func TestALockFileStaysIfAGuardHasBegunToWorkMeanwhile(t *testing.T) {
	t.Parallel()
	for want, answers := range map[string][]string{
		"leftover-lock packed-refs.lock,":       {wire.NoGuardsWork, wire.GuardsMayWork},
		"leftover-lock packed-refs.lock mended": {wire.NoGuardsWork, wire.NoGuardsWork},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			r := sitetest.NewReplicas(t)
			r.Config.Socket = filepath.Join(t.TempDir(), "s")
			l, err := net.Listen("unix", r.Config.Socket)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					var said wire.Response
					if q, err := wire.ReadRequest(conn); err == nil && q.State == wire.StateGuards && len(answers) > 0 {
						said = wire.Response{OK: true, Lines: answers[:1]}
						answers = answers[1:]
					}
					said.Write(conn)
					conn.Close()
				}
			}()
			age(t, sitetest.LockFile(t, r.B, "packed-refs.lock"))
			if got := r.Check(t, r.DB, true) + ","; !strings.Contains(got, want) {
				t.Error(got)
			}
		})
	}
}

// thisGuard is the name of a guard that lives: this process.
func thisGuard(tb testing.TB) string {
	tb.Helper()
	process, err := pusher.ThisProcess()
	if err != nil {
		tb.Fatal(err)
	}
	return process + ":0123456789abcdef0123456789abcdef"
}

// guardsIntent leaves an intent of thisGuard.
func guardsIntent(tb testing.TB, r *sitetest.Replicas) {
	tb.Helper()
	db, err := refdb.New(r.Open(tb), refdb.Options{Site: r.Config.Site})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	new := []refdb.Update{{Ref: "refs/heads/guards", New: refdb.Value(r.B.Commit(tb, "x"))}}
	if _, err := db.Intents().Prepare(tb.Context(), sitetest.Project, new, thisGuard(tb)+":7"); err != nil {
		tb.Fatal(err)
	}
}

func TestAnOperatorsDecisionThatNobodyHeedsIsAFinding(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	stop := r.Serve(t)
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	stop()
	b, err := refdb.New(r.Open(t), refdb.Options{Site: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Intents().Prepare(t.Context(), sitetest.Project, []refdb.Update{{Ref: sitetest.MainRef, New: refdb.Value(r.B.Commit(t, "x"))}}, "x"); err != nil {
		t.Fatal(err)
	}
	for i, err := range b.Intents().All(t.Context(), driver.IntentFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.DB.Intents().Resolve(t.Context(), []driver.Intent{i}, driver.TakeNew, "me", "it is gone"); err != nil {
			t.Fatal(err)
		}
	}
	r.Exec(t, `UPDATE intents SET time = time - 60000000`)
	if got := r.Check(t, r.DB, false); !strings.Contains(got, "intent-decided "+sitetest.MainRef) || !strings.Contains(got, "global-missing-here "+sitetest.MainRef) {
		t.Errorf("got %s", got)
	}
}

// Refs that are pushed to all the time are no findings.
func TestCheckBesidePushes(t *testing.T) {
	t.Parallel()
	r := sitetest.NewGuarded(t)
	for _, key := range []string{"core.filesRefLockTimeout", "core.packedRefsTimeout"} {
		sitetest.GitIn(t, r.B.Dir, "config", key, "-1") // as long as it takes
	}
	a, b := r.B.Commit(t, "a", r.B.Refs(t)[sitetest.MainRef]), r.B.Commit(t, "b", r.B.Refs(t)[sitetest.MainRef])
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			value := []string{a, b}[i%2]
			for _, ref := range []string{sitetest.MainRef, "refs/heads/x", "refs/heads/y"} {
				cmd := exec.Command("git", "-C", r.B.Dir, "update-ref", ref, value)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
					return
				}
			}
		}
	}()
	for range 20 {
		if got := r.Check(t, r.DB, false); got != "" {
			t.Errorf("got %s", got)
		}
	}
	stop()
	<-ended
}

func TestCheckFindsWhatTheDaemonCanNotBringUp(t *testing.T) {
	t.Parallel()
	r := sitetest.NewGuarded(t)
	status := client.Status{Presence: true, Database: true, Behind: []client.Behind{
		{Project: sitetest.Project, Reason: "objects are missing", Age: 61}, {Project: "another", Reason: "it can't be cloned", Age: 61},
		{Project: "soon", Reason: "moved meanwhile", Age: 59},
	}}
	c := *r.Config
	c.Socket = filepath.Join(t.TempDir(), "s")
	answering(t, c.Socket, status)
	var got []string
	if err := check.Run(t.Context(), &c, nil, []config.Repository{r.RepositoryB()}, check.Options{}, func(f check.Finding) {
		if f.Code == check.Behind {
			got = append(got, f.Project+": "+f.Detail)
		}
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		sitetest.Project + ": it has been behind the database for 1m1s: objects are missing",
		"another: it has been behind the database for 1m1s: it can't be cloned",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// answering answers whatever is asked at a socket with a status.
func answering(tb testing.TB, path string, status client.Status) {
	tb.Helper()
	text, err := json.Marshal(status)
	if err != nil {
		tb.Fatal(err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = wire.ReadRequest(conn)
			_ = wire.Response{OK: true, Lines: []string{string(text)}}.Write(conn)
			conn.Close()
		}
	}()
}
