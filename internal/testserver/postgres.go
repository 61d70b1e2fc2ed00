package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// A Network is how clients reach a PostgreSQL server.
type Network int

const (
	UnixSocket Network = iota // a socket in the server's directory
	Loopback                  // a free TCP port of the loopback interface
)

// A Durability is what a PostgreSQL server does for data to survive a crash of
// the machine. Data survives a crash of the server with any of them, and commits
// wait and order as ever.
type Durability int

const (
	Fsync   Durability = iota // PostgreSQL's default
	NoFsync                   // faster
)

// PostgresOptions are what servers differ in.
type PostgresOptions struct {
	// Dir is the server's directory. It is the caller's, to make and to remove;
	// only then can the server be started again. "": a new directory in Parent,
	// or in /tmp, which goes with the server.
	Dir, Parent string
	Network     Network
	Durability  Durability
	Password    string   // of the superuser, postgres. "": whoever reaches the server is let in
	Settings    []string // such as max_connections=100
	Environment []string // more variables for the server
	Log         string   // a file to append to, or ""
}

// A Postgres is a PostgreSQL server of our own.
type Postgres struct {
	options PostgresOptions
	dir     directory
	bin     string
	as      *syscall.Credential
	port    int      // on the loopback interface, or 0
	process *Process // nil while it is down
}

// NewPostgres prepares a server. Start starts it.
func NewPostgres(o PostgresOptions) (_ *Postgres, err error) {
	s := &Postgres{options: o, dir: directory{path: o.Dir}}
	if s.bin, err = postgresBin(); err != nil {
		return nil, err
	}
	if s.as, err = unprivileged(); err != nil {
		return nil, err
	}
	if o.Network == Loopback {
		if s.port, err = FreePort(); err != nil {
			return nil, err
		}
	}
	if o.Dir == "" {
		if s.dir, err = newDirectory(o.Parent); err != nil {
			return nil, err
		}
	}
	if err := s.prepare(); err != nil {
		s.dir.removeTemporary()
		return nil, err
	}
	return s, nil
}

// prepare makes the directory the server's own.
func (s *Postgres) prepare() error {
	password := filepath.Join(s.dir.path, passwordFile)
	if s.options.Password == "" {
		return give(s.as, s.dir.path)
	}
	if err := os.WriteFile(password, []byte(s.options.Password), 0o600); err != nil {
		return err
	}
	return give(s.as, s.dir.path, password)
}

const passwordFile = "password"

// StartPostgres starts a new server.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	s, err := NewPostgres(o)
	if err != nil {
		return nil, err
	}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Start starts the server, with a new cluster unless there is one in [Postgres.DataDir],
// and waits until the server answers. On an error the server has ended.
func (s *Postgres) Start(ctx context.Context) error {
	c := command{name: s.Program(), argv: s.argv(), dir: s.dir, as: s.as, log: s.options.Log}
	c.signal = "QUIT" // at once: there is nothing to save
	p, err := c.start()
	if err != nil {
		return err
	}
	err = p.until(ctx, func(ctx context.Context) error { return s.Exec(ctx, "postgres", "SELECT 1") })
	if err != nil {
		return errors.Join(err, p.Stop())
	}
	s.process = p
	return nil
}

// Stop ends the server, if it runs.
func (s *Postgres) Stop() error { return s.end((*Process).Stop) }

// Kill ends the server, if it runs, as a crash of all of its processes would.
func (s *Postgres) Kill() error { return s.end((*Process).Kill) }

func (s *Postgres) end(how func(*Process) error) error {
	p := s.process
	if p == nil {
		return nil
	}
	s.process = nil
	return how(p)
}

// Freeze stops all of the server's processes until thaw.
func (s *Postgres) Freeze() (thaw func(), err error) { return s.process.Freeze() }

