//go:build linux

package sites

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

func TestAPlainRestartOfPostgreSQLNeedsNoCommandAndLosesNothing(t *testing.T) {
	often(t, func(t *testing.T, pause pausing) (time.Duration, int) {
		s := newPostgres(t)
		b := newBed(t, func(testing.TB) database { return s })
		var longest time.Duration
		for range 3 {
			b.pushes()
			pause(time.Second)
			s.again()
			began := time.Now()
			b.pushes()
			longest = max(longest, time.Since(began))
		}
		b.Logf("both sites acknowledged pushes again within %s", longest)
		for l, err := range b.db.Recovery().LostChanges(t.Context(), true) {
			b.Errorf("lost: %+v, %v", l, err)
		}
		b.finish()
		return 0, 0
	})
}

// again starts the server again, after a plain stop.
func (s *postgresServer) again() {
	s.t.Helper()
	if err := s.Stop(); err != nil {
		s.t.Fatal(err)
	}
	s.start()
}

// soon pushes until that succeeds.
func (s *server) soon(args ...string) {
	s.c.Helper()
	eventually(s.c, fmt.Sprintf("the push %q to %s", args, s.name), func() error {
		if p := s.push(args...); !p.ok {
			return errors.New(p.said)
		}
		return nil
	})
}

// notCompared waits until pushes are refused because another site has not compared the server.
func (s *server) notCompared(args ...string) {
	s.c.Helper()
	at := s.impatient(wire.DefaultLimit)
	eventually(s.c, "a refusal", func() error {
		p := at.push(args...)
		if p.ok {
			s.c.Fatalf("the push %q to %s was acknowledged", args, s.name)
		}
		if !strings.Contains(p.said, wire.DatabaseNotCompared) {
			return errors.New(p.said)
		}
		return nil
	})
}

// recoverRefused runs refdbctl recover, which must name what to do.
func (s *server) recoverRefused(texts ...string) {
	s.c.Helper()
	_, err := s.run("recover", "--reason", "test", "-y")
	if err == nil {
		s.c.Fatal("refdbctl recover did not wait")
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			s.c.Errorf("refdbctl recover does not say %q: %v", text, err)
		}
	}
}

// newRestartable starts two sites on a PostgreSQL of their own. Most tests that need such are left out by -short.
func newRestartable(t *testing.T) (*cluster, *postgresServer) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: two sites and a PostgreSQL of their own; make test-all runs it")
	}
	return startRestartable(t)
}

func startRestartable(t *testing.T) (*cluster, *postgresServer) {
	t.Helper()
	all, err := gits()
	g := must(t, all, err)[0]
	s := newPostgres(t)
	c := newCluster(t, g, design{database: func(testing.TB) database { return s }})
	c.eu.pushed(c.h.a+":refs/heads/x", c.h.a+":refs/heads/y")
	c.us.sync()
	return c, s
}

func TestARestartWaitsForASiteThatWasKilledAndNotForOneThatWasStopped(t *testing.T) {
	t.Parallel()
	c, s := newRestartable(t)
	c.us.stop()
	s.again()
	c.eu.soon(c.h.b + ":refs/heads/x")
	c.us.start()
	c.us.sync()
	c.us.soon(c.h.b + ":refs/heads/y")
	c.eu.sync()

	c.us.kill()
	s.again()
	c.eu.notCompared(c.h.a + ":refs/heads/new")
	c.eu.recoverRefused("us", "start the site's daemon", "--without us")
	c.eu.notCompared(c.h.a + ":refs/heads/new")
	// Either helps.
	c.us.start()
	c.eu.soon(c.h.a + ":refs/heads/new")

	c.us.kill()
	s.again()
	c.eu.notCompared(c.h.a + ":refs/heads/newer")
	t.Log(c.eu.must("recover", "--reason", "test", "--without", "us", "-y"))
	c.eu.soon(c.h.a + ":refs/heads/newer")
	c.us.start()
	c.us.sync()
	c.us.soon(c.h.a + ":refs/heads/newest")
	for l, err := range c.db.Recovery().LostChanges(t.Context(), true) {
		c.Errorf("lost: %+v, %v", l, err)
	}
	c.caughtUp()
	// It is waited for again.
	c.us.kill()
	s.again()
	c.eu.notCompared(c.h.b + ":refs/heads/new")
}

// The rewind takes along what one site alone knows, and that one is gone.
func TestASiteThatARecoveryWentWithoutListsWhatItKnowsBeforeItServes(t *testing.T) {
	for name, restarted := range map[string]bool{"its daemon": false, "a daemon that was started in what is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, s := newRestartable(t)
			s.copyFiles()
			c.eu.stop()
			if restarted {
				c.us.stop()
				c.us.start()
			}
			c.us.pushed(c.h.b+":refs/heads/x", c.h.a+":refs/heads/alone")
			c.us.kill()
			s.crash()
			s.putBack()
			s.start()
			c.eu.start()
			c.eu.notCompared(c.h.b + ":refs/heads/y")
			c.eu.recoverRefused("--without us")
			t.Log(c.eu.must("recover", "--reason", "test", "--without", "us", "-y"))
			c.eu.soon(c.h.b + ":refs/heads/y")
			c.eu.soon(c.h.c + ":refs/heads/x")

			if err := c.us.tryStart(); err != nil {
				t.Logf("the daemon of us does not start: %v", err)
				c.lateOnes()
				t.Log(c.us.must("site", "take-over", "--yes"))
				c.us.start()
			}
			c.lateOnes()
			// By what it has it must not serve.
			if p := c.us.impatient(wire.DefaultLimit).push("+" + c.h.a + ":refs/heads/x"); p.ok {
				t.Errorf("a push over a late change was acknowledged: %+v", p)
			}
			if status, err := c.us.status(); err != nil {
				t.Error(err)
			} else {
				t.Logf("status of us: OK %v, %+v", status.OK(), status)
			}
			t.Log(c.eu.must("recover", "--status"))
			c.us.sync()
			out, err := c.us.run("site", "check")
			t.Logf("site check at us: %v, %s", err, out)
			c.us.soon(c.h.a + ":refs/heads/z")
			sameRefs(t, "x at us", map[string]string{"x": c.us.refs(project)["refs/heads/x"]}, map[string]string{"x": c.h.c})
		})
	}
}

// lateOnes fails the test unless the changes that us alone knew are listed.
func (c *cluster) lateOnes() {
	c.Helper()
	eventually(c, "the late changes", func() error {
		late := map[string]bool{}
		for l, err := range c.db.Recovery().LostChanges(c.Context(), true) {
			if err != nil || l.Fate != driver.Late || l.Witness != "us" {
				return fmt.Errorf("%+v, %w", l, err)
			}
			late[l.Ref] = true
		}
		if !late["refs/heads/x"] || !late["refs/heads/alone"] {
			return fmt.Errorf("only %v", late)
		}
		return nil
	})
}
