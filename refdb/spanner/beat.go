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

// Beat renews the held rows that still match, beatRows in a transaction.
func (d *Driver) Beat(ctx context.Context, _ string, held []refdb.Held) ([]refdb.BeatResult, error) {
	results := make([]refdb.BeatResult, len(held))
	var failure error
	failed := 0
	for first := 0; first < len(held); first += beatRows {
		next := min(first+beatRows, len(held))
		if err := d.beatAtOnce(ctx, held[first:next], results[first:next]); err != nil {
			failure = err
			failed += next - first
		}
	}
	if failed == len(held) {
		return nil, failure
	}
	return results, nil
}

// beatAtOnce renews held in one transaction. If that is held up, it is cut into
// parts, and those that are held up again are cut further while others go
// through: in the end a row that another transaction keeps locked is the only
// one that is not renewed.
func (d *Driver) beatAtOnce(ctx context.Context, held []refdb.Held, results []refdb.BeatResult) error {
	err := d.beat(ctx, held, results)
	if err != nil {
		err = d.beatInParts(ctx, held, results, err)
	}
	return err
}

// beat renews all of held in one transaction.
func (d *Driver) beat(ctx context.Context, held []refdb.Held, results []refdb.BeatResult) error {
	var match []*heldRow
	r := request{tag: "refdb.beat", what: "renew locks", within: beatTime(ctx)}
	_, err := d.transact(ctx, r, func(ctx context.Context, t *transaction) (err error) {
		if match, err = t.matching(ctx, held); err != nil {
			return err
		}
		var b batch
		for i, h := range held {
			if match[i] != nil {
				b.beat(h.Project, h.Ref)
			}
		}
		return t.write(&b)
	})
	if err != nil {
		return err
	}
	for i := range held {
		results[i] = refdb.BeatLost
		if match[i] != nil {
			results[i] = refdb.Beaten
		}
	}
	return nil
}

// beatInParts renews held in parts, after all at once failed with err. It
// returns err if no part came through: then it is not a row that is in the way.
func (d *Driver) beatInParts(ctx context.Context, held []refdb.Held, results []refdb.BeatResult, err error) error {
	if !errors.Is(err, errNoAnswer) || len(held) == 1 || ctx.Err() != nil {
		return err
	}
	size := (len(held) + beatParts - 1) / beatParts
	parts := slices.Collect(slices.Chunk(held, size))
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