// argv is a shell that makes a cluster if there is none and becomes the server,
// so that signals reach the server.
func (s *Postgres) argv() []string {
	initdb := "--auth trust"
	if s.options.Password != "" {
		initdb = "--auth scram-sha-256 --pwfile " + passwordFile
	}
	if s.options.Durability == NoFsync {
		initdb += " --no-sync"
	}
	run := `[ -e data/PG_VERSION ] || "$0/initdb" --pgdata data --username postgres --encoding UTF8 --no-locale ` + initdb + ` || exit; exec env "$@"`
	argv := slices.Concat([]string{"/bin/sh", "-c", run, s.bin}, s.options.Environment, []string{s.Program(), "-D", s.DataDir()})
	var settings []string
	if s.options.Network == Loopback {
		settings = append(settings, "listen_addresses=127.0.0.1", "port="+strconv.Itoa(s.port), "unix_socket_directories=")
	} else {
		settings = append(settings, "listen_addresses=", "unix_socket_directories="+s.dir.path)
	}
	if s.options.Durability == NoFsync {
		settings = append(settings, "fsync=off")
	}
	for _, setting := range append(settings, s.options.Settings...) {
		argv = append(argv, "-c", setting)
	}
	return argv
}

// Run runs one of PostgreSQL's programs on this machine, such as pg_basebackup,
// as the server's account.
func (s *Postgres) Run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, program), args...)
	cmd.Dir = s.dir.path
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, out)
	}
	return nil
}

// Printed returns how much the running server has printed, in bytes.
func (s *Postgres) Printed() int64 { return s.process.Printed() }

// OutputFrom returns what the running server printed after its first bytes, of which there are at.
func (s *Postgres) OutputFrom(at int64) string { return s.process.OutputFrom(at) }

// Program returns the path of the server's program.
func (s *Postgres) Program() string { return filepath.Join(s.bin, "postgres") }

// Dir returns the server's directory.
func (s *Postgres) Dir() string { return s.dir.path }

// DataDir returns the directory of the server's cluster.
func (s *Postgres) DataDir() string { return filepath.Join(s.dir.path, "data") }

// Address returns the host and port on the loopback interface.
func (s *Postgres) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL returns the address of a database.
func (s *Postgres) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + database}
	if s.options.Password != "" {
		u.User = url.UserPassword("postgres", s.options.Password)
	}
	if s.options.Network == Loopback {
		u.Host, u.RawQuery = s.Address(), "sslmode=disable"
	} else {
		u.RawQuery = url.Values{"host": {s.dir.path}}.Encode()
	}
	return u.String()
}

// Exec executes statements in a database, each in a transaction of its own.
func (s *Postgres) Exec(ctx context.Context, database string, statements ...string) error {
	return s.Connect(ctx, database, func(c *pgx.Conn) error {
		for _, sql := range statements {
			if _, err := c.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

// Connect connects to a database for one use.
func (s *Postgres) Connect(ctx context.Context, database string, use func(*pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	return use(c)
}

// BinVariable is the environment variable that names the directory of initdb and postgres. Without it
// the programs are looked for where installations have them.
const BinVariable = "REFDB_TEST_POSTGRES_BIN"

// postgresBin returns the directory of initdb and postgres.
func postgresBin() (string, error) {
	isBin := func(dir string) bool {
		return executable(filepath.Join(dir, "initdb")) && executable(filepath.Join(dir, "postgres"))
	}
	if dir := os.Getenv(BinVariable); dir != "" {
		if !filepath.IsAbs(dir) || !isBin(dir) {
			return "", fmt.Errorf("%s=%s: it must be the absolute path of a directory with initdb and postgres", BinVariable, dir)
		}
		return dir, nil
	}
	var dirs []string
	if path, err := exec.LookPath("initdb"); err == nil {
		// The other programs need not be beside a link.
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	debian, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	slices.SortFunc(debian, func(a, b string) int { return majorVersion(b) - majorVersion(a) })
	dirs = append(dirs, debian...)
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, dir := range dirs {
		if isBin(dir) {
			return dir, nil
		}
	}
	return "", NotInstalledError{"PostgreSQL"}
}

// majorVersion returns 15 for /usr/lib/postgresql/15/bin.
func majorVersion(bin string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	if err != nil {
		return 0
	}
	return n
}
