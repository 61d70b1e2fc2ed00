package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/bench/internal/command"
	"github.com/globalrefdb/globalrefdb/bench/internal/site"
	"github.com/globalrefdb/globalrefdb/internal/faultproxy"
	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

// servers are started when a workload first needs them.
type servers struct {
	dir      string        // removed with the servers
	d        time.Duration // of one measurement of a rate
	postgres *postgresServer
	etcd     *etcdServer
	held     map[int]heldLocks
}

// newServers makes a directory for the servers in parent.
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

func (s *servers) close() (err error) {
	if s.postgres != nil {
		err = s.postgres.Stop()
	}
	if s.etcd != nil {
		s.etcd.stop()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
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

// postgresSetting tells the reader of a table how the server is set up.
const postgresSetting = "fsync, synchronous_commit and full_page_writes on, shared_buffers 512 MB, no checkpoint during a measurement, " +
	"otherwise default; TCP on the loopback; "

// A postgresServer is a server of our own, with fresh databases for measurements.
type postgresServer struct {
	*testserver.Postgres
	version string
	count   int // of databases
}

// The template databases, which fresh databases are copies of.
const (
	emptyTemplate    = "template1"
	migratedTemplate = "migrated"
)

// startPostgres runs a server in a new directory under dir. It wants a password,
// because everybody on this machine can reach it.
func startPostgres(ctx context.Context, dir string) (_ *postgresServer, err error) {
	s := &postgresServer{}
	// What a commit waits for is PostgreSQL's default: fsync, synchronous_commit
	// and full_page_writes are on. No checkpoint falls into a measurement: there
	// is one whenever a database is dropped, which is before the next measurement.
	s.Postgres, err = testserver.StartPostgres(ctx, testserver.PostgresOptions{
		Parent: dir, Network: testserver.Loopback, Password: rand.Text(),
		Settings: []string{"max_connections=300", "shared_buffers=512MB", "max_wal_size=8GB", "checkpoint_timeout=1h"},
	})
	if err != nil {
		return nil, err
	}
	err = s.Connect(ctx, "postgres", func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&s.version)
	})
	if err == nil {
		err = s.migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// migrate creates the migrated template.
func (s *postgresServer) migrate(ctx context.Context) error {
	if err := s.create(ctx, migratedTemplate, emptyTemplate); err != nil {
		return err
	}
	return schema.Up(ctx, s.URL(migratedTemplate))
}

// A slowLink is a proxy in front of the server, which counts what clients ask
// for. It is as slow as a long line: what is sent together arrives together.
type slowLink struct {
	*faultproxy.Proxy
	faultproxy.Postgres
}

// openSlowLink opens one that delays each way by half of a round-trip time.
func (s *postgresServer) openSlowLink(roundTrip time.Duration) (_ *slowLink, err error) {
	l := &slowLink{}
	l.Proxy, err = faultproxy.New(faultproxy.Options{
		Server: faultproxy.Endpoint{Network: "tcp", Address: s.Address()}, Latency: roundTrip / 2, Filter: l.Connection,
	})
	return l, err
}

// through returns the address of the same database through l.
func (s *postgresServer) through(l *slowLink, url string) string {
	return strings.Replace(url, s.Address(), l.Address(), 1)
}

// withDatabase calls do with the address of a fresh copy of template.
func (s *postgresServer) withDatabase(ctx context.Context, template string, do func(url string) (sample, error)) (_ sample, err error) {
	s.count++
	name := fmt.Sprintf("bench%d", s.count)
	if err := s.create(ctx, name, template); err != nil {
		return nil, err
	}
	defer func() {
		// If ctx has ended this fails, but then the server is removed anyway.
		err = errors.Join(err, s.Exec(ctx, "postgres", "DROP DATABASE "+name+" WITH (FORCE)"))
	}()
	return do(s.URL(name))
}

// create makes a database that is a copy of template. Nobody may be connected to that.
func (s *postgresServer) create(ctx context.Context, name, template string) error {
	return s.Exec(ctx, "postgres", "CREATE DATABASE "+name+" TEMPLATE "+template)
}

// set changes a setting of the running server.
func (s *postgresServer) set(ctx context.Context, setting string) error {
	return s.Exec(ctx, "postgres", "ALTER SYSTEM SET "+setting, "SELECT pg_reload_conf()")
}

// needSites makes ready what workloads with sites need: PostgreSQL, the programs, and git, whose version it returns.
func (s *servers) needSites(ctx context.Context) (programs, gitVersion string, err error) {
	if err := s.needPostgres(ctx); err != nil {
		return "", "", err
	}
	if programs, err = site.Build(ctx, s.dir); err != nil {
		return "", "", err
	}
	gitVersion, err = command.Git(ctx, "version")
	return programs, gitVersion, err
}
