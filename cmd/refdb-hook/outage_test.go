package main_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A push of many refs without a daemon is refused within the limit, not within the
// limit for each ref.
func TestAProcessOfGitWaitsOnceForADaemonThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	within(t, 500*time.Millisecond, func(limit time.Duration) bool { return waitsOnce(t, limit) })
}

// waitsOnce returns false if a hook has not come so far as to ask the daemon within the limit.
func waitsOnce(t *testing.T, limit time.Duration) (came bool) {
	s := newSite(t)
	done := make(chan struct{})
	d := s.serveWith(func(int, net.Conn) { <-done })
	t.Cleanup(func() { close(done) })
	came = true
	asked := func(want int, what string) {
		t.Helper()
		n := len(d.requests())
		if came = came && n >= want; n > want {
			t.Errorf("%s: the daemon was asked %d times, not %d", what, n, want)
		}
	}
	says := "no answer within " + limit.String()
	do := func(r *run, status int) {
		t.Helper()
		r.limit = limit.String()
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
	other := exec.Command("sh", "-c", s.hook("update")+" refs/heads/main "+a+" "+b+"; exit $?")
	other.Dir, other.Env = s.dir, []string{"GIT_DIR=.", "REFDB_HOOK_TIMEOUT=" + limit.String()}
	if out, err := other.CombinedOutput(); err == nil || !strings.Contains(string(out), says) {
		t.Errorf("another process: %v: %s", err, out)
	}
	asked(3, "another process")
	do(s.update("refs/heads/main", a, b), 1)
	asked(3, "the first one, still")

	// What is remembered of processes that have ended goes with the next outage.
	again := exec.Command("sh", "-c", s.hook("update")+" refs/heads/main "+a+" "+b+"; exit $?")
	again.Dir, again.Env = s.dir, other.Env
	again.Run()
	left, err := filepath.Glob(s.path("refdb/outage.*"))
	if err != nil || len(left) != 2 {
		t.Errorf("%q are left, %v", left, err)
	}
	return came
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
