package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cirello.io/pglock"
	"github.com/jackc/pgx/v5"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// locksWorkload is W1: lock and release without contention.
func locksWorkload(ctx context.Context, s *servers) (workload, error) {
	if err := errors.Join(s.needPostgres(ctx), s.needEtcd()); err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W1",
		title: "lock + release, distinct keys",
		setting: fmt.Sprintf("PostgreSQL %s: %spools of %d connections, advisory locks: one for each worker. etcd %s: one member in this process, default settings. "+
			"Each worker has %d keys of its own, in turn. One operation is a lock and its release.",
			s.postgres.version, postgresSetting, poolSize(), etcdVersion(), keysPerWorker),
		metrics: rateMetrics("ops/s"),
	}
	for _, n := range []int{1, 16, 64} {
		w.cases = append(w.cases, benchCase{
			name: workerCount(n), workers: n, baseline: "floor",
			contestants: []contestant{
				{"floor", func(ctx context.Context) (sample, error) { return s.floorLocks(ctx, n) }},
				{"refdb", func(ctx context.Context) (sample, error) { return s.refdbLocks(ctx, n) }},
				{"advisory locks", func(ctx context.Context) (sample, error) { return s.advisoryLocks(ctx, n) }},
				{"etcd mutex", func(ctx context.Context) (sample, error) { return s.etcdLocks(ctx, n) }},
				{"pglock", func(ctx context.Context) (sample, error) { return s.pglockLocks(ctx, n) }},
			},
		})
	}
	return w, nil
}

// inTurn returns an op that calls do with a worker's keys in turn.
func inTurn(worker int, do func(ctx context.Context, ref string) error) op {
	refs, next := keys(worker), 0
	return func(ctx context.Context) error {
		ref := refs[next%len(refs)]
		next++
		return do(ctx, ref)
	}
}

// inTurns returns such an op for each of n workers.
func inTurns(n int, do func(ctx context.Context, ref string) error) []op {
	ops := make([]op, n)
	for i := range ops {
		ops[i] = inTurn(i, do)
	}
	return ops
}

func (s *servers) floorLocks(ctx context.Context, n int) (sample, error) {
	return s.postgres.withDatabase(ctx, emptyTemplate, func(url string) (sample, error) {
		f, closeFloor, err := openFloor(ctx, url)
		if err != nil {
			return nil, err
		}
		defer closeFloor()
		return load(ctx, s.d, inTurns(n, func(ctx context.Context, ref string) error {
			token, err := f.lock(ctx, ref)
			if err != nil {
				return err
			}
			return f.release(ctx, ref, token)
		}))
	})
}

func (s *servers) refdbLocks(ctx context.Context, n int) (sample, error) {
	return s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (_ sample, err error) {
		db, err := openRefdb(ctx, url, nil)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		return loadRefdbLocks(ctx, s, db, n)
	})
}

func loadRefdbLocks(ctx context.Context, s *servers, db *refdb.DB, n int) (sample, error) {
	return load(ctx, s.d, inTurns(n, func(ctx context.Context, ref string) error {
		lock, err := db.TryLock(ctx, project, ref)
		if err != nil {
			return err
		}
		return lock.Release(ctx)
	}))
}

// advisoryLocks measures advisory locks. They vanish with their session: nothing is written.
func (s *servers) advisoryLocks(ctx context.Context, n int) (sample, error) {
	return s.postgres.withDatabase(ctx, emptyTemplate, func(url string) (sample, error) {
		ops := make([]op, n)
		for i := range ops {
			c, err := pgx.Connect(ctx, url)
			if err != nil {
				return nil, err
			}
			defer c.Close(ctx)
			key := i * keysPerWorker
			ops[i] = func(ctx context.Context) error {
				key = i*keysPerWorker + (key+1)%keysPerWorker
				if _, err := c.Exec(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
					return err
				}
				_, err := c.Exec(ctx, "SELECT pg_advisory_unlock($1)", key)
				return err
			}
		}
		return load(ctx, s.d, ops)
	})
}

func (s *servers) etcdLocks(ctx context.Context, n int) (sample, error) {
	prefix := s.etcd.keySpace()
	return withSession(ctx, s.etcd.endpoint, func(session *concurrency.Session) (sample, error) {
		return load(ctx, s.d, inTurns(n, func(ctx context.Context, ref string) error {
			m := concurrency.NewMutex(session, prefix+ref)
			if err := m.Lock(ctx); err != nil {
				return err
			}
			return m.Unlock(ctx)
		}))
	})
}

// pglockLease is pglock's default.
const pglockLease = 20 * time.Second

func (s *servers) pglockLocks(ctx context.Context, n int) (sample, error) {
	return s.postgres.withDatabase(ctx, emptyTemplate, func(url string) (_ sample, err error) {
		client, closeClient, err := openPglock(url, pglockLease)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, closeClient()) }()
		if err := client.TryCreateTable(); err != nil {
			return nil, err
		}
		return load(ctx, s.d, inTurns(n, func(ctx context.Context, ref string) error {
			l, err := client.AcquireContext(ctx, ref, pglock.FailIfLocked())
			if err != nil {
				return err
			}
			return client.ReleaseContext(ctx, l)
		}))
	})
}
