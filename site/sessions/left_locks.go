package sessions

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/internal/lockfiles"
)

// RemoveLeft removes lock files that a git which has ended left in a repository, in the background,
// once no git runs and no guard works there that may have made them. Done is closed once they are
// gone, or can't be removed now.
func (gs *Guards) RemoveLeft(ctx context.Context, dir string, files []gitrepo.LockFile) (done <-chan struct{}) {
	ended := make(chan struct{})
	if len(lockfiles.There(files)) == 0 {
		close(ended)
		return ended
	}
	gs.State.Tasks.Go(func() {
		defer close(ended)
		until := time.Now().Add(lockfiles.AbandonedLimit)
		// No guard has made the files that are there while no guard works. A file that changes
		// afterwards is not removed.
		if !gs.AwaitIdle(ctx, dir, until, func() { files = lockfiles.There(files) }) {
			return // `site check` finds them
		}
		removed, err := lockfiles.RemoveLeft(ctx, gs.State.Config().GitPrograms, dir, until, func() ([]gitrepo.LockFile, error) {
			return lockfiles.There(files), nil
		})
		if errors.Is(err, lockfiles.ErrStays) {
			gs.Logger.WarnContext(ctx, "a lock file that a git left can't be removed: see `refdbctl site check`")
		}
		if removed > 0 {
			gs.Logger.InfoContext(ctx, "the lock files of a git that has ended were removed", "files", removed)
		}
	})
	return ended
}

// removeLeftByDead removes the lock files of refs that a dead guard has left in the repository at
// path.
func (gs *Guards) removeLeftByDead(ctx context.Context, path string, refs []string) error {
	until := time.Now().Add(lockfiles.AbandonedLimit)
	removed, err := lockfiles.RemoveLeft(ctx, gs.State.Config().GitPrograms, path, until, func() ([]gitrepo.LockFile, error) {
		return lockFilesThere(path, refs), nil
	})
	if err == nil {
		gs.Logger.InfoContext(ctx, "the lock files of a guard that has died were removed", "files", removed)
	}
	return err
}

// lockFilesThere returns the lock files that are there of refs and of packed-refs, which a guard
// locks for nearly everything.
func lockFilesThere(path string, refs []string) []gitrepo.LockFile {
	return lockfiles.There(gitrepo.LocksOf(path, append(refs, "HEAD"), true))
}
