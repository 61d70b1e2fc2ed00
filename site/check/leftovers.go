package check

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/lockfiles"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// leftoverAge is how old a lock file must be to count as abandoned: a process that has just made
// one may not be visible yet.
const leftoverAge = 10 * time.Second

// leftovers finds the lock files of gits that have ended. Pushes to the refs that they lock fail. The
// git that made a file either runs now or has ended: gits that start later don't matter, so that the
// check also works in a busy repository.
func (k *repositoryCheck) leftovers(ctx context.Context) error {
	files, err := gitrepo.LockFiles(k.repo.Dir())
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(f gitrepo.LockFile) bool { return f.Age() < leftoverAge })
	if len(files) == 0 {
		return nil
	}
	files, unsure, err := pusher.Abandoned(ctx, k.GitPrograms, k.repo.Dir(), files, time.Now().Add(gitrepo.LockPatience))
	if err != nil {
		return err
	}
	// A guard may have made them that lives: it has an intent then, as long as it has them.
	guards, err := k.guardsWork(ctx)
	if err != nil {
		return err
	}
	for _, f := range files {
		switch {
		case guards:
			k.find(LeftoverLock, f.Path, fmt.Sprintf("it is %s old, and may be a guard's that lives and has an intent here: look at `refdbctl site status`", f.Age()), nil)
		case unsure:
			k.find(LeftoverLock, f.Path, fmt.Sprintf("it is %s old; whether a git still works on this repository can't be told, as some processes are another user's: look at them as root", f.Age()), nil)
		default:
			k.find(LeftoverLock, f.Path, fmt.Sprintf("it is %s old, and no git has it any more: pushes to what it locks fail; remove it", f.Age()), func() (string, error) {
				alone, err := lockfiles.Alone(ctx, k.repo.Dir())
				if err != nil {
					return "", err
				}
				defer alone()
				return "removed", f.Remove()
			})
		}
	}
	return nil
}

// guardsWork reports whether a guard of this site that lives, or may live, has an intent on the project.
func (k *repositoryCheck) guardsWork(ctx context.Context) (bool, error) {
	if k.db == nil {
		return false, nil
	}
	boot, err := pusher.BootID()
	if err != nil {
		return false, err
	}
	for i, err := range k.db.Intents(ctx, refdb.IntentFilter{Project: k.Project, Owner: k.Site}) {
		if err != nil {
			return false, err
		}
		if t, is := pusher.ParseTransaction(i.Agent); is && !t.Guard.Ended(boot) {
			return true, nil
		}
	}
	return false, nil
}
