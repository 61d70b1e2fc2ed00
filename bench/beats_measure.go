package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ticksFor is how many ticks a measurement counts.
func ticksFor(locks int) int { return min(max(200_000/locks, 2), 50) }

// measureBeats does some ticks on a copy of the locks.
func (s *servers) measureBeats(ctx context.Context, t heldLocks, open openBeater) (sample, error) {
	return s.postgres.withDatabase(ctx, t.template, func(url string) (result sample, err error) {
		monitor, err := pgx.Connect(ctx, url)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, monitor.Close(ctx)) }()
		ticks := ticksFor(len(t.held))
		result, err = timeTicks(ctx, monitor, ticks, t, url, open)
		if err != nil {
			return nil, err
		}
		result[hot], err = hotShare(ctx, monitor, (1+ticks)*len(t.held))
		return result, err
	})
}

// timeTicks connects, ticks, and disconnects: that is when statistics are reported.
func timeTicks(ctx context.Context, monitor *pgx.Conn, ticks int, t heldLocks, url string, open openBeater) (_ sample, err error) {
	beat, closeBeater, err := open(ctx, url, t.held)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeBeater()) }()
	if err := beat(ctx); err != nil {
		return nil, err
	}
	before, err := usageOf(ctx, monitor)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for range ticks {
		if err := beat(ctx); err != nil {
			return nil, err
		}
	}
	took := time.Since(start)
	after, err := usageOf(ctx, monitor)
	if err != nil {
		return nil, err
	}
	n := float64(ticks)
	return sample{
		wallTime: milliseconds(took) / n,
		cpuTime:  milliseconds(after.cpu-before.cpu) / n,
		walSize:  megabytes(after.wal-before.wal) / n,
	}, nil
}

// hotShare waits until the statistics know of all updates of locks, and
// returns the percentage that touched no index.
func hotShare(ctx context.Context, c *pgx.Conn, updates int) (float64, error) {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var all, hot int64
		err := c.QueryRow(ctx, `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'locks'`).Scan(&all, &hot)
		if err != nil {
			return 0, err
		}
		if all >= int64(updates) {
			return 100 * float64(hot) / float64(all), nil
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("the statistics know of %d updates only, not %d", all, updates)
		}
	}
}
