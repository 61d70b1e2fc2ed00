//go:build linux

package sites

import (
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A site is gone in the middle of a push. The others can't move the push's ref until
// an operator decides what it holds. When the site comes back it follows the decision,
// whatever it has itself.
func TestARefOfASiteThatIsGoneWaitsForADecision(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a site that is gone for longer than stale-after; make test-all runs it")
	}
	for name, row := range map[string]struct {
		state    string // in which it goes
		decision string
		want     func(h *history) string
	}{
		"git had done nothing, keep the old value": {"prepared", "--keep-old", func(h *history) string { return h.a }},
		"git had done nothing, take the new value": {"prepared", "--take-new", func(h *history) string { return h.b }},
		"git had done it, keep the old value":      {"committed", "--keep-old", func(h *history) string { return h.a }},
		"git had done it, take the new value":      {"committed", "--take-new", func(h *history) string { return h.b }},
	} {
		t.Run(name, func(t *testing.T) {
			eachGit(t, func(t *testing.T, g *git) {
				c := newCluster(t, g, design{})
				c.eu.pushed(c.h.a + ":refs/heads/x")
				c.us.sync()
				c.loseEU(row.state)
				want := row.want(c.h)

				c.us.refusedInVain("at eu", "+"+c.h.c+":refs/heads/x")
				// Only a decision helps.
				for _, args := range [][]string{
					{"locks", "purge", project, "refs/heads/x", "--force", "--yes"},
					{"locks", "purge", "--owner", "eu", "--force", "--yes"},
					{"project", "remove", project, "--force", "--yes"},
					{"refs", "put", project, "refs/heads/x", c.h.c, "--old", c.h.a},
				} {
					out, err := c.us.run(args...)
					t.Logf("%q: %v: %s", args, err, out)
					if c.intents() != 1 {
						t.Fatalf("%q has ended the intent", args)
					}
				}
				c.us.refusedInVain("at eu", "+"+c.h.c+":refs/heads/x")
				c.us.pushed(c.h.a + ":refs/heads/free")

				c.us.must("locks", "resolve", project, "refs/heads/x", row.decision, "--reason", "the site has burnt down", "--force", "--yes")
				c.settled()
				if got := c.global(project)["refs/heads/x"]; got != want {
					t.Errorf("the database has %q, not %q", got, want)
				}

				// It comes back and follows the decision: it has the objects.
				unlockRefs(t, c.eu.repo(project))
				c.eu.start()
				eventually(t, "the decision to be heeded", func() error {
					if c.eu.refs(project)["refs/heads/x"] != want || c.decided() > 0 {
						return errPending
					}
					return nil
				})
				c.caughtUp()
				c.eu.pushed("+" + c.h.c + ":refs/heads/x")
				c.caughtUp()
			})
		})
	}
}

// The site returns when the others have gone on since.
func TestASiteThatReturnsTakesTheValueOfNowNotThatOfTheDecision(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		c := newCluster(t, g, design{})
		c.eu.pushed(c.h.a + ":refs/heads/x")
		c.us.sync()
		c.loseEU("committed")
		c.us.must("locks", "resolve", "--site", "eu", "--keep-old", "--reason", "the site has burnt down", "--force", "--yes")
		c.us.pushed("+" + c.h.c + ":refs/heads/x")
		unlockRefs(t, c.eu.repo(project))
		c.eu.start()
		// It lacks the object: it says so, and lets nobody push on its own value.
		c.eu.refused("", "+"+c.h.a+":refs/heads/x")
		c.eu.sync()
		eventually(t, "the decision to be heeded", func() error {
			if c.eu.refs(project)["refs/heads/x"] != c.h.c || c.decided() > 0 {
				return errPending
			}
			return nil
		})
		c.caughtUp()
	})
}

// loseEU kills eu, daemon and all, in the middle of a push of B to x, which held
// A, and leaves its intent.
func (c *cluster) loseEU(state string) {
	c.Helper()
	gate := gateIn(c, c.eu.repo(project), "reference-transaction")
	gate.shut(state)
	told := c.eu.startPush(c.h.b + ":refs/heads/x")
	hook := gate.waits(state)
	pack := parentOf(c, hook)
	if state == "prepared" {
		signal(c, pack, syscall.SIGSTOP)
		gate.open(state)
		gone(c, hook)
	}
	c.eu.kill()
	kill9(c, pack)
	if state == "committed" {
		kill9(c, hook)
		gate.open(state)
	}
	if p := told(); p.ok {
		c.Errorf("the client was told %+v", p)
	}
	if n := c.intents(); n != 1 {
		c.Fatalf("%d intents", n)
	}
}

// decided counts the decisions that are not carried out yet.
func (c *cluster) decided() (n int) {
	c.Helper()
	for _, err := range c.db.Intents().All(c.Context(), driver.IntentFilter{Decided: true}) {
		if err != nil {
			c.Fatal(err)
		}
		n++
	}
	return n
}
