//go:build linux

package sites

import (
	"bytes"
	"fmt"
	"net"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
)

// A transport brings pushes to the repositories below a directory.
type transport struct {
	name string
	// serve serves root until the test ends, and returns the URL before the path of
	// a repository.
	serve func(t testing.TB, g *git, root string) (url string)
	// stderr says that the client sees what the reference-transaction hook prints.
	stderr bool
}

var transports = []transport{
	{"file", serveFiles, true},
	{"http", serveHTTP, false},
	{"daemon", serveDaemon, false},
}

func serveFiles(_ testing.TB, _ *git, root string) string { return root }

// serveHTTP is git http-backend behind an HTTP server.
func serveHTTP(t testing.TB, g *git, root string) string {
	t.Helper()
	var complaints buffer
	s := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(g.exec, "git-http-backend"),
		Dir:  root,
		Env: append([]string{
			"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1",
			"REMOTE_USER=tester", // who may push
		}, g.env...),
		Stderr: &complaints,
	})
	t.Cleanup(s.Close)
	return s.URL
}

// serveDaemon is git daemon.
func serveDaemon(t testing.TB, g *git, root string) string {
	t.Helper()
	port, err := testserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	cmd := g.command(root, "daemon", "--export-all", "--enable=receive-pack", "--reuseaddr", "--informative-errors",
		"--base-path="+root, "--listen=127.0.0.1", fmt.Sprint("--port=", port))
	launch(t, cmd)
	address := fmt.Sprint("127.0.0.1:", port)
	eventually(t, "git daemon", func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err
	})
	return "git://" + address
}

// A child is a process that a test started.
type child struct {
	*exec.Cmd
	out   *buffer       // what it prints
	ended chan struct{} // closed when it has
}

// launch starts cmd, which is killed at the test's end with all that it started
// in its group, if it still runs then.
func launch(t testing.TB, cmd *exec.Cmd) *child {
	t.Helper()
	c := &child{Cmd: cmd, out: new(buffer), ended: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = c.out
	}
	cmd.Stderr = c.out
	cmd.WaitDelay = time.Second // orphans may hold on to its output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process, for which the cleanup waits
		defer close(c.ended)
		_ = cmd.Wait() // its exit status is in ProcessState
	}()
	t.Cleanup(func() {
		select {
		case <-c.ended: // its number may be another's by now
		default:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-c.ended
		}
	})
	return c
}

// kill kills the process and waits for its end.
func (c *child) kill() {
	_ = c.Process.Kill() // it may have ended already
	<-c.ended
}

// wait returns whether the process ended with success.
func (c *child) wait(t testing.TB) bool {
	t.Helper()
	select {
	case <-c.ended:
		return c.ProcessState.Success()
	case <-time.After(2 * patience):
		t.Fatalf("%s does not end; it says %s", c, c.out)
		return false
	}
}

// A buffer is what a process printed, for several readers and writers.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// executable reports whether there is such a program.
func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// client returns the git that pushes to that URL: g itself, unless it was built without HTTP.
func (g *git) client(t testing.TB, url string) *git {
	t.Helper()
	if !strings.HasPrefix(url, "http") || executable(filepath.Join(g.exec, "git-remote-http")) {
		return g
	}
	all, err := gits()
	for _, other := range must(t, all, err) {
		if executable(filepath.Join(other.exec, "git-remote-http")) {
			return other
		}
	}
	t.Fatal("no git that was found can push by HTTP (git-remote-http is missing): install Debian's git, or name one in GIT_FOR_TEST that was built with curl")
	return nil
}
