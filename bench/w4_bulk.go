package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/globalrefdb/globalrefdb/bench/internal/report"
	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	wallTime   = "wall_ms"
	statements = "statements"
	trips      = "trips"
)

// bulkTimes is how many updates a measurement times.
const bulkTimes = 5

// bulkWorkload is W4's second half: one atomic compare-and-put of many refs.
func bulkWorkload(ctx context.Context, s *servers) (workload, error) {
	if err := errors.Join(s.needPostgres(ctx), s.needEtcd()); err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W4",
		title: "one atomic compare-and-put of many refs",
		setting: fmt.Sprintf("PostgreSQL %s: %srows of history too, but for \"no history\", which is one statement. A measurement is the median of %d updates after one uncounted. Statements and trips of one update "+
			"are counted by a proxy, in another run than the timed ones. etcd %s: limits on a transaction's size raised.",
			s.postgres.version, postgresSetting, bulkTimes, etcdVersion()),
		less:    true,
		metrics: []metric{{wallTime, "ms", 1}, {statements, "statements", 0}, {trips, "round trips", 0}},
	}
	for _, n := range []int{1000, 10_000} {
		refs := numbered("refs/heads/branch", n)
		w.cases = append(w.cases, benchCase{
			name: report.Number(float64(n), 0) + " refs", baseline: "row by row",
			contestants: []contestant{
				{"row by row", func(ctx context.Context) (sample, error) { return s.floorBulk(ctx, refs, rowByRow) }},
				{"pipelined", func(ctx context.Context) (sample, error) { return s.floorBulk(ctx, refs, pipelined) }},
				{"one statement", func(ctx context.Context) (sample, error) { return s.floorBulk(ctx, refs, oneStatement) }},
				{"no history", func(ctx context.Context) (sample, error) { return s.floorBulk(ctx, refs, oneUnrecorded) }},
				{"refdb", func(ctx context.Context) (sample, error) { return s.refdbBulk(ctx, refs) }},
				{"etcd txn", func(ctx context.Context) (sample, error) { return s.etcdBulk(ctx, refs) }},
			},
		})
	}
	return w, nil
}

// A bulkPut moves all refs, or none, from the n-th value to the next.
type bulkPut func(ctx context.Context, n int) error

// timeBulk returns the median time of put, and the number of the refs' value then.
func timeBulk(ctx context.Context, put bulkPut) (sample, int, error) {
	var took []time.Duration
	for n := range 1 + bulkTimes {
		start := time.Now()
		if err := put(ctx, n); err != nil {
			return nil, 0, err
		}
		if n > 0 {
			took = append(took, time.Since(start))
		}
	}
	return sample{wallTime: milliseconds(percentile(took, 0.5))}, 1 + bulkTimes, nil
}

// countBulk counts what put sends through a proxy. An uncounted put before it
// prepares the statements.
func countBulk(ctx context.Context, l *slowLink, result sample, next int, put bulkPut) error {
	if err := put(ctx, next); err != nil {
		return err
	}
	before, beforeTrips := l.Statements.Load(), l.RoundTrips.Load()
	err := put(ctx, next+1)
	result[statements] = float64(l.Statements.Load() - before)
	result[trips] = float64(l.RoundTrips.Load() - beforeTrips)
	return err
}

// bulk opens the database and times updates. Then it opens the database through a
// proxy and counts what an update sends.
func (s *servers) bulk(ctx context.Context, url string, open func(url string) (bulkPut, func() error, error)) (result sample, err error) {
	put, closeDirect, err := open(url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeDirect()) }()
	result, next, err := timeBulk(ctx, put)
	if err != nil {
		return nil, err
	}
	l, err := s.postgres.openSlowLink(0)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	through, closeThrough, err := open(s.postgres.through(l, url))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeThrough()) }()
	return result, countBulk(ctx, l, result, next, through)
}

func (s *servers) refdbBulk(ctx context.Context, refs []string) (sample, error) {
	return s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (sample, error) {
		if err := seedRefdbAt(ctx, url, refs); err != nil {
			return nil, err
		}
		return s.bulk(ctx, url, func(url string) (bulkPut, func() error, error) {
			db, err := openRefdb(ctx, url, nil)
			if err != nil {
				return nil, nil, err
			}
			return func(ctx context.Context, n int) error {
				from, to := refdb.Value(objectID(n)), refdb.Value(objectID(n+1))
				updates := make([]refdb.Update, len(refs))
				for i, ref := range refs {
					updates[i] = refdb.Update{Ref: ref, Old: from, New: to}
				}
				return db.Update(ctx, project, updates)
			}, db.Close, nil
		})
	})
}

