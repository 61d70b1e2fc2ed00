package site_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Rules 1 and 18: what a guard that was killed has left is settled by the repository, after its lock files are gone.
func TestAGuardThatIsKilled(t *testing.T) {
	t.Parallel()
	for _, moved := range []string{"nothing", "one of two", "both"} {
		for _, daemon := range []string{"watches", "starts later", "is restarted before the death"} {
			t.Run("moved "+moved+", the daemon "+daemon, func(t *testing.T) {
				t.Parallel()
				g := sessionTest(t)
				a, b := g.commit[0], g.commit[1]
				g.set(x, a)
				g.set("refs/heads/y", a)
				j := g.jgitChild().session()
				moves := []wire.Line{line(x, a, b), line("refs/heads/y", a, b)}
				j.granted(moves...)
				if daemon != "watches" {
					g.halt()
				}
				if daemon == "is restarted before the death" {
					g.start()
					g.reconciled()
					if n := g.intents(); n != 2 {
						t.Fatalf("%d intents stand while the guard lives, want 2", n)
					}
				}
				want := map[string]string{x: a, "refs/heads/y": a}
				switch moved {
				case "one of two":
					j.move(moves[0])
					want[x] = b
				case "both":
					j.move(moves...)
					want[x], want["refs/heads/y"] = b, b
				}
				locks := []string{g.lock("refs/heads/x.lock"), g.lock("refs/heads/y.lock"), g.lock("packed-refs.lock")}
				j.kill()
				if daemon == "starts later" {
					g.start()
				}
				g.resolved()
				for _, path := range locks {
					if there(path) {
						t.Errorf("%s is still there", filepath.Base(path))
					}
				}
				for ref, value := range want {
					g.has(ref, value, value)
				}
				sitetest.Eventually(t, "the guard is forgotten", func() bool { return len(g.status().Sessions) == 0 })
				// Its successor goes on.
				next := g.jgitChild().session()
				move := line(x, want[x], g.commit[2])
				tx := next.granted(move)
				next.move(move)
				next.report(tx)
				g.has(x, g.commit[2], g.commit[2])
			})
		}
	}
}

// A guard that is killed while the database is asked has had no OK.
func TestAGuardThatIsKilledBeforeItsOK(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, sessionDatabase(t), "eu-1")
	hold := newHold()
	g.driver = hold.around
	g.start()
	j := g.jgitChild().session()
	hold.close()
	j.announce(line(x, "", g.commit[0]))
	hold.reached(t)
	j.kill()
	hold.open()
	<-hold.over // only from here on it can be left
	g.resolved()
	g.has(x, "", "")
	sitetest.Eventually(t, "the guard is forgotten", func() bool { return len(g.status().Sessions) == 0 })
}

// Rules 17 and 18: while a git runs in the repository, or a guard that lives has an intent there, the lock files of a dead one stay; and no
// session gets an OK there meanwhile.
func TestLockFilesOfADeadGuardStayWhileOthersMayHaveMadeThem(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"a git", "a guard"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			g := sessionTest(t, "\tlockWait = 200ms")
			a, b := g.commit[0], g.commit[1]
			g.set(x, a)
			g.set("refs/heads/y", a)
			dead, living := g.jgitChild().session(), g.jgit().session()
			dead.granted(line(x, a, b))
			var end func()
			if who == "a git" {
				s := g.session()
				s.must("start")
				end = s.close
			} else {
				tx := living.granted(line("refs/heads/y", a, b))
				end = func() { living.report(tx) }
			}
			lock := g.lock("packed-refs.lock")
			dead.kill()
			sitetest.Eventually(t, "the daemon sees the death", func() bool {
				for _, s := range g.status().Sessions {
					if s.State == client.SessionDead {
						return true
					}
				}
				return false
			})
			if m := living.answer(living.announce(line("refs/heads/z", "", a))); m != (refusedAs{"retry", "locked"}) {
				t.Errorf("beside a dead guard: %+v", m)
			}
			if !there(lock) {
				t.Error("the lock file is gone")
			}
			if n := len(g.agents()); n == 0 {
				t.Error("it was settled before")
			}
			end()
			g.resolved()
			if there(lock) {
				t.Error("the lock file is still there")
			}
			tx := living.granted(line("refs/heads/z", "", a))
			living.report(tx)
		})
	}
}

// Rule 17, after a restart: a guard that has begun no session yet may have what nobody has recorded.
func TestLockFilesStayUntilAllGuardsHaveBegunSessions(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a, b := g.commit[0], g.commit[1]
	g.set(x, a)
	dead, living := g.jgitChild().session(), g.jgit().session()
	dead.granted(line(x, a, b))
	tx := living.granted(line("refs/cache-automerge/aa/b", "", a)) // no intent
	g.halt()
	lock := g.lock("packed-refs.lock")
	dead.kill()
	g.start()
	g.reconciled()
	if !there(lock) || g.intents() != 1 {
		t.Error("the lock file is gone, or the dead guard's transaction is settled")
	}
	living.lists(tx, line("refs/cache-automerge/aa/b", "", a))
	living.session()
	g.reconciled()
	if !there(lock) || g.intents() != 1 {
		t.Error("the lock file is gone, or the dead guard's transaction is settled, while the other has its OK")
	}
	living.report(tx)
	g.resolved()
	if there(lock) {
		t.Error("the lock file is still there")
	}
}

