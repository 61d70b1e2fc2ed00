package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
)

const postgresDatabase = "refdb"

// A postgresServer is a PostgreSQL of our own.
type postgresServer struct {
	bin, dir, log string
	port          int
	as            *syscall.Credential // PostgreSQL refuses to run as root
	env           []string
	process       *process // nil while it is down
}

// newPostgres prepares a server in a directory; it neither makes a database nor starts it.
func newPostgres(dir string, env ...string) (*postgresServer, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if path, lookErr := exec.LookPath("pg_basebackup"); lookErr == nil && len(found) == 0 {
		found = append(found, filepath.Dir(path))
	}
	if err != nil || len(found) == 0 {
		return nil, errors.New("no PostgreSQL: install it (`make deps`)")
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL refuses to run as root: %w", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	port, err3 := freePort()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	s := &postgresServer{
		bin: found[len(found)-1], dir: dir, log: dir + ".log", port: port, env: env,
		as: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
	}
	return s, s.clear()
}

// clear leaves an empty directory for the server's data.
func (s *postgresServer) clear() error {
	return errors.Join(os.RemoveAll(s.dir), os.Mkdir(s.dir, 0o700), os.Chown(s.dir, int(s.as.Uid), int(s.as.Gid)))
}

// command is one of PostgreSQL's programs.
func (s *postgresServer) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	return cmd
}

func (s *postgresServer) do(ctx context.Context, name string, args ...string) error {
	if out, err := s.command(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// create makes an empty, migrated database and starts the server.
func (s *postgresServer) create(ctx context.Context) error {
	if err := s.do(ctx, "initdb", "--pgdata", s.dir, "--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync"); err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	if err := s.query(ctx, "postgres", "CREATE DATABASE "+postgresDatabase); err != nil {
		return err
	}
	return schema.Up(ctx, s.url())
}

// start starts the server and waits until it answers.
func (s *postgresServer) start(ctx context.Context) error {
	cmd := s.command(context.WithoutCancel(ctx), "postgres", "-D", s.dir, "-k", s.dir, "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200")
	p, err := spawn(cmd, s.log)
	if err != nil {
		return err
	}
	s.process = p
	return await(ctx, "an answer from PostgreSQL, whose log is "+s.log, func() error {
		select {
		case <-p.ended:
			return errEnded
		default:
			return s.query(ctx, "postgres", "SELECT 1")
		}
	})
}

// crash kills the server and all of its processes.
func (s *postgresServer) crash() error {
	if s.process == nil {
		return nil
	}
	err := s.process.killTree()
	s.process = nil
	return err
}

// freeze stops all of the server's processes until thaw.
func (s *postgresServer) freeze() (thaw func(), err error) {
	server := s.process.Process.Pid
	_ = syscall.Kill(server, syscall.SIGSTOP) // no more children
	children, err := childrenOf(server)
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // some end just now
	}
	return func() {
		for _, pid := range append(children, server) {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}, err
}

// connect connects to one of the server's databases, for one use.
func (s *postgresServer) connect(ctx context.Context, database string, f func(*pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, s.address(database))
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	return f(c)
}

func (s *postgresServer) query(ctx context.Context, database, sql string) error {
	return s.connect(ctx, database, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, sql)
		return err
	})
}

// count returns the number that a query of refdb's database answers.
func (s *postgresServer) count(ctx context.Context, sql string) (n int, err error) {
	err = s.connect(ctx, postgresDatabase, func(c *pgx.Conn) error { return c.QueryRow(ctx, sql).Scan(&n) })
	return n, err
}

func (s *postgresServer) hostPort() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

func (s *postgresServer) url() string { return s.address(postgresDatabase) }

func (s *postgresServer) address(database string) string { return postgresURL(s.hostPort(), database) }

// postgresURL is the address of a database on a server, or one of several: host:port,host:port.
func postgresURL(servers, database string, parameters ...string) string {
	q := url.Values{"sslmode": {"disable"}, "application_name": {"supervisor"}}
	for i := 0; i+1 < len(parameters); i += 2 {
		q.Set(parameters[i], parameters[i+1])
	}
	return "postgres://postgres@" + servers + "/" + database + "?" + q.Encode()
}

// freePort returns a port of the loopback interface that nobody listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
