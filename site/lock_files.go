package site

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/internal/lockfiles"
	"github.com/globalrefdb/globalrefdb/site/moving"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// lockFilesOf returns the lock files of the moves' refs, by repository.
func (d *Daemon) lockFilesOf(moves []*moving.Move) map[string][]gitrepo.LockFile {
	refs, deletes := map[string][]string{}, map[string]bool{}
	for _, m := range moves {
		path := m.Path
		if r, err := d.state.Config().Repository(m.Project); path == "" && err == nil {
			path = r.Path
		}
		if path != "" {
			refs[path] = append(refs[path], m.Ref)
			deletes[path] = deletes[path] || m.New.IsAbsent()
		}
	}
	found := map[string][]gitrepo.LockFile{}
	for path, names := range refs {
		found[path] = gitrepo.LocksOf(path, append(names, "HEAD"), deletes[path])
	}
	return found
}

// removeAbandoned removes lock files that a git which has ended left in a repository, in the background, once no
// git runs and no guard has work there that may have made them. Done is closed once they are gone, or can't be removed now.
func (d *Daemon) removeAbandoned(ctx context.Context, dir string, files []gitrepo.LockFile) (done <-chan struct{}) {
	ended := make(chan struct{})
	if len(lockfiles.There(files)) == 0 {
		close(ended)
		return ended
	}
	d.state.Tasks.Go(func() {
		defer close(ended)
		removed, err := d.removeAbandonedNow(ctx, dir, files)
		if err != nil {
			d.o.Logger.WarnContext(ctx, "a lock file that a git left can't be removed: see `refdbctl site check`")
		}
		if removed > 0 {
			d.o.Logger.InfoContext(ctx, "the lock files of a git that has ended were removed", "files", removed)
		}
	})
	return ended
}

func (d *Daemon) removeAbandonedNow(ctx context.Context, dir string, files []gitrepo.LockFile) (removed int, err error) {
	until := time.Now().Add(lockfiles.AbandonedLimit)
	// What is there while no guard has work is none's. It stays the same file, or is not removed.
	if !d.guards.AwaitIdle(ctx, dir, until, func() { files = lockfiles.There(files) }) {
		return 0, nil // `site check` finds them
	}
	release, err := lockfiles.Exclusive(ctx, dir)
	if err != nil {
		return 0, nil // the daemon ends, or the repository has gone
	}
	defer release()
	files = lockfiles.There(files)
	files, unsure, err := pusher.Abandoned(ctx, d.state.Config().GitPrograms, dir, files, until)
	if err != nil || unsure {
		return 0, nil
	}
	var failures []error
	for _, f := range files {
		if err := f.Remove(); err == nil {
			removed++
		} else if f.Exists() {
			failures = append(failures, err)
		}
	}
	return removed, errors.Join(failures...)
}