// Rule 16: an operator's decision is a claim until its transaction has reported, and is then heeded.
func TestADecisionAboutATransactionOfASession(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		decision driver.Decision
		moved    bool
		end      string
		long     bool
	}{
		{"keep old, moved", driver.KeepOld, true, "report", false},
		{"keep old, not moved", driver.KeepOld, false, "report", true},
		{"take new, moved", driver.TakeNew, true, "report", true},
		{"take new, not moved", driver.TakeNew, false, "report", false},
		{"keep old, moved, on no list", driver.KeepOld, true, "list", true},
		{"take new, not moved, on no list", driver.TakeNew, false, "list", false},
		{"keep old, moved, after a restart", driver.KeepOld, true, "restart", false},
		{"take new, not moved, after a restart", driver.TakeNew, false, "restart", true},
		{"keep old, moved, the guard dies", driver.KeepOld, true, "death", false},
		{"take new, not moved, the guard dies", driver.TakeNew, false, "death", false},
		{"keep old, not moved, the guard dies", driver.KeepOld, false, "death", true},
		{"keep old, moved, the guard dies while no daemon runs", driver.KeepOld, true, "absence", false},
		{"take new, not moved, the guard dies while no daemon runs", driver.TakeNew, false, "absence", false},
		{"keep old, not moved, the guard dies while no daemon runs", driver.KeepOld, false, "absence", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.long {
				t.Skip("left out by -short: another decision at the same end, or the same after the other move; make test-all runs it")
			}
			t.Parallel()
			g := sessionTest(t, "\tlockWait = 100ms")
			a, b := g.commit[0], g.commit[1]
			g.set(x, a)
			j := g.jgitChild()
			if c.end == "list" {
				j = g.jgit()
			}
			j.session()
			other := g.jgit().session()
			move := line(x, a, b)
			tx := j.granted(move)
			g.decide(x, c.decision)
			g.reconciled()
			here := a
			if c.moved {
				j.move(move)
				here = b
			}
			if c.end == "restart" {
				g.halt()
				g.start()
				other.session()
				g.reconciled()
			}
			// The guard may still move it.
			if g.decided() != 1 || g.local(x) != here {
				t.Fatalf("the decision was heeded while the guard may move: %d, %s", g.decided(), g.local(x))
			}
			if m := other.answer(other.announce(line(x, here, g.commit[2]))); m != (refusedAs{"retry", "locked"}) {
				t.Errorf("another session: %+v", m)
			}
			lock := "" // that the guard leaves
			switch c.end {
			case "report":
				j.report(tx)
			case "list":
				j.session()
			case "absence":
				g.halt()
				lock = g.lock("refs/heads/x.lock")
				j.kill()
				g.start()
				other.session()
			default:
				lock = g.lock("refs/heads/x.lock")
				j.kill()
			}
			sitetest.Eventually(t, "the decision is heeded", func() bool { return g.decided() == 0 })
			want := a
			if c.decision == driver.TakeNew {
				want = b
			}
			g.has(x, want, want)
			if lock != "" && there(lock) {
				t.Error("its lock file is still there")
			}
			last := ""
			sitetest.Eventually(t, "the ref is free", func() bool {
				last = other.announce(line(x, want, g.commit[2]))
				return other.answer(last) == (wire.Granted{TX: last})
			})
			other.report(last)
		})
	}
}

// Rule 16: nobody has the ref between the report and the decision.
func TestADecisionIsAClaimUntilItIsHeeded(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a := g.commit[0]
	g.set(x, a)
	j, other := g.jgit().session(), g.jgitChild().session()
	tx := j.granted(line(x, a, g.commit[1]))
	g.decide(x, driver.KeepOld)
	j.report(tx)
	last := ""
	sitetest.Eventually(t, "the ref is free", func() bool {
		last = other.announce(line(x, a, g.commit[2]))
		return other.answer(last) == (wire.Granted{TX: last})
	})
	if n := g.decided(); n != 0 {
		t.Errorf("%d decisions are not heeded", n)
	}
	other.report(last)
}

