package sitetest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// lockerVar makes a test's program lock the file that it names, as Lucene does, until its standard input ends.
const lockerVar = "REFDB_TEST_LOCKER"

// listenerVar makes that program accept TCP connections, too.
const listenerVar = "REFDB_TEST_LISTENER"

// RunLocker is for TestMain: it does not return in a process that [Lock] has started.
func RunLocker() {
	path := os.Getenv(lockerVar)
	if path == "" {
		return
	}
	f := LockHere(path)
	defer f.Close()
	if os.Getenv(listenerVar) != "" {
		defer ListenHere().Close()
	}
	fmt.Println("locked")
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// ListenHere lets this process accept TCP connections until the listener is closed, as a Gerrit does
// that has started.
func ListenHere() net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return l
}

// LockHere lets this process hold a record lock on a file until it is closed.
func LockHere(path string) *os.File {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err == nil {
		err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return f
}

// LockAndListen is like [Lock], but the child also accepts TCP connections.
func LockAndListen(tb testing.TB, path string, args ...string) (pid int, release func()) {
	tb.Helper()
	return lock(tb, path, []string{listenerVar + "=1"}, args)
}

// Lock lets a child, a copy of the test's program with these arguments, hold a record lock on a file until the function that it returns is
// called.
func Lock(tb testing.TB, path string, args ...string) (pid int, release func()) {
	tb.Helper()
	return lock(tb, path, nil, args)
}

func lock(tb testing.TB, path string, env, args []string) (pid int, release func()) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(append(os.Environ(), lockerVar+"="+path), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	release = func() {
		in.Close()
		cmd.Wait()
	}
	tb.Cleanup(release)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		tb.Fatalf("the child has not locked %s: %q, %v", path, line, err)
	}
	return cmd.Process.Pid, release
}
