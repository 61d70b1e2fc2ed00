package mover_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/mover"
	"github.com/globalrefdb/globalrefdb/site/refusal"
)

// daemonVar makes this test's program move a ref, as a daemon does: the repository, and a commit.
const daemonVar = "REFDB_TEST_MOVES"

func TestMain(m *testing.M) {
	if dir, id, is := strings.Cut(os.Getenv(daemonVar), " "); is {
		repo, err := gitrepo.OpenDir(dir)
		if err == nil {
			err = new(mover.Mover).Refs(context.Background(), repo, []gitrepo.Move{{Ref: "refs/heads/x", To: id}}, "test", 0)
		}
		if err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// The next daemon waits for a git that a daemon which was killed has left, and no longer.
func TestAGitThatOutlivesItsDaemonIsWaitedFor(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a.git")
	sitetest.GitIn(t, t.TempDir(), "init", "--quiet", "--bare", dir)
	tree := strings.TrimSpace(sitetest.GitIn(t, dir, "hash-object", "-t", "tree", "-w", "/dev/null"))
	id := strings.TrimSpace(sitetest.GitIn(t, dir, "-c", "user.name=n", "-c", "user.email=e", "commit-tree", "-m", "x", tree))
	// Git stands still with the lock file of the ref, when it opens this.
	reflog := filepath.Join(dir, "logs/refs/heads/x")
	if err := errors.Join(os.MkdirAll(filepath.Dir(reflog), 0o755), syscall.Mkfifo(reflog, 0o644)); err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command("/proc/self/exe")
	daemon.Env = append(os.Environ(), daemonVar+"="+dir+" "+id)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	sitetest.Eventually(t, "git moves the ref", func() bool {
		_, err := os.Lstat(filepath.Join(dir, "refs/heads/x.lock"))
		return err == nil
	})
	if err := daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	daemon.Wait()
	var next mover.Mover
	if runs, err := next.HasEarlier(dir); !runs || err != nil {
		t.Errorf("a git of the earlier daemon runs: %v, %v", runs, err)
	}
	if err := next.AwaitEarlier(t.Context(), dir); refusal.ReasonOf(err) != refusal.Locked {
		t.Errorf("while it runs: %v", err)
	}
	f, err := os.OpenFile(reflog, os.O_RDONLY|syscall.O_NONBLOCK, 0) // lets it go on
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sitetest.Eventually(t, "it has ended", func() bool { return next.AwaitEarlier(t.Context(), dir) == nil })
	if err := os.Remove(reflog); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(sitetest.GitIn(t, dir, "rev-parse", "refs/heads/x")); got != id {
		t.Errorf("it has ended, and the ref is %s", got)
	}
}

// A repository that is gone has no git to wait for.
func TestNothingIsWaitedForWhereNothingIs(t *testing.T) {
	t.Parallel()
	if err := new(mover.Mover).AwaitEarlier(t.Context(), filepath.Join(t.TempDir(), "gone.git")); err != nil {
		t.Error(err)
	}
}
