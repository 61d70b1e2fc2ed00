package main

import (
	"context"
	"errors"
	"os"
	"time"
)

// servers are started when a workload first needs them.
type servers struct {
	dir      string // of ours, removed with them
	d        time.Duration
	postgres *postgresServer
	etcd     *etcdServer
	held     map[int]heldLocks
}

// newServers makes a directory for them in parent.
func newServers(parent string, d time.Duration) (*servers, error) {
	dir, err := os.MkdirTemp(parent, "refdb-bench-")
	if err != nil {
		return nil, err
	}
	// PostgreSQL may run under another account.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &servers{dir: dir, d: d, held: make(map[int]heldLocks)}, nil
}

func (s *servers) close() error {
	if s.postgres != nil {
		s.postgres.stop()
	}
	if s.etcd != nil {
		s.etcd.stop()
	}
	return os.RemoveAll(s.dir)
}

func (s *servers) needPostgres(ctx context.Context) (err error) {
	if s.postgres == nil {
		s.postgres, err = startPostgres(ctx, s.dir)
	}
	return err
}

func (s *servers) needEtcd() (err error) {
	if s.etcd == nil {
		s.etcd, err = startEtcd(s.dir)
	}
	return err
}
