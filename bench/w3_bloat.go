package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/bench/internal/machine"
	"github.com/globalrefdb/globalrefdb/bench/internal/report"
	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	sizeStart = "start_mb"
	sizePeak  = "peak_mb"
	sizeHalf  = "half_mb"
	sizeEnd   = "end_mb"
	vacuums   = "vacuums"
	late      = "late"
)

// An hour of ticks is replayed in a minute: every 2 s become 33 ms, and
// autovacuum wakes up every second instead of every minute.
const (
	hourTicks   = 1800
	hourSpeed   = 60
	tickEvery   = refdb.DefaultHeartbeat / hourSpeed
	bloatLocks  = 10_000
	sizeSamples = 18
)

// bloatWorkload is W3's second half: whether the table of locks stays small.
func bloatWorkload(ctx context.Context, s *servers) (workload, error) {
	if err := s.needPostgres(ctx); err != nil {
		return workload{}, err
	}
	t, err := s.holdLocks(ctx, bloatLocks)
	if err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W3",
		title: fmt.Sprintf("an hour's heartbeats of %s locks: does the table grow?", report.Number(bloatLocks, 0)),
		setting: fmt.Sprintf("PostgreSQL %s: %s%d ticks, %d times as fast as every %s, with autovacuum_naptime 1s instead of 1min; other autovacuum settings "+
			"as PostgreSQL and the migrations have them. Sizes are of the table and its index; the peak is of %d looks. Late: ticks that began after the next was due. One round.",
			s.postgres.version, postgresSetting, hourTicks, hourSpeed, refdb.DefaultHeartbeat, sizeSamples),
		less: true,
		metrics: []metric{{sizeEnd, "MB at the end", 2}, {sizeStart, "at the start", 2}, {sizeHalf, "halfway", 2}, {sizePeak, "peak", 2},
			{vacuums, "autovacuums", 0}, {hot, "HOT %", 0}, {late, "late ticks", 0}},
		atMost: 1,
		cases:  []benchCase{{name: "one hour", baseline: "by owner"}},
	}
	for _, who := range beaters()[:2] {
		w.cases[0].contestants = append(w.cases[0].contestants, contestant{who.name, func(ctx context.Context) (sample, error) {
			return s.measureBloat(ctx, t, who)
		}})
	}
	return w, nil
}

func (s *servers) measureBloat(ctx context.Context, t heldLocks, who beater) (_ sample, err error) {
	if err := s.postgres.set(ctx, "autovacuum_naptime = '1s'"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.postgres.set(ctx, "autovacuum_naptime = DEFAULT")) }()
	return s.postgres.withDatabase(ctx, t.template, func(url string) (_ sample, err error) {
		monitor, err := pgx.Connect(ctx, url)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, monitor.Close(ctx)) }()
		result, err := replayHour(ctx, monitor, t, url, who)
		if err != nil {
			return nil, err
		}
		if result[hot], err = hotShare(ctx, monitor, hourTicks*len(t.held)); err != nil {
			return nil, err
		}
		var n int64
		err = monitor.QueryRow(ctx, `SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = 'locks'`).Scan(&n)
		result[vacuums] = float64(n)
		return result, err
	})
}

// replayHour does an hour's ticks, each when it is due, or at once if that has passed.
func replayHour(ctx context.Context, monitor *pgx.Conn, t heldLocks, url string, who beater) (_ sample, err error) {
	beat, closeBeater, err := who.open(ctx, url, t.held)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeBeater()) }()
	start, err := sizeOfLocks(ctx, monitor)
	if err != nil {
		return nil, err
	}
	result := sample{sizeStart: start, sizePeak: start, sizeEnd: start, late: 0}
	begin := time.Now()
	for n := range hourTicks {
		due := begin.Add(time.Duration(n) * tickEvery)
		if time.Since(due) > tickEvery {
			result[late]++
		}
		time.Sleep(time.Until(due))
		if err := beat(ctx); err != nil {
			return nil, err
		}
		if (n+1)%(hourTicks/sizeSamples) == 0 {
			if result[sizeEnd], err = sizeOfLocks(ctx, monitor); err != nil {
				return nil, err
			}
			result[sizePeak] = max(result[sizePeak], result[sizeEnd])
			if n < hourTicks/2 {
				result[sizeHalf] = result[sizeEnd]
			}
		}
	}
	return result, nil
}

// sizeOfLocks returns the megabytes of the table and its index.
func sizeOfLocks(ctx context.Context, c *pgx.Conn) (float64, error) {
	var bytes int64
	err := c.QueryRow(ctx, `SELECT pg_total_relation_size('locks')`).Scan(&bytes)
	return machine.Megabytes(bytes), err
}
