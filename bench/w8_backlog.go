package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/globalrefdb/globalrefdb/bench/internal/report"
	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	backlogChanges = 300_000
	// backlogUpdate is how many refs each update changes.
	backlogUpdate = 1000
)

// backlogWorkload is W8's third part: reading what was changed while nobody followed.
func backlogWorkload(ctx context.Context, s *servers) (workload, error) {
	if err := errors.Join(s.needPostgres(ctx), s.needEtcd()); err != nil {
		return workload{}, err
	}
	url, prefix, err := s.makeBacklog(ctx)
	if err != nil {
		return workload{}, err
	}
	c := benchCase{name: report.Number(backlogChanges, 0) + " changes", baseline: string(statementFeed)}
	for _, kind := range []feedKind{statementFeed, refdbFeed, etcdFeed} {
		c.contestants = append(c.contestants, contestant{string(kind), func(ctx context.Context) (sample, error) {
			return readInChild(ctx, backlogRole, feedTask{Kind: kind, Database: url, Etcd: s.etcd.endpoint, Prefix: prefix}, backlogChanges)
		}})
	}
	return workload{
		id:    "W8",
		title: "reading a backlog of changes",
		setting: fmt.Sprintf("PostgreSQL %s: %setcd %s: one member in this program, default settings. Updates of %d refs made the changes. Each reader is a process of its own, "+
			"from its first request on. One statement: SELECT … ORDER BY position, its rows read as they come.",
			s.postgres.version, postgresSetting, etcdVersion(), backlogUpdate),
		metrics: []metric{{perSecond, "changes/s", 0}, {peakMemory, "peak memory MB", 0}},
		cases:   []benchCase{c},
	}, nil
}

// makeBacklog makes the same changes in a database, and in etcd under a prefix.
func (s *servers) makeBacklog(ctx context.Context) (url, prefix string, err error) {
	const name = "backlog"
	if err := s.postgres.create(ctx, name, migratedTemplate); err != nil {
		return "", "", err
	}
	url, prefix = s.postgres.URL(name), s.etcd.keySpace()
	db, err := openRefdb(ctx, url, nil)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	client, err := dialEtcd(ctx, s.etcd.endpoint)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	refs := numbered("refs/heads/branch", backlogChanges)
	for len(refs) > 0 {
		if err := seedRefdb(ctx, db, refs[:backlogUpdate], objectID(0)); err != nil {
			return "", "", err
		}
		var puts []clientv3.Op
		for _, ref := range refs[:backlogUpdate] {
			puts = append(puts, clientv3.OpPut(prefix+ref, objectID(0)))
		}
		if _, err := client.Txn(ctx).Then(puts...).Commit(); err != nil {
			return "", "", err
		}
		refs = refs[backlogUpdate:]
	}
	// Now rather than during a measurement.
	return url, prefix, s.postgres.Connect(ctx, name, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, "VACUUM ANALYZE history")
		return err
	})
}

// backlogChild is the main function of a process that reads a backlog.
func backlogChild(ctx context.Context, in *json.Decoder, out *json.Encoder) error {
	var task feedTask
	if err := in.Decode(&task); err != nil {
		return err
	}
	read := map[feedKind]func(context.Context, feedTask) (time.Duration, error){
		refdbFeed: backlogByRefdb, etcdFeed: backlogByWatch, statementFeed: backlogByStatement,
	}[task.Kind]
	took, err := read(ctx, task)
	if err != nil {
		return err
	}
	return out.Encode(took)
}

func backlogByRefdb(ctx context.Context, task feedTask) (took time.Duration, err error) {
	db, err := openRefdb(ctx, task.Database, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	start, n := time.Now(), 0
	for page, err := range db.Changes(ctx, refdb.ChangeQuery{}) {
		if err != nil {
			return 0, err
		}
		if n += len(page.Changes); n >= backlogChanges {
			break
		}
	}
	return time.Since(start), nil
}

func backlogByWatch(ctx context.Context, task feedTask) (took time.Duration, err error) {
	client, err := dialEtcd(ctx, task.Etcd)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start, n := time.Now(), 0
	for answer := range client.Watch(ctx, task.Prefix, clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := answer.Err(); err != nil {
			return 0, err
		}
		if n += len(answer.Events); n >= backlogChanges {
			return time.Since(start), nil
		}
	}
	return 0, fmt.Errorf("the watch ended after %d changes: %w", n, ctx.Err())
}

func backlogByStatement(ctx context.Context, task feedTask) (time.Duration, error) {
	c, err := pgx.Connect(ctx, task.Database)
	if err != nil {
		return 0, err
	}
	defer c.Close(ctx)
	start, n := time.Now(), 0
	rows, err := c.Query(ctx, `SELECT project, ref, position, old, new, time, op FROM history ORDER BY position, project, ref`)
	if err != nil {
		return 0, err
	}
	var r refdb.Change
	var op *string
	_, err = pgx.ForEachRow(rows, []any{&r.Project, &r.Ref, (*int64)(&r.Position), (*string)(&r.Old), (*string)(&r.New), &r.Time, &op}, func() error { n++; return nil })
	if err == nil && n != backlogChanges {
		err = fmt.Errorf("%d changes were read, not %d", n, backlogChanges)
	}
	return time.Since(start), err
}
