package presence_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/presence"
)

// A daemon that was killed while it started a process leaves the lock to that process, until it executes its program.
func TestTheLockOfADaemonThatWasKilledIsWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	child, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(child.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { child.Close() })
	f, err := presence.LockState(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if other, err := presence.LockState(dir); err == nil || !strings.Contains(err.Error(), "a site daemon runs already") {
		t.Errorf("beside a daemon: %v, %v", other, err)
	}
}
