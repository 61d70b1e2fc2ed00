package site_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/pusher"
)

// repair repairs the site, whose daemon has ended, as `site repair` does.
func (g *guard) repair() (s client.Status) {
	g.tb.Helper()
	c, err := config.Load(g.tb.Context(), g.config)
	if err != nil {
		g.tb.Fatal(err)
	}
	db, err := refdb.New(g.shared.Open(g.tb), refdb.Options{Site: g.name})
	if err != nil {
		g.tb.Fatal(err)
	}
	defer db.Close()
	g.ageName()
	if s, err = site.PatientRepair(g.tb.Context(), c, db, sitetest.Patience); err != nil {
		g.tb.Fatal(err)
	}
	return s
}

// Without a daemon, `site repair` settles what a dead guard has left, and leaves alone what one has that lives.
func TestARepairSettlesWhatADeadGuardHasLeft(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	a, b := g.commit[0], g.commit[1]
	g.set(x, a)
	g.set("refs/heads/y", a)
	dies, lives := g.jgitChild().session(), g.jgitChild().session()
	dies.granted(line(x, a, b))
	dies.move(line(x, a, b))
	lives.granted(line("refs/heads/y", a, b))
	unrecorded := g.jgitChild().session() // its OK has left no intent
	unrecorded.granted(line("refs/cache-automerge/ab/cdef", "", b))
	g.halt()
	dies.kill()
	s := g.repair()
	if s.Counters.Updated != 1 {
		t.Errorf("repair: %+v", s.Counters)
	}
	if agents := g.agents(); len(agents) != 1 || !strings.Contains(agents[0], lives.id) {
		t.Errorf("intents of %v stand", agents)
	}
	noted, err := pusher.NotedGuards(filepath.Join(g.dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range []*jgit{lives, unrecorded} {
		if !slices.ContainsFunc(noted, func(g pusher.Guard) bool { return g.ID == j.id }) {
			t.Errorf("a guard that lives is noted no more: %v", noted)
		}
	}
}

// Decisions about what dead processes had announced are carried out, after their lock files are gone.
func TestARepairCarriesOutADecision(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"a git", "a guard"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			g := sessionTest(t)
			a, b := g.commit[0], g.commit[1]
			g.set(x, a)
			var end func()
			if who == "a git" {
				s := g.session()
				if err := s.prepare("update " + x + " " + b + " " + a); err != nil {
					t.Fatal(err)
				}
				end = s.kill
			} else {
				j := g.jgitChild().session()
				j.granted(line(x, a, b))
				g.lock("refs/heads/x.lock")
				end = j.kill
			}
			g.halt()
			end()
			g.decide(x, driver.TakeNew)
			if s := g.repair(); s.Counters.Heeded != 1 {
				t.Errorf("repair: %+v", s.Counters)
			}
			if n := g.decided(); n != 0 || len(g.locks()) > 0 {
				t.Errorf("%d decisions are not heeded, and %q are left", n, g.locks())
			}
			g.has(x, b, b)
		})
	}
}

// `site repair` settles without a daemon. What it settles is on the list as well.
func TestWhatARepairSettlesIsListed(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	m := g.reader()
	j := g.jgitChild().session()
	j.granted(line(x, "", g.commit[0]))
	j.move(line(x, "", g.commit[0]))
	g.halt()
	j.kill()
	g.repair()
	g.start()
	m.connect()
	m.lists(x)
}
