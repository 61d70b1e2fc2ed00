package site_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// A Gerrit that has its indexes open and no session is an alarm within a minute; one that has a session is not.
func TestAGerritWithoutTheGuardIsAnAlarm(t *testing.T) {
	t.Parallel()
	const minute = time.Minute - 10*time.Second // between two looks
	dir := t.TempDir()
	setting, at := exporting(t)
	g := newGuard(t, local.SQLite(t), "eu-1", "gerrit = "+dir, setting)
	index := filepath.Join(dir, "index/changes_0084/open/write.lock")

	promise := func(what, state string, pid int, after time.Duration) {
		t.Helper()
		g.looksAtGerrit(after)
		s := g.status()
		if s.Gerrit == nil || s.Gerrit.State != state || s.Gerrit.PID != pid || s.Gerrit.Path != dir {
			t.Errorf("%s: %+v, want it %s with process %d", what, s.Gerrit, state, pid)
		}
		alarm := state == client.GerritUnguarded
		if s.OK() == alarm {
			t.Errorf("%s: the status is OK: %v", what, s.OK())
		}
		want := map[bool]string{true: "refdb_site_gerrit_unguarded 1\n", false: "refdb_site_gerrit_unguarded 0\n"}[alarm]
		if _, text := get(t, at, "/metrics"); !strings.Contains(text, want) {
			t.Errorf("%s: no %q", what, want)
		}
	}
	logged := func() int { return strings.Count(g.log.String(), "Gerrit runs without the guard") }

	promise("no process has the indexes open", client.GerritStopped, 0, minute)
	pid, stop := sitetest.Lock(t, index)
	promise("a Gerrit that starts", client.GerritStarting, pid, 0)
	if logged() != 0 {
		t.Error("one that starts is logged")
	}
	promise("one that hangs while it starts", client.GerritStarting, pid, 10*minute)
	if logged() != 0 {
		t.Error("one that hangs is logged")
	}
	stop()
	pid, stop = sitetest.LockAndListen(t, index)
	promise("one that has just started", client.GerritStarting, pid, 0)
	promise("a Gerrit without a session", client.GerritUnguarded, pid, minute)
	g.looksAtGerrit(minute)
	if n := logged(); n != 1 {
		t.Errorf("it is logged %d times, not once", n)
	}
	stop()
	promise("it has ended", client.GerritStopped, 0, minute)

	for _, program := range []string{"reindex", "init"} {
		pid, stop := sitetest.Lock(t, index, "-jar", "/srv/gerrit/bin/gerrit.war", program, "-d", dir)
		promise("an offline program: "+program, client.GerritGuarded, pid, minute)
		stop()
	}
	pid, stop = sitetest.LockAndListen(t, index, "-jar", "/srv/gerrit/bin/gerrit.war", "daemon", "-d", dir)
	promise("the server, by its arguments", client.GerritUnguarded, pid, minute)
	stop()

	// The guard's process has both: the session and the indexes.
	j := g.jgitChild()
	j.child.Env = append(j.child.Env, relayLockVar+"="+index)
	j.session()
	promise("a Gerrit with a session", client.GerritGuarded, j.child.Process.Pid, minute)
	j.conn.Close()
	sitetest.Eventually(t, "its session has ended", func() bool { return g.status().Sessions[0].State == client.SessionBroken })
	promise("whose session has ended", client.GerritStarting, j.child.Process.Pid, 0)
	promise("which has not begun another", client.GerritUnguarded, j.child.Process.Pid, minute)
	if n := logged(); n != 3 {
		t.Errorf("alarms are logged %d times, not 3", n)
	}
}

// looksAtGerrit has the daemon look at the site's Gerrit, and again after some time.
func (g *guard) looksAtGerrit(after time.Duration) {
	g.tb.Helper()
	g.daemon.LookAtGerrit(g.tb.Context())
	g.clock.Advance(after)
	g.daemon.LookAtGerrit(g.tb.Context())
}

// Without site.gerrit nothing is looked at.
func TestWithoutAGerritNothingIsSaidOfIt(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	g.looksAtGerrit(time.Minute)
	if s := g.status(); s.Gerrit != nil || !s.OK() {
		t.Errorf("%+v", s)
	}
}
