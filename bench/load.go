package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// An op is one operation of one worker.
type op func(context.Context) error

// stuckAfter is when an operation counts as stuck.
const stuckAfter = time.Minute

var errStuck = fmt.Errorf("an operation did not end within %s", stuckAfter)

// load runs each op again and again in a goroutine of its own, and counts the ops
// that complete within d. Before that it runs them for a fifth of d, uncounted, to
// make connections, prepare statements and fill caches.
func load(ctx context.Context, d time.Duration, ops []op) (sample, error) {
	all, err := durations(ctx, d, ops)
	if err != nil {
		return nil, err
	}
	return rates(all, d), nil
}

// durations does what load does, and returns how long each counted op took.
func durations(ctx context.Context, d time.Duration, ops []op) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*d+stuckAfter, errStuck)
	defer cancel()
	begin := time.Now().Add(d / 5)
	end := begin.Add(d)
	took := make([][]time.Duration, len(ops))
	workers, running := errgroup.WithContext(ctx)
	for i, do := range ops {
		workers.Go(func() error {
			for {
				start := time.Now()
				if err := do(running); err != nil {
					return fmt.Errorf("worker %d: %w", i, err)
				}
				switch now := time.Now(); {
				case !now.Before(end):
					return nil
				case !now.Before(begin):
					took[i] = append(took[i], now.Sub(start))
				}
			}
		})
	}
	if err := workers.Wait(); err != nil {
		if errors.Is(context.Cause(ctx), errStuck) {
			err = fmt.Errorf("%w: %w", errStuck, err)
		}
		return nil, err
	}
	var all []time.Duration
	for _, t := range took {
		all = append(all, t...)
	}
	return all, nil
}

// rates returns the metrics of operations that completed within d and took so long each.
func rates(took []time.Duration, d time.Duration) sample {
	result := sample{perSecond: float64(len(took)) / d.Seconds()}
	if len(took) > 0 {
		result[p50], result[p99] = milliseconds(percentile(took, 0.50)), milliseconds(percentile(took, 0.99))
	}
	return result
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
