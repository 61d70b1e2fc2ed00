package pusher

import (
	"context"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// Abandoned returns those lock files of the repository dir that no running git can have made. It
// waits until the gits that work on dir now have ended; if some still run at the time until, it
// returns none. Unsure says that it could not look at some processes. GitPrograms are names of
// programs that are git under another name.
func Abandoned(ctx context.Context, gitPrograms []string, dir string, files []gitrepo.LockFile, until time.Time) (left []gitrepo.LockFile, unsure bool, err error) {
	ended, unsure, err := AwaitGits(ctx, gitPrograms, dir, until)
	if err != nil || !ended {
		return nil, unsure, err
	}
	return slices.DeleteFunc(files, func(f gitrepo.LockFile) bool { return !f.Exists() }), unsure, nil
}

// AwaitGits waits until the gits that work on the repository dir now have ended, and reports whether they have at the time until. Unsure
// says that it could not look at some processes. GitPrograms are names of programs that are git under another name.
func AwaitGits(ctx context.Context, gitPrograms []string, dir string, until time.Time) (ended, unsure bool, err error) {
	gits, unsure := gitsAt(dir, gitPrograms)
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for patience := time.After(time.Until(until)); len(gits) > 0; {
		select {
		case <-poll.C:
			gits = slices.DeleteFunc(gits, gitProcess.ended)
			continue
		case <-patience:
			return false, unsure, nil
		case <-ctx.Done():
			return false, unsure, ctx.Err()
		}
	}
	return true, unsure, nil
}

// A gitProcess is a git that works on a repository.
type gitProcess struct {
	pid   int
	start string // tells it from others that get its ID
}
