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
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
)

const (
	cpuTime = "cpu_ms"
	walSize = "wal_mb"
	hot     = "hot_percent"
)

// beatsWorkload is W3: what a tick costs that keeps many locks.
func beatsWorkload(ctx context.Context, s *servers) (workload, error) {
	if err := s.needPostgres(ctx); err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W3",
		title: "one heartbeat of all locks held",
		setting: fmt.Sprintf("PostgreSQL %s: %sall on the product's own table of locks, as its migrations make it. Means of the ticks of a measurement, "+
			"after one uncounted; full-page images are written before them. Database CPU: of all of the server's processes, by their schedstat. HOT: of all updates.",
			s.postgres.version, postgresSetting),
		less:    true,
		metrics: []metric{{wallTime, "ms", 1}, {cpuTime, "database CPU ms", 1}, {walSize, "WAL MB", 2}, {hot, "HOT %", 0}},
	}
	for _, n := range []int{1000, 10_000, 100_000} {
		t, err := s.holdLocks(ctx, n)
		if err != nil {
			return workload{}, err
		}
		c := benchCase{name: report.Number(float64(n), 0) + " locks", baseline: "by owner"}
		for _, who := range beaters() {
			c.contestants = append(c.contestants, contestant{who.name, func(ctx context.Context) (sample, error) {
				return s.measureBeats(ctx, t, who.open)
			}})
		}
		w.cases = append(w.cases, c)
	}
	return w, nil
}

// A heldLocks is a template database in which one owner holds locks.
type heldLocks struct {
	template string
	held     []driver.LockID
}

// holdLocks makes a template with n locks, once.
func (s *servers) holdLocks(ctx context.Context, n int) (heldLocks, error) {
	if t, ok := s.held[n]; ok {
		return t, nil
	}
	t := heldLocks{template: fmt.Sprintf("held%d", n)}
	if err := s.postgres.create(ctx, t.template, migratedTemplate); err != nil {
		return t, err
	}
	d, err := drivers.Open(ctx, s.postgres.URL(t.template))
	if err != nil {
		return t, err
	}
	refs := numbered("refs/heads/branch", n)
	for len(refs) > 0 {
		chunk := refs[:min(len(refs), refdb.MaxLockRefs)]
		refs = refs[len(chunk):]
		a, err := d.Acquire(ctx, driver.AcquireRequest{
			Project: project, Refs: chunk, Owner: owner, Nonce: fmt.Sprint(len(refs)), StaleAfter: refdb.DefaultStaleAfter,
		})
		if err != nil {
			return t, errors.Join(err, d.Close())
		}
		for _, ref := range chunk {
			t.held = append(t.held, driver.LockID{Project: project, Ref: ref, Owner: owner, Token: a.Token})
		}
	}
	s.held[n] = t
	return t, d.Close()
}

// A tick renews all locks once.
type tick func(context.Context) error

// A beater is a way to tick.
type beater struct {
	name string
	open openBeater
}

// An openBeater connects to the database with the locks. close ends all
// connections.
type openBeater func(ctx context.Context, url string, held []driver.LockID) (do tick, close func() error, err error)

func beaters() []beater {
	return []beater{
		{"by owner", sqlBeater(beatOwner)},
		{"refdb", refdbBeater},
		{"keys", sqlBeater(beatKeys)},
		{"row by row", sqlBeater(beatRows)},
	}
}

func refdbBeater(ctx context.Context, url string, held []driver.LockID) (tick, func() error, error) {
	d, err := drivers.Open(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) error {
		results, err := d.Beat(ctx, held)
		if err != nil {
			return err
		}
		for i, r := range results {
			if r != driver.BeatRenewed {
				return fmt.Errorf("the lock on %s was not renewed", held[i].Ref)
			}
		}
		return nil
	}, d.Close, nil
}

// sqlBeater ticks with beat, which returns how many rows it renewed.
func sqlBeater(beat func(context.Context, *pgx.Conn, []driver.LockID) (int64, error)) openBeater {
	return func(ctx context.Context, url string, held []driver.LockID) (tick, func() error, error) {
		c, err := pgx.Connect(ctx, url)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context) error {
			n, err := beat(ctx, c, held)
			if err == nil && n != int64(len(held)) {
				err = fmt.Errorf("%d of %d locks were renewed", n, len(held))
			}
			return err
		}, func() error { return c.Close(ctx) }, nil
	}
}

// beatOwner names no lock, and so can't say which are lost.
func beatOwner(ctx context.Context, c *pgx.Conn, _ []driver.LockID) (int64, error) {
	tag, err := c.Exec(ctx, `UPDATE locks SET heartbeat = clock_timestamp() WHERE owner = $1`, owner)
	return tag.RowsAffected(), err
}

// beatKeys names every lock by its key and token.
func beatKeys(ctx context.Context, c *pgx.Conn, held []driver.LockID) (int64, error) {
	refs, tokens := make([]string, len(held)), make([]int64, len(held))
	for i, h := range held {
		refs[i], tokens[i] = h.Ref, int64(h.Token)
	}
	tag, err := c.Exec(ctx, `UPDATE locks SET heartbeat = clock_timestamp()
		FROM unnest($2::text[], $3::bigint[]) AS held (ref, token)
		WHERE locks.project = $1 AND locks.ref = held.ref
		  AND locks.token = 'epoch'::timestamptz + held.token * interval '1 microsecond'`, project, refs, tokens)
	return tag.RowsAffected(), err
}

// beatRows sends a statement for each lock, all in one transaction.
func beatRows(ctx context.Context, c *pgx.Conn, held []driver.LockID) (n int64, err error) {
	err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		for _, h := range held {
			tag, err := tx.Exec(ctx, `UPDATE locks SET heartbeat = clock_timestamp() WHERE project = $1 AND ref = $2 AND token = $3`,
				h.Project, h.Ref, h.Token.Time())
			if err != nil {
				return err
			}
			n += tag.RowsAffected()
		}
		return nil
	})
	return n, err
}

// ticksFor returns how many ticks a measurement counts.
func ticksFor(locks int) int { return min(max(200_000/locks, 2), 50) }

// measureBeats measures ticks on a copy of the locks.
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

// timeTicks connects, ticks, and disconnects, which makes the server report its statistics.
func timeTicks(ctx context.Context, monitor *pgx.Conn, ticks int, t heldLocks, url string, open openBeater) (_ sample, err error) {
	beat, closeBeater, err := open(ctx, url, t.held)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeBeater()) }()
	if err := beat(ctx); err != nil {
		return nil, err
	}
	before, err := machine.UsageOf(ctx, monitor)
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
	after, err := machine.UsageOf(ctx, monitor)
	if err != nil {
		return nil, err
	}
	n := float64(ticks)
	return sample{
		wallTime: milliseconds(took) / n,
		cpuTime:  milliseconds(after.CPU-before.CPU) / n,
		walSize:  machine.Megabytes(after.WAL-before.WAL) / n,
	}, nil
}

// hotShare waits until the statistics include all updates of locks, and returns
// the percentage of updates that touched no index (HOT).
func hotShare(ctx context.Context, c *pgx.Conn, updates int) (float64, error) {
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
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
