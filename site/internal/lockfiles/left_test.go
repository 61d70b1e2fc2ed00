package lockfiles_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/internal/lockfiles"
)

// lockIn makes a repository with a lock file of a ref.
func lockIn(t *testing.T) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet", "--bare", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Mkdir(filepath.Join(dir, "refdb"), 0o755); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, "refs/heads/a.lock")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, file
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestLeftLockFilesAreRemoved(t *testing.T) {
	t.Parallel()
	dir, file := lockIn(t)
	n, err := lockfiles.RemoveLeft(t.Context(), nil, dir, time.Now().Add(time.Minute), func() ([]gitrepo.LockFile, error) { return gitrepo.LockFiles(dir) })
	if n != 1 || err != nil || exists(file) {
		t.Errorf("%d were removed, %v; it is there: %t", n, err, exists(file))
	}
}

func TestALockFileThatHasChangedStays(t *testing.T) {
	t.Parallel()
	dir, file := lockIn(t)
	n, err := lockfiles.RemoveLeft(t.Context(), nil, dir, time.Now().Add(time.Minute), func() ([]gitrepo.LockFile, error) {
		files, err := gitrepo.LockFiles(dir)
		if err == nil {
			err = os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour)) // it is another git's now
		}
		return files, err
	})
	if n != 0 || err != nil || !exists(file) {
		t.Errorf("%d were removed, %v; it is there: %t", n, err, exists(file))
	}
}

func TestLockFilesStayWhileAGitRuns(t *testing.T) {
	t.Parallel()
	dir, file := lockIn(t)
	git := exec.CommandContext(t.Context(), "git", "-C", dir, "cat-file", "--batch")
	in, err := git.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := git.StdoutPipe()
	if err == nil {
		err = git.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); git.Wait() }()
	// Git has opened the repository once it answers.
	io.WriteString(in, "HEAD\n")
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	n, err := lockfiles.RemoveLeft(t.Context(), nil, dir, time.Now(), func() ([]gitrepo.LockFile, error) { return gitrepo.LockFiles(dir) })
	if n != 0 || !errors.Is(err, lockfiles.ErrBusy) || !exists(file) {
		t.Errorf("%d were removed, %v; it is there: %t", n, err, exists(file))
	}
}

func TestOneProcessAtATimeRemovesLockFiles(t *testing.T) {
	t.Parallel()
	dir, file := lockIn(t)
	release, err := lockfiles.Exclusive(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n, err := lockfiles.RemoveLeft(ctx, nil, dir, time.Now(), func() ([]gitrepo.LockFile, error) {
		t.Error("it looks for files beside another process")
		return nil, nil
	})
	if n != 0 || err == nil || !exists(file) {
		t.Errorf("%d were removed, %v; it is there: %t", n, err, exists(file))
	}
}
