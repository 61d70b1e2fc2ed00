//go:build linux

package presence

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A daemon that was killed while it started a process leaves the lock to that process, until it executes its program.
func TestTheLockOfADaemonThatWasKilledIsWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	child, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(child.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	go func() {
		for opened(path) < 2 {
			time.Sleep(time.Millisecond)
		}
		child.Close()
	}()
	f, err := lockState(dir, 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if other, err := lockState(dir, time.Millisecond); err == nil || !strings.Contains(err.Error(), "a site daemon runs already") {
		t.Errorf("beside a daemon: %v, %v", other, err)
	}
}

// opened returns how often this process has a file open.
func opened(path string) (n int) {
	all, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range all {
		if to, err := os.Readlink(fd); err == nil && to == path {
			n++
		}
	}
	return n
}