// seedRefdbAt inserts refs that hold objectID(0).
func seedRefdbAt(ctx context.Context, url string, refs []string) error {
	db, err := openRefdb(ctx, url, nil)
	if err != nil {
		return err
	}
	return errors.Join(seedRefdb(ctx, db, refs, objectID(0)), db.Close())
}

// A floorPut is a way to move refs from one value to another in a transaction.
type floorPut func(ctx context.Context, tx pgx.Tx, refs []string, old, new string) error

func (s *servers) floorBulk(ctx context.Context, refs []string, put floorPut) (sample, error) {
	return s.postgres.withDatabase(ctx, emptyTemplate, func(url string) (sample, error) {
		f, closeFloor, err := openFloor(ctx, url)
		if err != nil {
			return nil, err
		}
		defer closeFloor()
		if err := f.seed(ctx, refs, objectID(0)); err != nil {
			return nil, err
		}
		// With statistics, and without the planner's settings of the floor, each way gets its best plan.
		if _, err := f.db.Exec(ctx, "ANALYZE floor_refs"); err != nil {
			return nil, err
		}
		return s.bulk(ctx, url, func(url string) (bulkPut, func() error, error) {
			pool, err := pgxpool.New(ctx, url)
			if err != nil {
				return nil, nil, err
			}
			return func(ctx context.Context, n int) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					return put(ctx, tx, refs, objectID(n), objectID(n+1))
				})
			}, func() error { pool.Close(); return nil }, nil
		})
	})
}

func rowByRow(ctx context.Context, tx pgx.Tx, refs []string, old, new string) error {
	for _, ref := range refs {
		if err := one(tx.Exec(ctx, floorRecordSQL, project, ref, old, new)); err != nil {
			return err
		}
	}
	return nil
}

func pipelined(ctx context.Context, tx pgx.Tx, refs []string, old, new string) error {
	var b pgx.Batch
	for _, ref := range refs {
		b.Queue(floorRecordSQL, project, ref, old, new)
	}
	results := tx.SendBatch(ctx, &b)
	for range refs {
		if err := one(results.Exec()); err != nil {
			return errors.Join(err, results.Close())
		}
	}
	return results.Close()
}

const floorPutAllSQL = `UPDATE floor_refs SET value = $4, time = clock_timestamp()
	FROM unnest($2::text[]) AS asked (ref)
	WHERE floor_refs.project = $1 AND floor_refs.ref = asked.ref AND value = $3`

func oneStatement(ctx context.Context, tx pgx.Tx, refs []string, old, new string) error {
	return all(refs)(tx.Exec(ctx, `WITH changed AS (`+floorPutAllSQL+` RETURNING asked.ref, time)
		INSERT INTO floor_history (project, ref, old, new, time) SELECT $1, ref, $3, $4, time FROM changed`, project, refs, old, new))
}

func oneUnrecorded(ctx context.Context, tx pgx.Tx, refs []string, old, new string) error {
	return all(refs)(tx.Exec(ctx, floorPutAllSQL, project, refs, old, new))
}

// all returns an error unless each ref was affected.
func all(refs []string) func(pgconn.CommandTag, error) error {
	return func(tag pgconn.CommandTag, err error) error {
		if err == nil && tag.RowsAffected() != int64(len(refs)) {
			err = fmt.Errorf("%d of %d refs were updated", tag.RowsAffected(), len(refs))
		}
		return err
	}
}

func (s *servers) etcdBulk(ctx context.Context, refs []string) (_ sample, err error) {
	client, err := dialEtcd(ctx, s.etcd.endpoint)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	prefix := s.etcd.keySpace()
	if err := etcdPutAll(ctx, client, prefix, refs, nil, objectID(0)); err != nil {
		return nil, err
	}
	result, _, err := timeBulk(ctx, func(ctx context.Context, n int) error {
		old := objectID(n)
		return etcdPutAll(ctx, client, prefix, refs, &old, objectID(n+1))
	})
	if err == nil {
		result[trips] = 1
	}
	return result, err
}

// etcdPutAll sets all refs in one transaction, if each holds old or if old is nil.
func etcdPutAll(ctx context.Context, client *clientv3.Client, prefix string, refs []string, old *string, new string) error {
	var compares []clientv3.Cmp
	var puts []clientv3.Op
	for _, ref := range refs {
		if old != nil {
			compares = append(compares, clientv3.Compare(clientv3.Value(prefix+ref), "=", *old))
		}
		puts = append(puts, clientv3.OpPut(prefix+ref, new))
	}
	answer, err := client.Txn(ctx).If(compares...).Then(puts...).Commit()
	if err == nil && !answer.Succeeded {
		err = errors.New("some ref does not hold the old value")
	}
	return err
}
