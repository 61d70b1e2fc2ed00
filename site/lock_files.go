package site

import (
	"context"
	"errors"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/internal/lockfiles"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// abandonedLimit is how long the daemon waits for other gits before it removes the lock files of a process
// that has ended. If they still run then, `site check` finds the files.
const abandonedLimit = 10 * time.Minute

// lockFilesHeldBy returns the lock files that a git holds while its hook announces lines. Some versions of git
// also announce refs that they have not locked: a file may be another git's.
func lockFilesHeldBy(dir string, lines []wire.Line) []gitrepo.LockFile {
	names := make([]string, 0, len(lines)+2)
	deletes := false
	for _, l := range lines {
		names = append(names, l.Ref)
		deletes = deletes || l.NewZero()
	}
	return gitrepo.LocksOf(dir, names, deletes)
}

// lockFilesOf returns the lock files of the moves' refs, by repository.
func (d *Daemon) lockFilesOf(moves []*pendingMove) map[string][]gitrepo.LockFile {
	refs, deletes := map[string][]string{}, map[string]bool{}
	for _, m := range moves {
		path := m.path
		if r, err := d.config.Load().Repository(m.project); path == "" && err == nil {
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
// git runs and no guard has work there that may have made them.
func (d *Daemon) removeAbandoned(ctx context.Context, dir string, files []gitrepo.LockFile) {
	if len(thereOf(files)) == 0 {
		return
	}
	d.tasks.Go(func() {
		removed, err := d.removeAbandonedNow(ctx, dir, files)
		if err != nil {
			d.o.Logger.WarnContext(ctx, "a lock file that a git left can't be removed: see `refdbctl site check`")
		}
		if removed > 0 {
			d.o.Logger.InfoContext(ctx, "the lock files of a git that has ended were removed", "files", removed)
		}
	})
}

func (d *Daemon) removeAbandonedNow(ctx context.Context, dir string, files []gitrepo.LockFile) (removed int, err error) {
	until := time.Now().Add(abandonedLimit)
	if !d.guards.await(ctx, until, func() bool {
		// What is there while no guard has work is none's. It stays the same file, or is not removed.
		if d.guards.livingIn(dir) {
			return false
		}
		files = thereOf(files)
		return true
	}) {
		return 0, nil // `site check` finds them
	}
	alone, err := lockfiles.Alone(ctx, dir)
	if err != nil {
		return 0, nil // the daemon ends, or the repository has gone
	}
	defer alone()
	files = thereOf(files)
	files, unsure, err := pusher.Abandoned(ctx, d.config.Load().GitPrograms, dir, files, until)
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

// thereOf returns those of files that are there.
func thereOf(files []gitrepo.LockFile) (there []gitrepo.LockFile) {
	for _, f := range files {
		if f.Exists() {
			there = append(there, f)
		}
	}
	return there
}
