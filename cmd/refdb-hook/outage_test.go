package main_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A push of many refs without a daemon is refused within the limit, not within the
// limit for each ref.
func TestAProcessOfGitWaitsOnceForADaemonThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	done := make(chan struct{})
	d := s.serveWith(func(int, net.Conn) { <-done })
	t.Cleanup(func() { close(done) })
	asked := func(want int, what string) {
		t.Helper()
		if n := len(d.requests()); n != want {
			t.Errorf("%s: the daemon was asked %d times, not %d", what, n, want)
		}
	}
	const says = "nothing within 2s"
	do := func(r *run, status int) {
		t.Helper()
		r.limit = "2s"
		r.do().is(status, says)
	}
	do(s.preReceive(lines), 1)
	asked(1, "at first")
	for range 3 {
		do(s.update("refs/heads/main", a, b), 1)
	}
	do(s.transaction("prepared", lines), 1)
	do(s.transaction("aborted", lines), 0)
	asked(1, "the same process, again")
	do(s.transaction("committed", lines), 0)
	asked(2, "what git has done is told all the same")

	// Another process has an outage of its own.
	other := exec.Command("sh", "-c", "hooks/update refs/heads/main "+a+" "+b+"; exit $?")
	other.Dir, other.Env = s.dir, []string{"GIT_DIR=.", "REFDB_HOOK_TIMEOUT=2s"}
	if out, err := other.CombinedOutput(); err == nil || !strings.Contains(string(out), says) {
		t.Errorf("another process: %v: %s", err, out)
	}
	asked(3, "another process")
	do(s.update("refs/heads/main", a, b), 1)
	asked(3, "the first one, still")

	// What is remembered of processes that have ended goes with the next outage.
	again := exec.Command("sh", "-c", "hooks/update refs/heads/main "+a+" "+b+"; exit $?")
	again.Dir, again.Env = s.dir, other.Env
	again.Run()
	left, err := filepath.Glob(s.path("refdb/outage.*"))
	if err != nil || len(left) != 2 {
		t.Errorf("%q are left, %v", left, err)
	}
}

func TestARememberedOutageIsThatOfOneProcess(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve("ok\n")
	// As left by another process that had this one's ID.
	self, err := filepath.EvalSymlinks("/proc/self")
	s.must(err)
	s.must(os.WriteFile(s.path("refdb/outage."+filepath.Base(self)), []byte("1\nlong ago"), 0o644))
	s.transaction("prepared", lines).do().is(0)
}
