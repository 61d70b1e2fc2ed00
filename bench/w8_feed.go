package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/globalrefdb/globalrefdb/refdb"
)

const (
	feedRate    = 1000 // changes per second
	feedWriters = 16
	// seedValue is what all refs hold before the first change of a feed.
	seedValue = "ffffffffffffffffffffffffffffffffffffffff"

	receiptP50 = "receipt_p50_ms"
	receiptP99 = "receipt_p99_ms"
)

// feedWorkload is W8: how long a change takes to its follower.
func feedWorkload(ctx context.Context, s *servers) (workload, error) {
	if err := errors.Join(s.needPostgres(ctx), s.needEtcd()); err != nil {
		return workload{}, err
	}
	follower := []crowd{{processes: 1, followers: 1}}
	return workload{
		id:    "W8",
		title: fmt.Sprintf("from a change to its follower, %d changes/s", feedRate),
		setting: fmt.Sprintf("PostgreSQL %s: %setcd %s: one member in the writers' process, default settings. %d writers of one process make %d changes/s of single refs; "+
			"the follower is another process. Latency is from the call of the update to the change's receipt.",
			s.postgres.version, postgresSetting, etcdVersion(), feedWriters, feedRate),
		less:    true,
		metrics: []metric{{receiptP50, "p50 ms", 2}, {receiptP99, "p99 ms", 2}},
		cases: []benchCase{{
			name: "1 follower", baseline: string(etcdFeed),
			contestants: []contestant{
				{string(refdbFeed), func(ctx context.Context) (sample, error) { return s.feed(ctx, refdbFeed, follower) }},
				{string(etcdFeed), func(ctx context.Context) (sample, error) { return s.feed(ctx, etcdFeed, follower) }},
			},
		}},
	}, nil
}

// followersWorkload is W8's second part: what followers cost the writers.
func followersWorkload(ctx context.Context, s *servers) (workload, error) {
	if err := errors.Join(s.needPostgres(ctx), s.needEtcd()); err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W8",
		title: fmt.Sprintf("updates while they are followed, %d changes/s", feedRate),
		setting: fmt.Sprintf("PostgreSQL %s: %setcd %s: one member in the writers' process, default settings. %d writers of one process; the followers' processes are others.",
			s.postgres.version, postgresSetting, etcdVersion(), feedWriters),
		less:    true,
		metrics: []metric{{p50, "update p50 ms", 2}, {p99, "p99 ms", 2}, {receiptP50, "receipt p50 ms", 2}, {receiptP99, "p99 ms", 2}},
	}
	nobody, hundred := []crowd{}, []crowd{{1, 34}, {2, 33}}
	for _, kind := range []feedKind{refdbFeed, etcdFeed} {
		w.cases = append(w.cases, benchCase{
			name: string(kind), baseline: "no follower",
			contestants: []contestant{
				{"no follower", func(ctx context.Context) (sample, error) { return s.feed(ctx, kind, nobody) }},
				{"100 in 3 processes", func(ctx context.Context) (sample, error) { return s.feed(ctx, kind, hundred) }},
			},
		})
	}
	return w, nil
}

// A crowd is processes with so many followers each.
type crowd struct{ processes, followers int }

// feed makes changes and has them followed.
func (s *servers) feed(ctx context.Context, kind feedKind, crowds []crowd) (sample, error) {
	if kind == etcdFeed {
		client, err := dialEtcd(ctx, s.etcd.endpoint)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		task := feedTask{Kind: kind, Etcd: s.etcd.endpoint, Prefix: s.etcd.keySpace()}
		for _, ref := range allKeys(feedWriters) {
			if _, err := client.Put(ctx, task.Prefix+ref, seedValue); err != nil {
				return nil, err
			}
		}
		return s.follow(ctx, task, crowds, func(ctx context.Context, ref, old, new string) error {
			key := task.Prefix + ref
			answer, err := client.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", old)).Then(clientv3.OpPut(key, new)).Commit()
			if err == nil && !answer.Succeeded {
				err = fmt.Errorf("%s does not hold %s", ref, old)
			}
			return err
		})
	}
	return s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (_ sample, err error) {
		db, err := openRefdb(ctx, url, nil)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		if err := seedRefdb(ctx, db, allKeys(feedWriters), seedValue); err != nil {
			return nil, err
		}
		return s.follow(ctx, feedTask{Kind: kind, Database: url}, crowds, func(ctx context.Context, ref, old, new string) error {
			return db.Update(ctx, project, []refdb.Update{{Ref: ref, Old: refdb.Value(old), New: refdb.Value(new)}})
		})
	})
}

