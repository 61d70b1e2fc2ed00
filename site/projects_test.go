package site_test

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// Two sites whose configurations differ guard the same, or a tag could be accepted at both with different values.
func TestSitesGoByTheDatabasesRules(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	east := newGuard(t, shared, "east")
	west := newGuard(t, shared, "west", "[guard]\n\tref = refs/heads/*")
	east.git("update-ref", "refs/tags/v1", east.commit[0])
	sitetest.Contains(t, west.fails("update-ref", "refs/tags/v1", west.commit[1]), "this site is behind")
	east.has("refs/tags/v1", east.commit[0], east.commit[0])
	if v := west.local("refs/tags/v1"); v != "" {
		t.Errorf("the tag at the other site is %s", v)
	}
}

// A change keeps pushes out until no site goes by the rules from before.
func TestAChangeOfRulesKeepsPushesOut(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	g.limits = settlesLate
	g.start()
	g.git("update-ref", "refs/heads/x", g.commit[0])
	row, ok, err := g.db.Projects().Get(t.Context(), "team/app")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	row.Rules = "ref refs/heads/*"
	if _, err := g.db.Projects().Put(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	sitetest.Eventually(t, "pushes are refused", func() bool {
		return exec.Command("git", "--git-dir="+g.repo, "update-ref", "refs/heads/"+rand.Text(), g.commit[0]).Run() != nil
	})
	sitetest.Contains(t, g.fails("update-ref", "refs/heads/x", g.commit[1]), "the guard rules of team/app have just changed")
	// So are those of a daemon that starts meanwhile, and does not know what was before.
	g.halt()
	g.start()
	sitetest.Contains(t, g.fails("update-ref", "refs/tags/t", g.commit[1]), "the guard rules of team/app have just changed")
	// What no rules may guard goes on.
	g.git("update-ref", "refs/peer/us/x", g.commit[1])
}

// A repository that was moved or copied is of another project than its name says.
func TestARepositoryOfAnotherProjectIsRefused(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	g.git("update-ref", "refs/heads/x", g.commit[0])
	moved := filepath.Join(g.dir, "git/team/moved.git")
	if err := os.Rename(g.repo, moved); err != nil {
		t.Fatal(err)
	}
	g.repo = moved
	sitetest.Contains(t, g.fails("update-ref", "refs/heads/new", g.commit[1]), "this repository is not a copy of the project team/moved, but of team/app")
	c, err := config.Load(t.Context(), g.config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Repository("team/moved")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := projects.Register(t.Context(), c, g.db, r, projects.New); err == nil || !strings.Contains(err.Error(), "not a copy") {
		t.Errorf("register: %v", err)
	}
	for _, err := range g.db.Refs(t.Context(), "team/moved", "") {
		t.Errorf("the database has a ref of it: %v", err)
	}
}

func TestAnUnknownProjectWithRefsNeedsAWord(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	g.git("config", "--unset", "refdb.projectid")
	g.set("refs/heads/x", g.commit[0])
	c, err := config.Load(t.Context(), g.config)
	if err != nil {
		t.Fatal(err)
	}
	deeper := filepath.Join(g.dir, "git/deeper/team/app.git")
	if err := os.MkdirAll(filepath.Dir(deeper), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(g.repo, deeper); err != nil {
		t.Fatal(err)
	}
	r, err := c.Repository("deeper/team/app")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := projects.Register(t.Context(), c, g.db, r, projects.NoClaim); err == nil || !strings.Contains(err.Error(), "--new") {
		t.Errorf("without a word: %v", err)
	}
	if did, err := projects.Register(t.Context(), c, g.db, r, projects.New); err != nil || !strings.HasSuffix(did, "is new") {
		t.Errorf("with it: %q, %v", did, err)
	}
	if did, err := projects.Register(t.Context(), c, g.db, r, projects.NoClaim); err != nil || !strings.HasPrefix(did, "is ") {
		t.Errorf("again: %q, %v", did, err)
	}
}

// A repository that was guarded before there were projects records its own with the first push.
func TestARepositoryFromBeforeRecordsItsProject(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	g := idleGuard(t, shared, "eu-1")
	g.git("config", "--unset", "refdb.projectid")
	shared.Exec(t, `DELETE FROM projects`)
	shared.InsertRef(t, "team/app", "refs/heads/y", refdb.Value(g.commit[0]))
	g.start()
	g.git("update-ref", "refs/heads/x", g.commit[0])
	row, ok, err := g.db.Projects().Get(t.Context(), "team/app")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if got := strings.TrimSpace(g.git("config", "refdb.projectid")); got != row.ID {
		t.Errorf("it records %q, the project is %q", got, row.ID)
	}
}

// A site that is cut off may not have heard that its rules have changed.
func TestOldRulesEndWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1", "[guard]\n\tref = refs/heads/*")
	down := g.unplug()
	g.start()
	sitetest.Eventually(t, "what rules leave out goes on while they are young", func() bool {
		down.Store(false)
		_, before := g.tries("refs/tags/")
		down.Store(true)
		_, after := g.tries("refs/tags/")
		return before && after
	})
	sitetest.Eventually(t, "what rules leave out is refused", func() bool {
		g.clock.Advance(time.Hour)
		return exec.Command("git", "--git-dir="+g.repo, "update-ref", "refs/tags/"+rand.Text(), g.commit[0]).Run() != nil
	})
	sitetest.Contains(t, g.fails("update-ref", "refs/tags/late", g.commit[0]), "does not answer: nothing was changed")
	g.git("update-ref", "refs/peer/us/x", g.commit[0])
	down.Store(false)
	sitetest.Eventually(t, "it goes on", func() bool {
		return exec.Command("git", "--git-dir="+g.repo, "update-ref", "refs/tags/"+rand.Text(), g.commit[0]).Run() == nil
	})
}

const justChanged = "the guard rules of team/app have just changed"

// setRules changes the rules of team/app as an operator does.
func (g *guard) setRules(rules string) driver.Project {
	g.tb.Helper()
	row, ok, err := g.db.Projects().Get(g.tb.Context(), "team/app")
	if err == nil && ok {
		row.Rules = rules
		row, err = g.db.Projects().Put(g.tb.Context(), row)
	}
	if err != nil || !ok {
		g.tb.Fatal(ok, err)
	}
	return row
}

// tries makes a new ref, and returns what git says if it is refused.
func (g *guard) tries(prefix string) (said string, ok bool) {
	out, err := exec.Command("git", "--git-dir="+g.repo, "update-ref", prefix+rand.Text(), g.commit[0]).CombinedOutput()
	return string(out), err == nil
}

// settle is for how long changes of the rules keep pushes out where a test must not outlast that.
const settle = sitetest.Patience

// settlesLate lets changes of the rules keep pushes out for settle.
func settlesLate(d *site.Daemon) { d.SetSettle(settle) }

var secondsLeft = regexp.MustCompile(`push again in (\d+) seconds`)

// settles waits until pushes are refused for a change of the rules, for no longer than that takes.
func (g *guard) settles() {
	g.tb.Helper()
	sitetest.Eventually(g.tb, "pushes are refused", func() bool { _, ok := g.tries("refs/heads/"); return !ok })
	g.settling()
}

func (g *guard) settling() {
	g.tb.Helper()
	said, ok := g.tries("refs/heads/")
	if ok {
		g.tb.Fatal("a push is let through")
	}
	sitetest.Contains(g.tb, said, justChanged)
	if m := secondsLeft.FindStringSubmatch(said); m == nil {
		g.tb.Errorf("git says %q", said)
	} else if n, err := strconv.Atoi(m[1]); err != nil || n > int(settle.Seconds()) {
		g.tb.Errorf("pushes are refused for %d s: %v", n, err)
	}
}

// The database's clock may be set, and a commit may wait for a standby: neither lets a site go by new rules
// before the others have heard of them, or keeps pushes out for longer than that takes.
func TestAChangeSettlesWhateverTheDatabasesClockSays(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]time.Duration{"ahead": time.Hour, "a minute behind, as after a commit that waited": -time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := local.SQLite(t)
			g := idleGuard(t, shared, "eu-1")
			g.limits = settlesLate
			g.start()
			g.git("update-ref", "refs/heads/x", g.commit[0])
			shared.Exec(t, `UPDATE projects SET rules = 'ref refs/heads/*', revision = revision + 1, op = 'another', time = time + ?`, by.Microseconds())
			g.settles()
			g.halt()
			g.start()
			g.settling()
		})
	}
}

// After a restore from a backup, or a failover that lost the last changes, revisions are given again.
func TestADatabaseThatWasSetBackIsHeard(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	g := idleGuard(t, shared, "eu-1")
	g.limits = settlesLate
	g.start()
	before := g.setRules("ref refs/heads/*")
	lost := g.setRules("ref refs/tags/*")
	lost = g.setRules("ref refs/notes/*")
	g.settles()
	// Two changes are lost, and the next one has a revision that the daemon knows.
	shared.Exec(t, `UPDATE projects SET rules = ?, revision = ?, op = ?, time = time - 86400000000`, before.Rules, before.Revision, before.Op)
	again := g.setRules("refuse this")
	if again.Revision >= lost.Revision {
		t.Fatalf("revision %d follows %d", again.Revision, lost.Revision)
	}
	sitetest.Eventually(t, "the daemon has read the new rules", func() bool {
		said, _ := g.tries("refs/heads/")
		return strings.Contains(said, "refuse this")
	})
}

// A transaction may move refs that no rule guarded when the daemon looked. If the decision about its other refs takes
// longer than the other sites wait for (G4), the daemon looks again before it answers.
func TestRulesThatChangeDuringALongDecisionApplyToIt(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	g.setRules("ref refs/heads/*")
	asked, answer := make(chan struct{}), make(chan struct{})
	g.driver = func(d refdb.Driver) refdb.Driver { return &waiting{d, asked, answer} }
	g.limits = func(d *site.Daemon) {
		d.SetSettle(time.Nanosecond)
		d.SetRulesLook(0)
	}
	g.start()
	s := g.session()
	prepared := make(chan error, 1)
	go func() {
		prepared <- s.prepare("create refs/heads/x "+g.commit[0], "create refs/tags/x "+g.commit[0])
	}()
	<-asked
	g.setRules("ref refs/*")
	g.clock.Advance(time.Hour)
	close(answer)
	if err := <-prepared; err == nil || !strings.Contains(err.Error(), justChanged) {
		t.Errorf("it was let through by rules that are over: %v", err)
		s.kill()
		g.unlock()
	}
	sitetest.Eventually(t, "the intent is gone", func() bool { return g.intents() == 0 })
}
