package compare

import (
	"context"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
)

// [Wait] waits for firstPause after its first look at the refs that are behind, then each time half as long again, up to lastPause: many
// readers may wait for an intent of a site that is dead.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// Wait waits until a repository has all that was acknowledged anywhere before it was called: each guarded ref holds what the
// database held then, or something later. A push is acknowledged while its intent may still stand, so it waits for intents, too.
// Rules of the project must be in c already. When limit has passed since both were compared, or ctx ends, it returns the refs that are
// behind.
func Wait(ctx context.Context, c *config.Config, db *refdb.DB, repo *gitrepo.Repo, project string, limit time.Duration) (behind []string, err error) {
	// Intents first: what ends after they were listed shows in the values.
	w := waiting{db, repo, project, map[driver.LockID]bool{}, map[string]*awaitedRef{}}
	for i, err := range db.Intents().All(ctx, driver.IntentFilter{Project: project}) {
		if err != nil {
			return nil, err
		}
		if c.Guards(project, i.Ref) {
			w.pending[driver.LockID{Project: project, Ref: i.Ref, Owner: i.Owner, Token: i.Token}] = true
			behind = append(behind, i.Ref)
		}
	}
	for p, err := range Pairs(ctx, c, db, repo, project, func(string) {}) {
		if err != nil {
			return nil, err
		}
		if p.Global != refdb.Unknown && !p.Agree() {
			w.awaited[p.Ref] = newAwaited(p)
			behind = append(behind, p.Ref)
		}
	}
	slices.Sort(behind)
	return w.wait(ctx, slices.Compact(behind), limit)
}

// WaitFor is [Wait] for some refs of the repository, which no intent is pending on.
func WaitFor(ctx context.Context, c *config.Config, db *refdb.DB, repo *gitrepo.Repo, project string, refs []string, limit time.Duration) (behind []string, err error) {
	w := waiting{db, repo, project, nil, map[string]*awaitedRef{}}
	for _, ref := range refs {
		if c.Guards(project, ref) {
			behind = append(behind, ref)
		}
	}
	return w.wait(ctx, behind, limit)
}

// A waiting is a wait for refs of a repository, for the end of intents and for values.
type waiting struct {
	db      *refdb.DB
	repo    *gitrepo.Repo
	project string
	pending map[driver.LockID]bool
	awaited map[string]*awaitedRef // of those whose value is known
}

// wait waits until none of the refs is behind, for limit or until ctx ends. It returns those that are.
func (w waiting) wait(ctx context.Context, behind []string, limit time.Duration) (_ []string, err error) {
	late := time.NewTimer(limit)
	defer late.Stop()
	for pause := firstPause; len(behind) > 0; pause = min(pause*3/2, lastPause) {
		if behind, err = w.stillBehind(ctx, behind); err != nil || len(behind) == 0 {
			return behind, err
		}
		select {
		case <-ctx.Done():
			return behind, nil
		case <-late.C:
			return behind, nil
		case <-time.After(pause):
		}
	}
	return nil, nil
}

// An awaitedRef is a ref that was behind.
type awaitedRef struct {
	global refdb.Value // what the database held then
	local  refdb.Value // what it held here when it was looked at last
	moves  int         // seen since
}

func newAwaited(p Pair) *awaitedRef { return &awaitedRef{global: p.Global, local: p.Local} }

// came reports whether the ref holds what was waited for, or something later. A follower moves a ref to what the database
// holds when it looks. It may have looked before the wait began, but only for the first move.
func (a *awaitedRef) came(p Pair) bool {
	if p.Local != a.local {
		a.local = p.Local
		a.moves++
	}
	return p.Agree() || p.Local.Equivalent(a.global) || a.moves > 1
}

// stillBehind returns those of the refs that are under one of the intents, or have not come yet.
func (w waiting) stillBehind(ctx context.Context, refs []string) (some []string, err error) {
	for chunk := range slices.Chunk(refs, Chunk) {
		looks, err := LookAgain(ctx, w.db, w.repo, w.project, chunk)
		if err != nil {
			return nil, err
		}
		for _, l := range looks {
			a := w.awaited[l.Ref]
			switch {
			case l.Lock != nil && w.pending[l.Lock.ID()]:
			case l.Global == refdb.Unknown:
				continue
			case a == nil: // its intent has ended, or it is looked at first: the value comes now
				if l.Agree() {
					continue
				}
				w.awaited[l.Ref] = newAwaited(l.Pair)
			case a.came(l.Pair):
				continue
			}
			some = append(some, l.Ref)
		}
	}
	return some, nil
}
