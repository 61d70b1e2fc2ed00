package main

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// updatesWorkload is W4: compare-and-put of one ref at a time.
func updatesWorkload(ctx context.Context, s *servers) (workload, error) {
	if err := errors.Join(s.needPostgres(ctx), s.needEtcd()); err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W4",
		title: "compare-and-put of one ref, distinct refs",
		setting: fmt.Sprintf("PostgreSQL %s: %spools of %d connections. etcd %s: one member in this process, default settings. "+
			"Each worker has %d refs of its own, in turn. The floor writes the value and a row of history in one statement, as refdb does.",
			s.postgres.version, postgresSetting, poolSize(), etcdVersion(), keysPerWorker),
		metrics: rateMetrics("updates/s"),
	}
	for _, n := range []int{1, 16, 64} {
		w.cases = append(w.cases, benchCase{
			name: workerCount(n), workers: n, baseline: "floor",
			contestants: []contestant{
				{"floor", func(ctx context.Context) (sample, error) { return s.floorUpdates(ctx, n, (*floor).record) }},
				{"no history", func(ctx context.Context) (sample, error) { return s.floorUpdates(ctx, n, (*floor).put) }},
				{"refdb", func(ctx context.Context) (sample, error) { return s.refdbUpdates(ctx, n) }},
				{"etcd txn", func(ctx context.Context) (sample, error) { return s.etcdUpdates(ctx, n) }},
			},
		})
	}
	return w, nil
}

// A put moves a ref from one value to another.
type put func(ctx context.Context, ref, old, new string) error

// putInTurns returns ops that move each ref of n workers from value to value.
// At first all hold objectID(0).
func putInTurns(n int, do put) []op {
	ops := make([]op, n)
	for i := range ops {
		refs, next := keys(i), 0
		ops[i] = func(ctx context.Context) error {
			ref, version := refs[next%len(refs)], next/len(refs)
			next++
			return do(ctx, ref, objectID(version), objectID(version+1))
		}
	}
	return ops
}

// allKeys returns the refs of n workers.
func allKeys(n int) []string {
	var all []string
	for i := range n {
		all = append(all, keys(i)...)
	}
	return all
}

func (s *servers) floorUpdates(ctx context.Context, n int, put func(f *floor, ctx context.Context, ref, old, new string) error) (sample, error) {
	return s.postgres.withDatabase(ctx, emptyTemplate, func(url string) (sample, error) {
		f, closeFloor, err := openFloor(ctx, url)
		if err != nil {
			return nil, err
		}
		defer closeFloor()
		if err := f.seed(ctx, allKeys(n), objectID(0)); err != nil {
			return nil, err
		}
		return load(ctx, s.d, putInTurns(n, func(ctx context.Context, ref, old, new string) error { return put(f, ctx, ref, old, new) }))
	})
}

func (s *servers) refdbUpdates(ctx context.Context, n int) (sample, error) {
	return s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (_ sample, err error) {
		db, err := openRefdb(ctx, url, nil)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		return loadRefdbUpdates(ctx, s, db, n)
	})
}

func loadRefdbUpdates(ctx context.Context, s *servers, db *refdb.DB, n int) (sample, error) {
	if err := seedRefdb(ctx, db, allKeys(n), objectID(0)); err != nil {
		return nil, err
	}
	return load(ctx, s.d, putInTurns(n, func(ctx context.Context, ref, old, new string) error {
		ok, err := db.CompareAndPut(ctx, project, ref, refdb.Value(old), refdb.Value(new))
		if err == nil && !ok {
			err = fmt.Errorf("%s does not hold %s", ref, old)
		}
		return err
	}))
}

func (s *servers) etcdUpdates(ctx context.Context, n int) (_ sample, err error) {
	client, err := dialEtcd(ctx, s.etcd.endpoint)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	prefix := s.etcd.keySpace()
	for _, ref := range allKeys(n) {
		if _, err := client.Put(ctx, prefix+ref, objectID(0)); err != nil {
			return nil, err
		}
	}
	return load(ctx, s.d, putInTurns(n, func(ctx context.Context, ref, old, new string) error {
		key := prefix + ref
		answer, err := client.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", old)).Then(clientv3.OpPut(key, new)).Commit()
		if err == nil && !answer.Succeeded {
			err = fmt.Errorf("%s does not hold %s", ref, old)
		}
		return err
	}))
}
