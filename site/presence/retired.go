package presence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Hold takes the lock on the name of a site that is to be retired: no daemon of that name can serve while it is held. It takes
// over a lock that is stale. If the site's daemon runs, the error is [ErrTaken].
func Hold(ctx context.Context, db *refdb.DB, site string) (*refdb.Lock, error) {
	lock, err := db.TryLock(ctx, Project, refPrefix+site)
	if locked := (*refdb.LockedError)(nil); errors.As(err, &locked) {
		l := locked.Holders[0]
		return nil, fmt.Errorf("%w: %q is served by %s, which renewed its lock %s ago: stop the daemon there (systemctl disable --now refdb-site), or wait until the lock is stale if it has ended",
			ErrTaken, site, l.Owner, l.Age.Round(time.Second))
	}
	return lock, err
}

// Forget removes the generation of a site whose name is locked. Its daemon does not start again with the state that it had.
func Forget(ctx context.Context, lock *refdb.Lock, site string) error {
	ref := refPrefix + site
	held, err := lock.Value(ref)
	if err != nil || held.IsAbsent() {
		return err
	}
	return lock.Update(ctx, []refdb.Update{{Ref: ref, Old: held, New: refdb.Deleted}})
}
