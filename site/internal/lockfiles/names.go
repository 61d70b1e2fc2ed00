package lockfiles

import (
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// AbandonedLimit is how long the daemon waits for other gits before it removes the lock files of a process
// that has ended. If they still run then, `site check` finds the files.
const AbandonedLimit = 10 * time.Minute

// HeldBy returns the lock files that a git holds while its hook announces lines. Some versions of git
// also announce refs that they have not locked: a file may be another git's.
func HeldBy(dir string, lines []wire.Line) []gitrepo.LockFile {
	names := make([]string, 0, len(lines)+2)
	deletes := false
	for _, l := range lines {
		names = append(names, l.Ref)
		deletes = deletes || l.NewZero()
	}
	return gitrepo.LocksOf(dir, names, deletes)
}

// There returns those of files that are there.
func There(files []gitrepo.LockFile) (there []gitrepo.LockFile) {
	for _, f := range files {
		if f.Exists() {
			there = append(there, f)
		}
	}
	return there
}
