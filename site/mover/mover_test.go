package mover_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/internal/testfifo"
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
	stall := testfifo.New(t, dir, "refs/heads/x")
	daemon := exec.Command("/proc/self/exe")
	daemon.Env = append(os.Environ(), daemonVar+"="+dir+" "+id)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	stall.Wait(t)
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
	stall.Drain()
	sitetest.Eventually(t, "it has ended", func() bool { return next.AwaitEarlier(t.Context(), dir) == nil })
	stall.Remove(t)
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
