//go:build linux

package sites

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// lost returns the fate of the change of a ref.
func (c *cluster) lost(ref string) (found []driver.Fate) {
	c.Helper()
	for l, err := range c.db.Recovery().LostChanges(c.Context(), true) {
		if err != nil {
			c.Fatal(err)
		}
		if l.Ref == ref {
			found = append(found, l.Fate)
		}
	}
	return found
}

// isHalted waits until all sites have reported, and a site refuses a push.
func (c *cluster) isHalted(s *server) {
	c.Helper()
	at := s.impatient(wire.DefaultLimit)
	eventually(c, "the halt", func() error {
		p := at.push("+" + c.h.a + ":refs/heads/other")
		if p.ok {
			c.Fatal("a push was acknowledged")
		}
		return says(p, wire.DatabaseLost)
	})
	eventually(c, "all reports", func() error {
		a, err := c.db.Recovery().Admission(c.Context())
		if err == nil && (!a.Halted || len(a.Waiting()) > 0) {
			err = errPending
		}
		return err
	})
}

func says(p push, text string) error {
	if strings.Contains(p.remote(), text) {
		return nil
	}
	return errors.New(p.said)
}

// The rewind takes along the announcement of a push that git has not made yet. Nothing is admitted before that push has ended.
func TestAPushThatIsUnderWayWhenTheDatabaseGoesBackCountsIfGitMakesIt(t *testing.T) {
	for name, made := range map[string]bool{"made": true, "not made": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, s := newRestartable(t)
			gate := gateIn(t, c.eu.repo(project), "reference-transaction")
			s.copyFiles()
			gate.shut("prepared")
			told := c.eu.startPush(c.h.b + ":refs/heads/x")
			hook := gate.waits("prepared")
			pack := parentOf(t, hook)
			signal(t, pack, syscall.SIGSTOP) // decided, and git has done nothing yet
			gate.open("prepared")
			gone(t, hook)
			if n := c.intents(); n != 1 {
				t.Fatalf("%d intents", n)
			}
			s.crash()
			s.putBack()
			s.start()
			us := c.us.impatient(wire.DefaultLimit)
			eventually(c, "the halt", func() error {
				p := us.push(c.h.b + ":refs/heads/y")
				if p.ok {
					c.Fatal("a push was acknowledged")
				}
				return says(p, wire.DatabaseLost)
			})
			c.us.recoverRefused("eu")
			c.eu.reconfigure(brief)
			if made {
				signal(t, pack, syscall.SIGCONT)
				if p := told(); !p.ok {
					t.Errorf("the push under way: %+v", p)
				}
			} else {
				kill9(t, pack)
				if p := told(); p.ok {
					t.Errorf("the push under way: %+v", p)
				}
				unlockRefs(t, c.eu.repo(project))
			}
			eventually(c, "the daemon knows what became of it", func() error {
				if !strings.Contains(c.eu.daemon.out.String(), "what became of a push could not be recorded yet") {
					return errors.New("it does not say so")
				}
				return nil
			})
			c.eu.reconfigure("")
			c.isHalted(c.us)
			t.Log(c.us.must("recover", "--reason", "test", "-y"))
			want, fate := c.h.b, driver.Rewritten
			if !made {
				want, fate = c.h.a, driver.Dropped
			}
			if found := c.lost("refs/heads/x"); len(found) != 1 || found[0] != fate {
				t.Errorf("lost: %q", found)
			}
			if got := c.global(project)["refs/heads/x"]; got != want {
				t.Errorf("the database has %q", got)
			}
			c.eu.soon(c.h.a + ":refs/heads/other")
			c.caughtUp()
			c.us.soon("+" + c.h.c + ":refs/heads/x")
			c.caughtUp()
		})
	}
}

// After the first recovery the push's repository moves on, so that it can't tell any more what became of the push.
func TestAPushThatARecoveryWroteAgainIsWrittenAgainByTheNextOne(t *testing.T) {
	t.Parallel()
	c, s := newRestartable(t)
	gate := gateIn(t, c.eu.repo(project), "reference-transaction")
	s.copyFiles()
	gate.shut("prepared")
	told := c.eu.startPush(c.h.b + ":refs/heads/x")
	hook := gate.waits("prepared")
	pack := parentOf(t, hook)
	signal(t, pack, syscall.SIGSTOP) // decided, and git has done nothing yet
	gate.open("prepared")
	gone(t, hook)
	c.eu.reconfigure(brief)
	s.crash()
	signal(t, pack, syscall.SIGCONT)
	if p := told(); !p.ok {
		t.Errorf("the push under way: %+v", p)
	}
	c.eu.reconfigure("")
	for range 2 {
		s.putBackAndKeep()
		s.start()
		c.isHalted(c.eu)
		t.Log(c.eu.must("recover", "--reason", "test", "-y"))
		c.eu.soon("+" + c.h.c + ":refs/heads/x")
		s.crash()
	}
	s.start()
	c.settled()
	if got := c.global(project)["refs/heads/x"]; got != c.h.c {
		t.Errorf("the database has %q", got)
	}
	for l, err := range c.db.Recovery().LostChanges(t.Context(), true) {
		if err != nil || l.Fate != driver.Rewritten {
			t.Errorf("lost: %+v, %v", l, err)
		}
	}
	eventually(t, "a push to us", func() error {
		c.us.trySync()
		if p := c.us.push("+" + c.h.a + ":refs/heads/x"); !p.ok {
			return errors.New(p.said)
		}
		return nil
	})
}

// What starts the site's daemons and names them in the database goes back, too.
func TestDaemonsThatWereStartedInWhatIsLostServeAfterTheRecovery(t *testing.T) {
	t.Parallel()
	c, s := startRestartable(t)
	s.copyFiles()
	c.us.stop()
	c.us.start()
	c.eu.kill()
	c.eu.start()
	c.eu.pushed(c.h.b + ":refs/heads/x")
	s.crash()
	s.putBack()
	s.start()
	c.isHalted(c.us)
	for _, f := range []func(){c.us.kill, c.us.start, c.eu.stop, c.eu.start} {
		f()
	}
	c.isHalted(c.eu)
	t.Log(c.us.must("recover", "--reason", "test", "-y"))
	if got := c.global(project)["refs/heads/x"]; got != c.h.b {
		t.Errorf("the database has %q", got)
	}
	c.eu.soon(c.h.b + ":refs/heads/y")
	c.us.soon(c.h.a + ":refs/heads/other")
	c.caughtUp()
	for _, s := range []*server{c.eu, c.us} {
		s.stop()
		s.start()
		s.must("site", "check")
	}
	c.us.soon("+" + c.h.c + ":refs/heads/x")
}

// The database goes back to before it was recovered, and while it is halted.
func TestADatabaseThatGoesBackAgainIsRecoveredAgain(t *testing.T) {
	often(t, func(t *testing.T, pause pausing) (took time.Duration, early int) {
		s := newPostgres(t)
		b := newBed(t, func(testing.TB) database { return s })
		b.pushes()
		s.copyFiles()
		b.pushes()
		for again := range 3 {
			if again == 1 && !long() {
				continue
			}
			pause(time.Second)
			s.crash()
			b.rewind() // the last time, if there are three, while it is halted
			s.putBackAndKeep()
			s.start()
			took = max(took, b.halts())
			if again != 1 {
				early += b.recovers()
				b.pushes()
			}
		}
		b.finish()
		return took, early
	})
}