// While somebody else has the ref in the database a decision about it can't be heeded. The daemon looks again, but not all the time.
func TestADecisionThatCanNotBeHeededYetIsLeftToTheNextReconciling(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a, b := g.commit[0], g.commit[1]
	g.set(x, a)
	j := g.jgitChild().session()
	j.granted(line(x, a, b))
	g.halt()
	j.kill()
	g.decide(x, driver.TakeNew)
	held, err := g.db.TryLock(t.Context(), "team/app", x)
	if err != nil {
		t.Fatal(err)
	}
	g.start()
	g.reconciled()
	before, began := g.status().Counters.Reconciled, time.Now()
	time.Sleep(500 * time.Millisecond) // without a pause between them there would be many
	n := g.status().Counters.Reconciled - before
	if took := time.Since(began); float64(n) > 3+took.Seconds() || g.decided() != 1 {
		t.Errorf("reconciled %d times in %s; %d decisions are not heeded", n, took, g.decided())
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.reconciled()
	if n := g.decided(); n != 0 {
		t.Errorf("%d decisions are not heeded", n)
	}
	g.has(x, b, b)
}

// A follower's move is claimed until its git has ended, even if the daemon is restarted in between
// (M9).
func TestASessionWaitsForTheFollowersGit(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			t.Parallel()
			g := sessionTest(t, "\tlockWait = 100ms")
			a, b := g.commit[0], g.commit[1]
			g.set(x, a)
			if _, err := g.db.Put(t.Context(), "team/app", x, refdb.Value(b)); err != nil {
				t.Fatal(err)
			}
			git := g.stall(x)
			if restart {
				g.halt()
				g.earlierMoves(gitrepo.Move{Ref: x, From: a, To: b})
				git.waits()
				g.start()
			} else {
				g.catchesUp(x)
				git.waits()
			}
			// Another site moves it back.
			if _, err := g.db.Put(t.Context(), "team/app", x, refdb.Value(a)); err != nil {
				t.Fatal(err)
			}
			j := g.jgit().session()
			want := refusedAs{"retry", "behind"}
			if restart {
				want.reason = "locked" // this daemon does not know which refs that git moves
			}
			if m := j.answer(j.announce(line(x, a, g.commit[2]))); m != want {
				t.Errorf("while the follower's git may move the ref: %+v", m)
			}
			git.kill()
			g.unlock()
			tx := ""
			sitetest.Eventually(t, "the git has ended", func() bool {
				tx = j.announce(line(x, a, g.commit[2]))
				return j.answer(tx) == (wire.Granted{TX: tx})
			})
			j.report(tx)
		})
	}
}

// A push has git's lock file when its hook asks, and waits for the follower's claim. If the
// follower's git did not give up, both would wait for each other.
func TestAPushAndTheFollowerDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a, b, c := g.commit[0], g.commit[1], g.commit[2]
	g.set(x, a)
	g.git("config", "core.filesRefLockTimeout", "-1") // for ever
	put := func(value string) {
		t.Helper()
		if _, err := g.db.Put(t.Context(), "team/app", x, refdb.Value(value)); err != nil {
			t.Fatal(err)
		}
	}
	put(b)
	git := g.stall(x)
	g.catchesUp(x)
	git.waits()
	push := g.session()
	prepared := make(chan error, 1)
	go func() { prepared <- push.prepare("update " + x + " " + c + " " + b) }() // it waits for the lock file
	git.end()
	if err := <-prepared; err != nil {
		t.Errorf("a push from what the follower has brought: %v", err)
	}
	if said := g.catchUp(x); !strings.HasPrefix(said, "result locked ") && !strings.HasPrefix(said, "result moved ") {
		t.Errorf("the follower, while a push is under way: %s", said)
	}
	push.must("commit")
	push.close()
	g.has(x, c, c)
}

// A git of an earlier daemon may move a ref to the value of a push whose outcome is not certain.
func TestAPushIsRefusedWhileAGitOfAnEarlierDaemonMovesRefs(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a, b, y := g.commit[0], g.commit[1], "refs/heads/y"
	g.set(x, a)
	git := g.stall(x)
	g.halt()
	g.earlierMoves(gitrepo.Move{Ref: x, From: a, To: b})
	git.waits()
	g.start()
	if said := g.fails("update-ref", y, a); !strings.Contains(said, "being moved to what the database holds") {
		t.Errorf("a push to the repository: %s", said)
	}
	git.kill()
	g.unlock()
	g.git("update-ref", y, a)
	g.has(y, a, a)
}

// A guard that lives and has work, but no session, is an alarm after a minute.
func TestAGuardThatIsSilent(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	j := g.jgit().session()
	j.granted(line(x, "", g.commit[0]))
	s := g.status()
	if len(s.Sessions) != 1 || s.Sessions[0].Name != "test 1" || s.Sessions[0].State != client.SessionOpen || s.Sessions[0].Open != 1 || s.Sessions[0].Number != 1 {
		t.Errorf("sessions %+v", s.Sessions)
	}
	j.conn.Close()
	sitetest.Eventually(t, "the session is seen to have broken", func() bool { return g.status().Sessions[0].State == client.SessionBroken })
	if s := g.status(); !s.OK() {
		t.Error("that is an alarm at once")
	}
	g.clock.Advance(2 * time.Minute)
	g.reconciled()
	if s := g.status(); s.OK() || s.Sessions[0].State != client.SessionSilent || s.Counters.Alarms != 1 {
		t.Errorf("after a minute: %+v", s)
	}
	sitetest.Contains(t, g.log.String(), "has had no session for a minute")
	j.session()
	if s := g.status(); !s.OK() {
		t.Errorf("with a session: %+v", s)
	}
}
