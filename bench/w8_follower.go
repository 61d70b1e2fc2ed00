package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/globalrefdb/globalrefdb/refdb"
)

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
