package spanner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

const (
	// beatRows is the maximum number of rows that a transaction renews. The 15,000 values that it
	// writes are far below the 80,000 that a commit may write.
	beatRows = 5000
	// beatTimeout bounds a beat's transaction: Spanner can't skip a row that another transaction
	// keeps locked. A few such transactions fit into the lease of a lock that goes stale after
	// thirty seconds.
	beatTimeout = 3 * time.Second
	// beatParts is the number of parts into which a blocked beat is split.
	beatParts = 10
)

// Beat implements driver.LockStore. A transaction renews at most beatRows. If it is blocked, its
// locks are split into parts, and blocked parts are split further while others succeed. In the end,
// the only rows not renewed are those that another transaction keeps locked.
func (d *Driver) Beat(ctx context.Context, locks []driver.LockID) ([]driver.BeatResult, error) {
	results := make([]driver.BeatResult, len(locks))
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
func (d *Driver) beat(ctx context.Context, locks []driver.LockID, results []driver.BeatResult) error {
	keys := make([]lockKey, len(locks))
	for i, l := range locks {
		keys[i] = keyOf(i, l)
	}
	r := request{tag: "refdb.beat", what: "renew locks", timeout: beatTimeoutOf(ctx)}
	beaten, _, err := decide(ctx, d, r, matching(keys), func(b *batch, match []bool) ([]bool, error) {
		for i, l := range locks {
			if match[i] {
				b.beat(l.Project, l.Ref)
			}
		}
		return match, nil
	})
	for i, ok := range beaten {
		results[i] = driver.BeatLost
		if ok {
			results[i] = driver.BeatRenewed
		}
	}
	return err
}

// beatInParts renews locks in parts, after err ended the beat of all at once. It returns err if no
// part succeeded: the cause is then not a locked row.
func (d *Driver) beatInParts(ctx context.Context, locks []driver.LockID, results []driver.BeatResult, err error) error {
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

// beatTimeoutOf returns a timeout for a transaction that leaves time to split a beat twice before
// ctx ends.
func beatTimeoutOf(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return beatTimeout
	}
	return min(beatTimeout, time.Until(deadline)/3)
}
