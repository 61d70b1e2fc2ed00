package moving

import (
	"context"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/refusal"
)

// AwaitMovable returns the reason why moves can't be made now. If another push has locked a ref,
// AwaitMovable waits for a short time, unless that push can't leave the ref at the expected value.
// It waits no longer once gone is closed.
func (co *Coordinator) AwaitMovable(ctx context.Context, c *config.Config, project string, moves []refdb.Update, gone <-chan struct{}) error {
	w := Wait{Project: project, Moves: moves, Until: time.Now().Add(min(c.LockWait, c.Timeout)), Passes: Locked, Gone: gone}
	return co.Await(ctx, w, func() error { return co.compare(ctx, c, project, moves) })
}

// compare returns why moves can't be made, by what the database has now. A ref with another value
// is behind, unless the lock on it may still end with the expected value. An intent of this site may
// end with any value: the repository decides.
func (co *Coordinator) compare(ctx context.Context, c *config.Config, project string, moves []refdb.Update) error {
	refs := make([]string, len(moves))
	for i, u := range moves {
		refs[i] = u.Ref
	}
	states, err := co.States(ctx, c, project, refs)
	if err != nil {
		return err
	}
	locked := refdb.LockedError{}
	differ := refdb.MismatchError{Project: project}
	var announced map[Key]driver.Intent // of locks on refs with another value
	for i, s := range states {
		u := moves[i]
		holds := u.Old.Equivalent(s.Value)
		isLocked := s.Lock != nil && !s.Lock.Stale()
		if isLocked && !holds && s.Lock.Intended() {
			if announced == nil {
				announced = co.announced(ctx, project, refs)
			}
			intent, pending := announced[Key{project, u.Ref, s.Lock.Token}]
			isLocked = !pending || s.Lock.Site() == c.Site || intent.New.Equivalent(u.Old)
		}
		switch {
		case isLocked:
			locked.Holders = append(locked.Holders, *s.Lock)
		case !holds:
			differ.Mismatches = append(differ.Mismatches, refdb.Mismatch{Ref: u.Ref, Want: u.Old, Have: s.Value})
		}
	}
	switch {
	case len(differ.Mismatches) > 0:
		return refusal.NotPrepared(c.Site, &differ)
	case len(locked.Holders) > 0:
		return refusal.NotPrepared(c.Site, &locked)
	}
	return nil
}

// announced returns the pending intents of refs; none if the database does not answer.
func (co *Coordinator) announced(ctx context.Context, project string, refs []string) map[Key]driver.Intent {
	f := driver.IntentFilter{Project: project}
	if len(refs) == 1 {
		f.Ref = refs[0]
	}
	all := map[Key]driver.Intent{}
	for i, err := range co.DB.Intents().All(ctx, f) {
		if err != nil {
			break
		}
		all[KeyOf(i)] = i
	}
	return all
}
