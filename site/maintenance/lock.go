// Package maintenance does in a guarded repository what `git gc` would do: it packs refs and objects, and prunes
// objects that nobody needs any more. Git's own rules for pruning are too weak if other sites' objects build on what
// is here: see PROTOCOL.md, K8.
package maintenance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/site/internal/filelock"
)

// pruningFile is locked by a prune that runs. The child has inherited the lock, which so outlives the daemon as long as
// the child does.
func pruningFile(dir string) string { return filepath.Join(dir, "refdb", "pruning") }

// Share keeps the repository whose Git directory is dir from being pruned until the function is called. It is for
// processes other than the daemon. It waits while the repository is pruned.
func Share(ctx context.Context, dir string) (release func(), err error) {
	f, err := filelock.Shared(ctx, pruningFile(dir))
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("waiting until %s has been pruned: %w", dir, err)
	}
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

// Exclusive waits until no process shares the repository, or prunes it. A prune inherits the file that it returns, whose closing
// ends the lock.
func Exclusive(ctx context.Context, dir string) (*os.File, error) {
	return filelock.Exclusive(ctx, pruningFile(dir))
}
