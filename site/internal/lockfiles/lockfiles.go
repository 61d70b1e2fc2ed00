// Package lockfiles keeps those apart who remove lock files that somebody has left in a repository.
package lockfiles

import (
	"context"
	"path/filepath"

	"github.com/globalrefdb/globalrefdb/site/internal/filelock"
)

// Exclusive waits until nobody else looks for lock files to remove in the repository whose Git directory is dir, in whatever process: of two that
// have looked, the later one would remove what somebody else has made since. The function that it returns lets others look.
func Exclusive(ctx context.Context, dir string) (release func(), err error) {
	f, err := filelock.Exclusive(ctx, filepath.Join(dir, "refdb", "lock-files"))
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}
