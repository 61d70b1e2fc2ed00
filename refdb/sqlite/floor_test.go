package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/sqlite"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// A contender does what the driver does, or the minimum that any program must do.
type contender struct {
	lockAndRelease func(ctx context.Context, ref string) error
	update         func(ctx context.Context, ref string, from, to driver.Value) error
}

// floor executes the bare statements, each in its own transaction, through database/sql on one
// connection. It reads no locks, checks no fence and keeps no token mark.
func floor(b *testing.B, url string) contender {
	path, parameters, _ := strings.Cut(strings.TrimPrefix(url, "sqlite:"), "?")
	_, synchronous, _ := strings.Cut(parameters, "=")
	db, err := sql.Open("sqlite", path+"?_journal_mode=wal&_synchronous="+synchronous)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	prepare := func(query string) *sql.Stmt {
		s, err := db.PrepareContext(b.Context(), query)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	lock := prepare(`INSERT INTO locks (project, ref, heartbeat, token, owner) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING token`)
	release := prepare(`DELETE FROM locks WHERE project = ? AND ref = ? AND token = ?`)
	put := prepare(`INSERT INTO refs (project, ref, value, time) VALUES (?, ?, ?, ?)`)
	cas := prepare(`UPDATE refs SET value = ?, time = ? WHERE project = ? AND ref = ? AND value = ?`)
	return contender{
		lockAndRelease: func(ctx context.Context, ref string) error {
			var token int64
			now := time.Now().UnixMicro()
			if err := lock.QueryRowContext(ctx, project, ref, now, now, owner).Scan(&token); err != nil {
				return err
			}
			return one(release.ExecContext(ctx, project, ref, token))
		},
		update: func(ctx context.Context, ref string, from, to driver.Value) error {
			if from == "" {
				return one(put.ExecContext(ctx, project, ref, string(to), time.Now().UnixMicro()))
			}
			return one(cas.ExecContext(ctx, string(to), time.Now().UnixMicro(), project, ref, string(from)))
		},
	}
}

// one returns an error unless exactly one row was changed.
func one(r sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := r.RowsAffected()
	if err == nil && n != 1 {
		err = fmt.Errorf("%d rows changed", n)
	}
	return err
}

func ours(d *sqlite.Driver) contender {
	return contender{
		lockAndRelease: func(ctx context.Context, ref string) error {
			a, err := d.Acquire(ctx, request(owner, ref))
			if err != nil {
				return err
			}
			return release(ctx, d, owner, a.Token, ref)
		},
		update: func(ctx context.Context, ref string, from, to driver.Value) error { return put(ctx, d, ref, from, to) },
	}
}

// BenchmarkBesideTheFloor compares the driver with the floor. An iteration is a round in which both
// do the same number of operations: -benchtime 5x is five rounds.
func BenchmarkBesideTheFloor(b *testing.B) {
	workloads := map[string]func(b *testing.B, c contender, workers, operations int){"lock+release": lockings, "update": updates}
	for _, synchronous := range []string{"full", "normal"} {
		for _, workers := range []int{1, 16} {
			for name, run := range workloads {
				b.Run(fmt.Sprintf("%s/%s/%d", name, synchronous, workers), func(b *testing.B) {
					address := func() string { return local.SQLite(b).URL() + "?synchronous=" + synchronous }
					compare(b, floor(b, address()), ours(openAgain(b, address())), func(c contender, operations int) {
						run(b, c, workers, operations)
					})
				})
			}
		}
	}
}

// compare reports the medians of the contenders' rates in interleaved rounds,
// and the median of the ratios.
func compare(b *testing.B, floor, ours contender, run func(c contender, operations int)) {
	const each = 2000
	rate := func(c contender) float64 {
		start := time.Now()
		run(c, each)
		return each / time.Since(start).Seconds()
	}
	run(floor, each/10)
	run(ours, each/10)
	var floors, all, ratios []float64
	for b.Loop() {
		f, o := rate(floor), rate(ours)
		floors, all, ratios = append(floors, f), append(all, o), append(ratios, o/f)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(floors), "floor/s")
	b.ReportMetric(median(all), "ours/s")
	b.ReportMetric(median(ratios), "ratio")
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// share divides operations among workers.
func share(b *testing.B, workers, operations int, do func(worker, i int) error) {
	b.Helper()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range operations / workers {
				if err := do(w, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

func lockings(b *testing.B, c contender, workers, n int) {
	share(b, workers, n, func(w, _ int) error { return c.lockAndRelease(b.Context(), fmt.Sprintf("refs/heads/%d", w)) })
}

// updates creates a ref for each worker in each call, and moves the ref back and forth.
func updates(b *testing.B, c contender, workers, n int) {
	run := time.Now().UnixNano()
	values := []driver.Value{v1, v2}
	share(b, workers, n, func(w, i int) error {
		from := driver.Value("")
		if i > 0 {
			from = values[(i-1)%2]
		}
		return c.update(b.Context(), fmt.Sprintf("refs/heads/%d/%d", run, w), from, values[i%2])
	})
}
