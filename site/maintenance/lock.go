// Package maintenance does in a guarded repository what `git gc` would do: it packs refs and
// objects, and prunes objects that are no longer needed. Git's own rules for pruning are too weak
// if objects of other sites build on objects that are here: see PROTOCOL.md, K8.
package maintenance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/site/internal/filelock"
)

// pruningFile returns the path of the file that is locked by a running prune. The prune's git
// inherits the lock, so that the lock is held as long as git runs, even if the daemon has ended.
func pruningFile(dir string) string { return filepath.Join(dir, "refdb", "pruning") }

// Share keeps the repository whose Git directory is dir from being pruned until release is called.
// It is for processes other than the daemon. It waits while the repository is being pruned.
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

// Exclusive waits until no process shares the repository or prunes it. It returns the locked file,
// which [Prune] passes on to git. The lock ends when all of these processes have closed the file.
func Exclusive(ctx context.Context, dir string) (*os.File, error) {
	return filelock.Exclusive(ctx, pruningFile(dir))
}
