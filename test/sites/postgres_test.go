//go:build linux

package sites

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
)

// A postgresServer is a PostgreSQL of one test's own, which may be killed.
type postgresServer struct {
	t        testing.TB
	bin, dir string
	as       *syscall.Credential
	process  *child
}

func newPostgres(t testing.TB) *postgresServer {
	t.Helper()
	s := &postgresServer{t: t, dir: shortDir(t)}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		t.Fatal(err)
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append(found, filepath.Dir(path))
	}
	if len(found) == 0 {
		t.Fatal("no PostgreSQL: install it (`make deps`)")
	}
	s.bin = found[len(found)-1]
	if os.Getuid() == 0 { // as whom it refuses to run
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		shared, err3 := work()
		err4 := os.Chmod(shared, 0o711)
		if err := errors.Join(err1, err2, err3, err4, os.Chown(s.dir, int(uid), int(gid))); err != nil {
			t.Fatal(err)
		}
		s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	init := s.command("initdb", "--pgdata", s.data(), "--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync")
	init.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	s.start()
	s.migrate()
	return s
}

func (s *postgresServer) data() string { return filepath.Join(s.dir, "data") }

func (s *postgresServer) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	return cmd
}

// url is the address of a database.
func (s *postgresServer) url(database string) string {
	u := url.URL{Scheme: "postgres", Path: "/" + database, RawQuery: url.Values{"host": {s.dir}, "user": {"postgres"}}.Encode()}
	return u.String()
}

// start starts the server and waits until it answers.
func (s *postgresServer) start() {
	s.t.Helper()
	s.process = launchAs(s.t, s.command("postgres", "-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off"), s.as)
	eventually(s.t, "PostgreSQL", func() error { return s.do("postgres", "SELECT 1") })
}

// crash kills the server with all of its processes, and waits for their end.
func (s *postgresServer) crash() {
	s.t.Helper()
	server := s.process.Process.Pid
	pids := append(childrenOf(s.t, server), server)
	for _, pid := range slices.Backward(pids) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // some may have ended
	}
	for _, pid := range pids {
		gone(s.t, pid)
	}
}

func (s *postgresServer) do(database, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, s.url(database))
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, sql)
	return errors.Join(err, c.Close(ctx))
}

// URL returns the address of the server's database.
func (s *postgresServer) URL() string { return s.url("refdb") }

// Open opens it.
func (s *postgresServer) Open(t testing.TB) refdb.Driver {
	t.Helper()
	d, err := postgres.Open(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// migrate makes the database.
func (s *postgresServer) migrate() {
	s.t.Helper()
	if err := s.do("postgres", "CREATE DATABASE refdb"); err != nil {
		s.t.Fatal(err)
	}
	m, err := postgres.Migrator(s.t.Context(), s.URL())
	if err != nil {
		s.t.Fatal(err)
	}
	if err := errors.Join(m.Up(s.t.Context()), m.Close()); err != nil {
		s.t.Fatal(err)
	}
}
