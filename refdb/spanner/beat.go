package spanner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	// beatRows is how many rows a transaction renews at most. The 15,000 values
	// that it writes stay far below the 80,000 that a commit may.
	beatRows = 5000
	// beatPatience bounds a beat's transaction: Spanner can't pass over a row
	// that another transaction keeps locked. A few of them fit into the lease of
	// a lock that goes stale after thirty seconds.
	beatPatience = 3 * time.Second
	// beatParts is into how many a beat that was held up is cut.
	beatParts = 10
)

// Beat renews the locks that still match, beatRows in a transaction. If one is held
// up, its locks are cut into parts, and those that are held up again are cut further
// while others go through: in the end a row that another transaction keeps locked is
// the only one that is not renewed.
func (d *Driver) Beat(ctx context.Context, locks []refdb.LockID) ([]refdb.BeatResult, error) {
	results := make([]refdb.BeatResult, len(locks))
	var failure error
	failed := 0
	for first := 0; first < len(locks); first += beatRows {
		next := min(first+beatRows, len(locks))
		err := d.beat(ctx, locks[first:next], results[first:next])
		if err != nil {
			err = d.beatInParts(ctx, locks[first:next], results[first:next], err)
		}
		if err != nil {
			failure = err
			failed += next - first
		}
	}
	if failed == len(locks) {
		return nil, failure
	}
	return results, nil
}

// beat renews all of locks in one transaction.
func (d *Driver) beat(ctx context.Context, locks []refdb.LockID, results []refdb.BeatResult) error {
	keys := make([]lockKey, len(locks))
	for i, l := range locks {
		keys[i] = keyOf(i, l)
	}
	var beaten []bool
	r := request{tag: "refdb.beat", what: "renew locks", within: beatTime(ctx)}
	_, err := decide(ctx, d, r, matching(keys), func(b *batch, match []bool) error {
		for i, l := range locks {
			if match[i] {
				b.beat(l.Project, l.Ref)
			}
		}
		beaten = match
		return nil
	})
	if err != nil {
		return err
	}
	for i, ok := range beaten {
		results[i] = refdb.BeatLost
		if ok {
			results[i] = refdb.Beaten
		}
	}
	return nil
}

// beatInParts renews locks in parts, after all at once failed with err. It
// returns err if no part came through: then it is not a row that is in the way.
func (d *Driver) beatInParts(ctx context.Context, locks []refdb.LockID, results []refdb.BeatResult, err error) error {
	if !errors.Is(err, errNoAnswer) || len(locks) == 1 || ctx.Err() != nil {
		return err
	}
	size := (len(locks) + beatParts - 1) / beatParts
	parts := slices.Collect(slices.Chunk(locks, size))
	partResults := slices.Collect(slices.Chunk(results, size))
	errs := make([]error, len(parts))
	var wait sync.WaitGroup
	for i := range parts {
		wait.Go(func() { errs[i] = d.beat(ctx, parts[i], partResults[i]) })
	}
	wait.Wait()
	if !slices.Contains(errs, nil) {
		return err
	}
	for i, err := range errs {
		if err != nil {
			wait.Go(func() { d.beatInParts(ctx, parts[i], partResults[i], err) })
		}
	}
	wait.Wait()
	return nil
}

// beatTime leaves time to cut a beat twice before ctx ends.
func beatTime(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return beatPatience
	}
	return min(beatPatience, time.Until(deadline)/3)
}
