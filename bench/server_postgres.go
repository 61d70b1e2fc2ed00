package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

// postgresSettings are what differs from PostgreSQL's defaults. What a commit
// waits for is as it comes: fsync, synchronous_commit and full_page_writes are
// on. No checkpoint shall fall into a measurement: there is one whenever a
// database is dropped, which is before the next.
func postgresSettings() []string {
	return []string{
		"listen_addresses=127.0.0.1",
		"unix_socket_directories=",
		"max_connections=300",
		"shared_buffers=512MB",
		"max_wal_size=8GB",
		"checkpoint_timeout=1h",
	}
}

// postgresSetting says so above a table.
const postgresSetting = "fsync, synchronous_commit and full_page_writes on, shared_buffers 512 MB, no checkpoint during a measurement, " +
	"otherwise default; TCP on the loopback; "

// A postgresServer is a server of our own, with fresh databases for measurements.
type postgresServer struct {
	process  *process
	password string
	port     int
	version  string
	count    int // of databases
}

// The template databases: what a fresh one is a copy of.
const (
	emptyTemplate    = "template1"
	migratedTemplate = "migrated"
)

// startPostgres runs a server in a new directory under dir.
func startPostgres(ctx context.Context, dir string) (*postgresServer, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	home := filepath.Join(dir, "postgres")
	s := &postgresServer{password: rand.Text()}
	if err := s.initialize(ctx, bin, home, as); err != nil {
		return nil, err
	}
	if s.port, err = freePort(); err != nil {
		return nil, err
	}
	argv := []string{filepath.Join(bin, "postgres"), "-D", filepath.Join(home, "data"), "-p", strconv.Itoa(s.port)}
	for _, setting := range postgresSettings() {
		argv = append(argv, "-c", setting)
	}
	// SIGINT: disconnect everybody and shut down.
	s.process, err = startProcess(home, filepath.Join(dir, "postgres.log"), "INT", as, argv...)
	if err != nil {
		return nil, err
	}
	err = s.process.until(func() error {
		return s.do(ctx, "postgres", func(c *pgx.Conn) error {
			return c.QueryRow(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&s.version)
		})
	})
	if err == nil {
		err = s.migrate(ctx)
	}
	if err != nil {
		s.process.stop()
		return nil, err
	}
	return s, nil
}

// initialize makes the server's files in the new directory home. Whoever else
// is on this machine gets in with the password only.
func (s *postgresServer) initialize(ctx context.Context, bin, home string, as *syscall.Credential) error {
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	secret := filepath.Join(home, "password")
	if err := os.WriteFile(secret, []byte(s.password), 0o600); err != nil {
		return err
	}
	if as != nil {
		for _, path := range []string{secret, home} {
			if err := os.Chown(path, int(as.Uid), int(as.Gid)); err != nil {
				return err
			}
		}
	}
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--pgdata", filepath.Join(home, "data"), "--username", "postgres",
		"--auth", "scram-sha-256", "--pwfile", secret, "--encoding", "UTF8", "--no-locale")
	initdb.Dir = home
	initdb.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

func (s *postgresServer) stop() { s.process.stop() }

// migrate creates the migrated template.
func (s *postgresServer) migrate(ctx context.Context) error {
	if err := s.create(ctx, migratedTemplate, emptyTemplate); err != nil {
		return err
	}
	return schema.Up(ctx, s.url(migratedTemplate))
}

// url returns the address of a database.
func (s *postgresServer) url(database string) string {
	return fmt.Sprintf("postgres://postgres:%s@%s/%s?sslmode=disable", s.password, s.address(), database)
}

// address is where the server listens.
func (s *postgresServer) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// through returns the address of the same database by way of l.
func (s *postgresServer) through(l *link, url string) string {
	return strings.Replace(url, s.address(), net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port())), 1)
}

// withDatabase calls do with the address of a fresh copy of template.
func (s *postgresServer) withDatabase(ctx context.Context, template string, do func(url string) (sample, error)) (_ sample, err error) {
	s.count++
	name := fmt.Sprintf("bench%d", s.count)
	if err := s.create(ctx, name, template); err != nil {
		return nil, err
	}
	defer func() {
		// The server goes anyway if ctx has ended.
		err = errors.Join(err, s.exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"))
	}()
	return do(s.url(name))
}

// create makes a database that is a copy of template, which nobody uses now.
func (s *postgresServer) create(ctx context.Context, name, template string) error {
	return s.exec(ctx, "CREATE DATABASE "+name+" TEMPLATE "+template)
}

// set changes a setting of the running server.
func (s *postgresServer) set(ctx context.Context, setting string) error {
	if err := s.exec(ctx, "ALTER SYSTEM SET "+setting); err != nil {
		return err
	}
	return s.exec(ctx, "SELECT pg_reload_conf()")
}

// exec runs a statement in the database postgres.
func (s *postgresServer) exec(ctx context.Context, sql string) error {
	return s.do(ctx, "postgres", func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, sql)
		return err
	})
}

// do connects for one use.
func (s *postgresServer) do(ctx context.Context, database string, f func(*pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, s.url(database))
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	return f(c)
}
