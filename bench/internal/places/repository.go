package places

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/bench/internal/command"
)

// MakeRepository makes a bare Git repository with n refs at one commit.
func MakeRepository(ctx context.Context, path string, n int, name func(int) string) error {
	if _, err := command.Git(ctx, "init", "--quiet", "--bare", path); err != nil || n == 0 {
		return err
	}
	tree, err := command.Git(ctx, "--git-dir", path, "hash-object", "-w", "-t", "tree", os.DevNull)
	if err != nil {
		return err
	}
	commit, err := command.Git(ctx, "--git-dir", path, "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit-tree", "-m", "bench", tree)
	if err != nil {
		return err
	}
	return writeRefs(path, commit, n, name)
}

// writeRefs gives a repository n refs, packed, whose names are in byte order.
func writeRefs(repo, commit string, n int, name func(int) string) error {
	f, err := os.Create(filepath.Join(repo, "packed-refs"))
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	fmt.Fprintln(out, "# pack-refs with: peeled fully-peeled sorted ")
	for i := range n {
		fmt.Fprintln(out, commit, name(i))
	}
	return errors.Join(out.Flush(), f.Close())
}

// Branch returns the name of the i-th branch. Names are in byte order.
func Branch(i int) string { return fmt.Sprintf("refs/heads/branch-%07d", i) }
