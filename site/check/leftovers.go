package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/internal/lockfiles"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// leftoverAge is how old a lock file must be to count as abandoned: a process that has just created
// one may not be visible yet.
const leftoverAge = 10 * time.Second

// leftoverPatience is how long to wait for running git processes. A process that waits for the very
// lock, such as the follower's, gives up within core.filesRefLockTimeout, which is 10 s.
const leftoverPatience = 12 * time.Second

// leftovers finds the lock files of git processes that have ended. Pushes to the refs that they
// lock fail. The process that created a file either runs now or has ended: processes that start
// later don't matter, so the check also works in a busy repository.
func (k *repositoryCheck) leftovers(ctx context.Context) error {
	files, err := gitrepo.LockFiles(k.repo.Dir())
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(f gitrepo.LockFile) bool { return f.Age() < leftoverAge })
	if len(files) == 0 {
		return nil
	}
	files, unsure, err := pusher.Abandoned(ctx, k.GitPrograms, k.repo.Dir(), files, time.Now().Add(leftoverPatience))
	if err != nil {
		return err
	}
	guards, err := k.guardsMayWork(ctx)
	if err != nil {
		return err
	}
	for _, f := range files {
		switch {
		case guards:
			k.find(LeftoverLock, f.Path, fmt.Sprintf("it is %s old, and may belong to a running guard: see `refdbctl site status`", f.Age()), nil)
		case unsure:
			k.find(LeftoverLock, f.Path, fmt.Sprintf("it is %s old; whether a git process is still working on this repository can't be determined, because some processes belong to another user: inspect them as root", f.Age()), nil)
		default:
			k.find(LeftoverLock, f.Path, fmt.Sprintf("it is %s old, and no git process holds it any more: pushes that need this lock fail", f.Age()), func() (string, error) {
				return k.removeLeftover(ctx, f)
			})
		}
	}
	return nil
}

func (k *repositoryCheck) removeLeftover(ctx context.Context, f gitrepo.LockFile) (string, error) {
	release, err := lockfiles.Exclusive(ctx, k.repo.Dir())
	if err != nil {
		return "", err
	}
	defer release()
	guards, err := k.guardsMayWork(ctx)
	if err == nil && guards {
		err = errors.New("a guard has started to work on the repository")
	}
	if err != nil {
		return "", err
	}
	return "removed", f.Remove()
}

// guardsMayWork reports whether a guard of this site may have lock files in the repository, because
// it has an intent there, or according to the daemon. If the daemon does not answer, or has a
// version that knows no guards, each recorded guard counts that may be alive.
func (k *repositoryCheck) guardsMayWork(ctx context.Context) (bool, error) {
	boot, err := pusher.BootID()
	if err != nil {
		return false, err
	}
	work, down := client.GuardsMayWork(ctx, k.Socket, k.repo.Dir())
	if down != nil {
		noted, err := pusher.NotedGuards(k.State)
		if err != nil {
			return false, err
		}
		work = slices.ContainsFunc(noted, func(g pusher.Guard) bool { return !g.Ended(boot) })
	}
	if work {
		return true, nil
	}
	if k.db == nil {
		return false, nil
	}
	for i, err := range k.db.Intents().All(ctx, driver.IntentFilter{Project: k.Project, Owner: k.Site}) {
		if err != nil {
			return false, err
		}
		if t, is := pusher.ParseTransaction(i.Agent); is && !t.Guard.Ended(boot) {
			return true, nil
		}
	}
	return false, nil
}
