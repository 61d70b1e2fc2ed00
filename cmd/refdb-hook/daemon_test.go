package main_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

const (
	a     = "1111111111111111111111111111111111111111"
	b     = "2222222222222222222222222222222222222222"
	zero  = "0000000000000000000000000000000000000000"
	lines = a + " " + b + " refs/heads/main\n" + zero + " " + b + " refs/heads/\xff\n"
)

// patience is a limit that only a hang reaches.
const patience = 5 * time.Minute

// binary is the hook as it is released.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "hook")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "refdb-hook")
	if err := testprogram.Build(dir, "cmd/refdb-hook"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// A site is a repository, the site's hooks, and the address that its daemon has or will have.
type site struct {
	tb      testing.TB
	dir     string // the real path of the repository
	hooks   string // the directory of the site's hooks
	address string
}

func newSite(tb testing.TB) *site {
	tb.Helper()
	dir, err := filepath.EvalSymlinks(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return newSiteAt(tb, filepath.Join(dir, "r.git"))
}

func newSiteAt(tb testing.TB, dir string) *site {
	tb.Helper()
	short, err := os.MkdirTemp("", "s") // a test's own directory may be too long for a socket
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(short) })
	s := &site{tb: tb, dir: dir, hooks: filepath.Join(short, "hooks"), address: filepath.Join(short, "sock")}
	for _, d := range []string{"hooks", "objects", "refs", "refdb"} {
		s.must(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	s.write("HEAD", "ref: refs/heads/main\n", 0o644)
	s.must(os.Mkdir(s.hooks, 0o755))
	for _, name := range []string{"reference-transaction", "update", "pre-receive", "proc-receive", "post-receive", "post-update"} {
		s.must(os.Link(binary, s.hook(name)))
	}
	s.must(os.Symlink(s.address, s.path("refdb/socket")))
	return s
}

func (s *site) must(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatal(err)
	}
}

// hook returns the path under which git runs this program as the hook of that name.
func (s *site) hook(name string) string { return filepath.Join(s.hooks, name) }

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

func (s *site) write(name, text string, mode os.FileMode) {
	s.tb.Helper()
	s.must(os.WriteFile(s.path(name), []byte(text), mode))
}

// A daemon answers as it is told, and remembers what it was asked.
type daemon struct {
	mu   sync.Mutex
	seen []wire.Request
}

// serve starts a daemon that gives an answer to each connection.
func (s *site) serve(answer string) *daemon {
	return s.serveWith(func(_ int, conn net.Conn) { io.WriteString(conn, answer) })
}

// serveWith lets reply do what it likes with the nth connection, once the request is read.
func (s *site) serveWith(reply func(n int, conn net.Conn)) *daemon {
	s.tb.Helper()
	listener, err := net.Listen("unix", s.address)
	s.must(err)
	return s.serveOn(listener, reply)
}

// serveOn is serveWith for a listener, which a test may close.
func (s *site) serveOn(listener net.Listener, reply func(n int, conn net.Conn)) *daemon {
	s.tb.Helper()
	d := &daemon{}
	var running sync.WaitGroup
	s.tb.Cleanup(func() { listener.Close(); running.Wait() })
	running.Go(func() {
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				s.tb.Error(err)
				return
			}
			running.Go(func() {
				defer conn.Close()
				request, err := io.ReadAll(conn)
				if err == nil && len(request) == 0 {
					return // the hook's time was up before it could ask
				}
				q, err := wire.ReadRequest(bytes.NewReader(request))
				if err != nil {
					s.tb.Errorf("the hook sent what can't be read: %v", err)
				}
				d.mu.Lock()
				d.seen = append(d.seen, q)
				d.mu.Unlock()
				reply(n, conn)
			})
		}
	})
	return d
}

func (d *daemon) requests() []wire.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]wire.Request(nil), d.seen...)
}

// A run is one of the hook: as git does it, unless changed.
type run struct {
	site   *site
	args   []string // the first is the program
	stdin  string
	dir    string
	env    []string
	limit  string
	status int
	stderr string
}

func (s *site) transaction(state, stdin string) *run {
	return &run{site: s, args: []string{s.hook("reference-transaction"), state}, stdin: stdin, dir: s.dir, env: []string{"GIT_DIR=."}, limit: patience.String()}
}

func (s *site) update(args ...string) *run {
	return &run{site: s, args: append([]string{s.hook("update")}, args...), dir: s.dir, env: []string{"GIT_DIR=."}, limit: patience.String()}
}

func (s *site) preReceive(stdin string) *run {
	r := s.transaction("", stdin)
	r.args = []string{s.hook("pre-receive")}
	return r
}

func (r *run) command() *exec.Cmd {
	cmd := exec.Command(r.args[0], r.args[1:]...)
	cmd.Dir = r.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, r.env...)
	if r.limit != "" {
		cmd.Env = append(cmd.Env, "REFDB_HOOK_TIMEOUT="+r.limit)
	}
	cmd.Stdin = strings.NewReader(r.stdin)
	return cmd
}

func (r *run) do() *run {
	r.site.tb.Helper()
	cmd := r.command()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		r.site.tb.Fatal(err)
	}
	r.status, r.stderr = cmd.ProcessState.ExitCode(), stderr.String()
	return r
}

// within runs f with a limit that is to end hooks, and doubles the limit as long as it is over before a hook on a slow
// machine has come as far as f says by returning true.
func within(tb testing.TB, limit time.Duration, f func(limit time.Duration) bool) {
	tb.Helper()
	for !f(limit) {
		if limit *= 2; limit > patience {
			tb.Fatal("it does not come so far")
		}
	}
}

// forget removes what the hooks of this process remember of an outage.
func (s *site) forget() {
	files, _ := filepath.Glob(s.path("refdb/outage.*"))
	for _, file := range files {
		s.must(os.Remove(file))
	}
}

// is checks status and message; an empty one must be empty.
func (r *run) is(status int, says ...string) {
	r.site.tb.Helper()
	if r.status != status {
		r.site.tb.Errorf("%q: status %d, want %d; it said %q", r.args, r.status, status, r.stderr)
	}
	if len(says) == 0 && r.stderr != "" {
		r.site.tb.Errorf("%q: it said %q", r.args, r.stderr)
	}
	for _, part := range says {
		if !strings.Contains(r.stderr, part) {
			r.site.tb.Errorf("%q: it said %q, want %q", r.args, r.stderr, part)
		}
	}
}