// follow starts the followers, makes the changes, and collects when they were received.
func (s *servers) follow(ctx context.Context, task feedTask, crowds []crowd, do put) (sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*s.d+stuckAfter, errStuck)
	defer cancel()
	var children []*child
	defer func() {
		for _, c := range children {
			c.stop()
		}
	}()
	first := int(feedRate * (s.d / 5).Seconds()) // that counts
	task.Changes = first + int(feedRate*s.d.Seconds())
	for _, crowd := range crowds {
		task.Followers = crowd.followers
		for range crowd.processes {
			c, err := startChild(ctx, feedRole, task)
			if err != nil {
				return nil, err
			}
			children = append(children, c)
		}
	}
	for _, c := range children {
		var ready bool
		if err := c.receive(&ready); err != nil {
			return nil, err
		}
	}
	calls, err := makeChanges(ctx, task.Changes, do)
	if err != nil {
		return nil, err
	}
	var updates, receipts []time.Duration
	for _, c := range calls[first:] {
		updates = append(updates, c.end-c.begin)
	}
	for _, c := range children {
		var received []time.Duration
		if err := c.receive(&received); err != nil {
			return nil, err
		}
		for n, c := range calls[first:] {
			receipts = append(receipts, received[first+n]-c.begin)
		}
	}
	result := rates(updates, s.d)
	if len(receipts) > 0 {
		result[receiptP50], result[receiptP99] = milliseconds(percentile(receipts, 0.50)), milliseconds(percentile(receipts, 0.99))
	}
	return result, nil
}

// An updateCall is when an update was called, and when it returned, by [monotonic].
type updateCall struct{ begin, end time.Duration }

// makeChanges makes n changes, feedRate in a second. The n-th change gives its ref objectID(n).
func makeChanges(ctx context.Context, n int, do put) ([]updateCall, error) {
	calls := make([]updateCall, n)
	start := time.Now()
	writers, running := errgroup.WithContext(ctx)
	for w := range feedWriters {
		writers.Go(func() error {
			refs := keys(w)
			held := make([]string, len(refs))
			for i := range held {
				held[i] = seedValue
			}
			for i := w; i < n; i += feedWriters {
				time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / feedRate)))
				ref := i / feedWriters % len(refs)
				calls[i].begin = monotonic()
				if err := do(running, refs[ref], held[ref], objectID(i)); err != nil {
					return err
				}
				calls[i].end = monotonic()
				held[ref] = objectID(i)
			}
			return nil
		})
	}
	return calls, writers.Wait()
}

// changeNumber returns n for objectID(n), and false for any other value.
func changeNumber(value string) (n int, ok bool) {
	if value == seedValue || len(value) != len(seedValue) {
		return 0, false
	}
	_, err := fmt.Sscanf(strings.TrimLeft(value, "0"), "%x", &n)
	return n - 1, err == nil
}

// A feedKind is a way to follow changes, a contestant of W8.
type feedKind string

const (
	refdbFeed     feedKind = "refdb"
	etcdFeed      feedKind = "etcd watch"
	statementFeed feedKind = "one statement" // only for a backlog
)

// A feedTask tells a process of followers what to follow.
type feedTask struct {
	Kind      feedKind
	Database  string // its URL
	Etcd      string // endpoint
	Prefix    string // of etcd's keys
	Followers int
	Changes   int // how many there will be
}

// A follower calls started once it will miss no change, and then received with the value of
// each, until that returns false.
type follower func(ctx context.Context, started func(), received func(value string) bool) error

// openFollower connects a process. All of its followers share the connection, as in an application.
func openFollower(ctx context.Context, task feedTask) (follower, func() error, error) {
	if task.Kind == etcdFeed {
		client, err := dialEtcd(ctx, task.Etcd)
		if err != nil {
			return nil, nil, err
		}
		return etcdFollower(client, task.Prefix), client.Close, nil
	}
	db, err := openRefdb(ctx, task.Database, nil)
	if err != nil {
		return nil, nil, err
	}
	return refdbFollower(db), db.Close, nil
}

func refdbFollower(db *refdb.DB) follower {
	return func(ctx context.Context, started func(), received func(string) bool) error {
		end, err := db.HistoryEnd(ctx)
		if err != nil {
			return err
		}
		started()
		for page, err := range db.Changes(ctx, refdb.ChangeQuery{After: end}) {
			if err != nil {
				return err
			}
			for _, c := range page.Changes {
				if !received(string(c.New)) {
					return nil
				}
			}
		}
		return nil
	}
}

func etcdFollower(client *clientv3.Client, prefix string) follower {
	return func(ctx context.Context, started func(), received func(string) bool) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for answer := range client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
			if err := answer.Err(); err != nil {
				return err
			}
			if answer.Created {
				started()
			}
			for _, e := range answer.Events {
				if !received(string(e.Kv.Value)) {
					return nil
				}
			}
		}
		return ctx.Err()
	}
}

// feedChild is the main function of a process of followers. Each ends when it has received all
// changes. It reports when the first of them received each change.
func feedChild(ctx context.Context, in *json.Decoder, out *json.Encoder) (err error) {
	var task feedTask
	if err := in.Decode(&task); err != nil {
		return err
	}
	follow, closeFollower, err := openFollower(ctx, task)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeFollower()) }()
	received := make([]time.Duration, task.Changes)
	started := make(chan bool, task.Followers)
	followers, following := errgroup.WithContext(ctx)
	for i := range task.Followers {
		left := task.Changes
		followers.Go(func() error {
			return follow(following, func() { started <- true }, func(value string) bool {
				if i == 0 {
					if n, ok := changeNumber(value); ok {
						received[n] = monotonic()
					}
				}
				left--
				return left > 0
			})
		})
	}
	for range task.Followers {
		select {
		case <-started:
		case <-following.Done():
			return followers.Wait()
		}
	}
	if err := out.Encode(true); err != nil {
		return err
	}
	if err := followers.Wait(); err != nil {
		return err
	}
	return out.Encode(received)
}
