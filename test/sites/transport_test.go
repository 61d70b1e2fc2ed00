//go:build linux

package sites

import (
	"fmt"
	"io"
	"math"
	"net"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	s := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(g.exec, "git-http-backend"),
		Dir:  root,
		Env: append([]string{
			"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1",
			"REMOTE_USER=tester", // who may push
		}, g.env...),
		Stderr: io.Discard,
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
	out   output        // what it prints
	ended chan struct{} // closed when it has
}

// launch starts cmd, which is killed at the test's end with all that it started
// in its group, if it still runs then.
func launch(t testing.TB, cmd *exec.Cmd) *child {
	t.Helper()
	c := &child{Cmd: cmd, out: newOutput(t), ended: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = c.out.file
	}
	cmd.Stderr = c.out.file
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

// An output is what a process prints. It is in a file: the end of a process does not wait for orphans that hold on to a pipe.
type output struct{ file *os.File }

func newOutput(t testing.TB) output {
	t.Helper()
	dir, err := work()
	file, err2 := os.CreateTemp(must(t, dir, err), "output")
	must(t, file, err2)
	t.Cleanup(func() { file.Close() })
	if err := os.Remove(file.Name()); err != nil {
		t.Fatal(err)
	}
	return output{file}
}

// String returns what was printed until now.
func (o output) String() string {
	text, err := io.ReadAll(io.NewSectionReader(o.file, 0, math.MaxInt64))
	if err != nil {
		return err.Error()
	}
	return string(text)
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
