package site_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// locks are git's lock files in the repository.
func (g *guard) locks() (found []string) {
	g.tb.Helper()
	for _, pattern := range []string{"*.lock", "refs/heads/*.lock", "reftable/*.lock"} {
		more, err := filepath.Glob(filepath.Join(g.repo, pattern))
		if err != nil {
			g.tb.Fatal(err)
		}
		found = append(found, more...)
	}
	return found
}

// What a git that was killed leaves goes by itself, and the next push comes through.
func TestTheLockFilesOfAPushThatWasKilledGoByThemselves(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"update", "deletion", "of the branch that HEAD is at"} {
		for _, daemon := range []string{"watches", "is restarted before", "starts later"} {
			t.Run(kind+", the daemon "+daemon, func(t *testing.T) {
				t.Parallel()
				g := newGuard(t, local.SQLite(t), "eu-1")
				ref, to := "refs/heads/x", g.commit[1]
				switch kind {
				case "deletion":
					to = zero
				case "of the branch that HEAD is at":
					ref = g.git("symbolic-ref", "HEAD")
				}
				g.git("update-ref", ref, g.commit[0])
				s := g.session()
				if err := s.prepare("update " + ref + " " + to + " " + g.commit[0]); err != nil {
					t.Fatal(err)
				}
				if daemon != "watches" {
					g.halt()
				}
				if daemon == "is restarted before" {
					g.start()
				}
				if len(g.locks()) == 0 {
					t.Fatal("git has no lock file")
				}
				s.kill()
				if daemon == "starts later" {
					g.start()
				}
				sitetest.Eventually(t, "the lock files are gone", func() bool { return len(g.locks()) == 0 })
				g.resolved()
				g.git("update-ref", ref, g.commit[2], g.commit[0])
				g.has(ref, g.commit[2], g.commit[2])
			})
		}
	}
}

// Nor does what the site's own git leaves stay, which moved a ref to the database's value.
func TestTheLockFilesOfAFollowersGitThatWasKilledGoByThemselves(t *testing.T) {
	t.Parallel()
	for _, daemon := range []string{"goes on", "is killed before", "is killed, too"} {
		t.Run("the daemon "+daemon, func(t *testing.T) {
			t.Parallel()
			g := sessionTest(t)
			a, b := g.commit[0], g.commit[1]
			g.set(x, a)
			if _, err := g.db.Put(t.Context(), "team/app", x, refdb.Value(b)); err != nil {
				t.Fatal(err)
			}
			git := g.stall(x)
			if daemon == "goes on" {
				g.catchesUp(x)
			} else {
				g.halt()
				g.earlierRecords(moves.Entry{Ref: x, Dir: g.repo})
				g.earlierMoves(gitrepo.Move{Ref: x, From: a, To: b})
			}
			git.waits()
			if daemon == "is killed before" {
				g.start()
			}
			git.kill()
			if daemon == "is killed, too" {
				g.start()
			}
			sitetest.Eventually(t, "the lock files are gone", func() bool { return len(g.locks()) == 0 })
			sitetest.Eventually(t, "the ref follows", func() bool { return strings.HasPrefix(g.catchUp(x), "result updated ") })
			g.has(x, b, b)
		})
	}
}

// While another git runs that may have made it, a lock file stays.
func TestALockFileThatARunningGitMayHaveMadeStays(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	other := g.session()
	other.must("start")
	s := g.session()
	if err := s.prepare("create refs/heads/x " + g.commit[0]); err != nil {
		t.Fatal(err)
	}
	s.kill()
	g.resolved()
	time.Sleep(300 * time.Millisecond) // several looks; if the daemon is slower this test sees less
	path := filepath.Join(g.repo, "refs/heads/x.lock")
	if !there(path) {
		t.Error("it is gone")
	}
	// One that is not the dead one's stays for good.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	g.lock("refs/heads/x.lock")
	other.close()
	time.Sleep(300 * time.Millisecond) // as before
	if !there(path) {
		t.Error("another's is gone")
	}
}

// An operator has decided about a push that was killed: git can't move its ref before the lock files are gone.
func TestADecisionWaitsForTheLockFilesOfAPushThatWasKilled(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	s := g.session()
	if err := s.prepare("create refs/heads/x " + g.commit[0]); err != nil {
		t.Fatal(err)
	}
	g.halt()
	other := g.session()
	other.must("start")
	s.kill()
	g.decide("refs/heads/x", driver.TakeNew)
	g.start()
	g.reconciled()
	if n := g.decided(); n != 1 || len(g.locks()) == 0 {
		t.Errorf("%d decisions are not heeded, and %q stand, while another git runs that may have made them", n, g.locks())
	}
	other.close()
	sitetest.Eventually(t, "the decision is heeded", func() bool { return g.decided() == 0 })
	g.has("refs/heads/x", g.commit[0], g.commit[0])
	if left := g.locks(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// It waits for those of a guard, too, also where the ref already has the value: until then nobody else may make a move there.
func TestADecisionWaitsForTheLockFilesOfAGuardThatWasKilled(t *testing.T) {
	t.Parallel()
	for _, decision := range []driver.Decision{driver.KeepOld, driver.TakeNew} {
		t.Run(string(decision), func(t *testing.T) {
			t.Parallel()
			g := sessionTest(t, "\tlockWait = 100ms")
			a, b := g.commit[0], g.commit[1]
			g.set(x, a)
			j, other := g.jgitChild().session(), g.jgit().session()
			j.granted(line(x, a, b))
			g.halt()
			git := g.session()
			git.must("start")
			lock := g.lock("refs/heads/x.lock")
			j.kill()
			g.decide(x, decision)
			g.start()
			other.session()
			g.reconciled()
			g.reconciled()
			if n := g.decided(); n != 1 || !there(lock) {
				t.Errorf("%d decisions are not heeded, the lock file is there: %v, while a git runs that may have made it", n, there(lock))
			}
			if s := g.status(); s.Counters.Alarms != 0 {
				t.Errorf("git was let fail at the lock file: %+v", s.Stuck)
			}
			if m := other.answer(other.announce(line("refs/heads/y", "", a))); m != (refusedAs{"retry", "locked"}) {
				t.Errorf("another session, meanwhile: %+v", m)
			}
			git.close()
			sitetest.Eventually(t, "the decision is heeded", func() bool { return g.decided() == 0 })
			want := a
			if decision == driver.TakeNew {
				want = b
			}
			g.has(x, want, want)
			if there(lock) {
				t.Error("the lock file is still there")
			}
		})
	}
}
