package site_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/audit"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// settlesAtOnce lets pushes go on right after a change of the project.
func settlesAtOnce(d *site.Daemon) { d.SetSettle(time.Nanosecond) }

// freeze freezes the project, as refdbctl does.
func (g *guard) freeze(reason string) driver.Project {
	g.tb.Helper()
	row, frozen, err := projects.Freeze(g.tb.Context(), g.db, g.project(), projects.Freezing{Reason: reason, By: "ann@host", Settle: time.Nanosecond})
	if err != nil || !frozen {
		g.tb.Fatal(frozen, err)
	}
	return row
}

func (g *guard) unfreeze() {
	g.tb.Helper()
	if _, err := projects.Unfreeze(g.tb.Context(), g.db, g.project()); err != nil {
		g.tb.Fatal(err)
	}
}

func TestAFrozenProjectRefusesPushesAtAllSitesAndSaysWhy(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	east, west := idleGuard(t, shared, "east"), idleGuard(t, shared, "west")
	for _, g := range []*guard{east, west} {
		g.limits = settlesAtOnce
		g.start()
	}
	knowFreezes(east, west)
	east.git("update-ref", "refs/heads/x", east.commit[0])
	west.git("update-ref", "refs/heads/y", west.commit[0])
	east.freeze("moves to another server")
	for _, g := range []*guard{east, west} {
		for _, args := range [][]string{
			{"update-ref", "refs/heads/new", g.commit[0]},
			{"update-ref", "refs/tags/new", g.commit[0]},
			{"push", "--quiet", g.repo, g.commit[1] + ":refs/heads/new"},
		} {
			sitetest.Contains(t, g.fails(args...), "the project is frozen: moves to another server (by ann@host since ")
		}
	}
	sitetest.Contains(t, east.fails("update-ref", "refs/heads/x", east.commit[1]), "the project is frozen")
	sitetest.Contains(t, east.fails("update-ref", "-d", "refs/heads/x"), "the project is frozen")
	if east.intents() != 0 {
		t.Error("an intent is left")
	}
	sitetest.Eventually(t, "the site has read the freeze", func() bool {
		known, ok := east.daemon.Project("team/app")
		return ok && known.Freeze != (refdb.Freeze{})
	})
	said, ok := east.client().push("c0:refs/heads/1", "c0:refs/heads/2", "c0:refs/heads/3")
	if n := strings.Count(said, "the project is frozen"); ok || n != 1 {
		t.Errorf("a push of three refs is told %d times: %s", n, said)
	}
	// Whatever moves no guarded ref goes on.
	east.git("pack-refs", "--all")
	east.git("update-ref", "refs/heads/x", east.commit[0])
	east.git("update-ref", "refs/peer/us/x", east.commit[1])
	if out := east.git("ls-remote", east.repo, "refs/heads/x"); !strings.HasPrefix(out, east.commit[0]) {
		t.Errorf("a reader sees %q", out)
	}
	// With another reason.
	west.freeze("still moving")
	sitetest.Eventually(t, "the pusher reads the new reason", func() bool {
		said, ok := west.tries("refs/heads/")
		return !ok && strings.Contains(said, "the project is frozen: still moving")
	})
	// A site that starts meanwhile.
	west.halt()
	west.start()
	sitetest.Contains(t, west.fails("update-ref", "refs/heads/z", west.commit[0]), "the project is frozen: still moving")
	east.unfreeze()
	for _, g := range []*guard{east, west} {
		sitetest.Eventually(t, "pushes go on", func() bool { _, ok := g.tries("refs/heads/"); return ok })
	}
	east.git("update-ref", "refs/heads/x", east.commit[1])
	east.has("refs/heads/x", east.commit[1], east.commit[1])
}

// knowFreezes waits until the sites have said that they know freezes.
func knowFreezes(sites ...*guard) {
	for _, g := range sites {
		g.tb.Helper()
		sitetest.Eventually(g.tb, g.name+" has said that it knows freezes", func() bool {
			all, err := presence.Abouts(g.tb.Context(), g.db)
			if err != nil {
				g.tb.Fatal(err)
			}
			return all[g.name].Freezes
		})
	}
}

// A site that has not heard of a freeze asks the database, which refuses.
func TestAFreezeThatASiteHasNotHeardOfRefuses(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	g := newGuard(t, shared, "eu-1")
	g.git("update-ref", "refs/heads/x", g.commit[0])
	// With the same revision it is no change that the daemon would read.
	shared.Exec(t, `UPDATE projects SET rules = ? || char(10) || rules`, `frozen {"reason":"unheard of"}`)
	sitetest.Contains(t, g.fails("update-ref", "refs/heads/x", g.commit[1]), "the project is frozen: unheard of")
	if n := g.status().Counters.Failures; n != 0 {
		t.Errorf("%d failures of the database are counted", n)
	}
	s := g.jgit().session()
	tx := s.announce(line("refs/heads/x", g.commit[0], g.commit[1]))
	if m := s.answer(tx); m != (refusedAs{wire.Final, string(refusal.Frozen)}) {
		t.Errorf("a guard hears %+v", m)
	}
	shared.Exec(t, `UPDATE projects SET rules = 'ref *'`)
	g.git("update-ref", "refs/heads/x", g.commit[1])
}

func TestAFreezeHoldsInModeLog(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	g := newGuard(t, shared, "eu-1")
	g.git("update-ref", "refs/heads/x", g.commit[0])
	if _, _, err := projects.Freeze(t.Context(), g.db, driver.Project{Project: "team/app", Mode: config.Log}, projects.Freezing{Reason: "r"}); err == nil || !strings.Contains(err.Error(), "mode log") {
		t.Errorf("a project in mode log: %v", err)
	}
	logs(g)
	shared.Exec(t, `UPDATE projects SET rules = ? || char(10) || rules`, `frozen {"reason":"by hand"}`)
	sitetest.Contains(t, g.fails("update-ref", "refs/heads/x", g.commit[1]), "the project is frozen: by hand")
}

// What was announced before a freeze ends as its repository says. Nothing is announced after it.
func TestPushesRaceWithAFreeze(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	sites := []*guard{newGuard(t, shared, "east"), newGuard(t, shared, "west")}
	var ready, pushing sync.WaitGroup
	frozen := make(chan struct{})
	for _, g := range sites {
		for worker := range 3 {
			ready.Add(1)
			pushing.Go(func() {
				started := sync.OnceFunc(ready.Done)
				defer started()
				for n, after := 0, false; ; n++ {
					select {
					case <-frozen:
						after = true
					default:
					}
					out, err := exec.Command("git", "--git-dir="+g.repo, "update-ref", fmt.Sprintf("refs/heads/%s-%d-%04d", g.name, worker, n), g.commit[0]).CombinedOutput()
					switch {
					case err == nil && after:
						t.Errorf("a push at %s was accepted after the freeze", g.name)
						return
					case err != nil:
						if !strings.Contains(string(out), "the project is frozen: a race") {
							t.Errorf("%s: %s", g.name, out)
						}
						return
					}
					started()
				}
			})
		}
	}
	ready.Wait()
	knowFreezes(sites...)
	sites[0].freeze("a race")
	close(frozen)
	accepted := map[string]bool{}
	for i, err := range sites[0].db.Intents().All(t.Context(), driver.IntentFilter{Project: "team/app"}) {
		if err != nil {
			t.Fatal(err)
		}
		accepted[i.Ref] = true
	}
	for ref, err := range sites[0].db.Refs(t.Context(), "team/app", "refs/heads/") {
		if err != nil {
			t.Fatal(err)
		}
		accepted[ref.Name] = true
	}
	pushing.Wait()
	for _, g := range sites {
		for ref := range strings.FieldsSeq(g.git("for-each-ref", "--format=%(refname)", "refs/heads/"+g.name+"-*")) {
			if !accepted[ref] {
				t.Errorf("%s was accepted after the freeze had returned", ref)
			}
		}
	}
	sitetest.Eventually(t, "what was announced has ended", func() bool { return sites[0].intents() == 0 })
}

// A copy that joins follows; HEAD that is changed at a site waits until the project is not frozen any more.
func TestSitesFollowAFrozenProjectAndJoinIt(t *testing.T) {
	t.Parallel()
	shared := sessionDatabase(t)
	g := idleGuard(t, shared, "eu-1", storesAll)
	g.limits = settlesAtOnce
	g.start()
	g.git("update-ref", x, g.commit[0])
	g.git("update-ref", y, g.commit[0])
	j := g.jgit().session()
	move := func(to string) {
		t.Helper()
		tx := j.granted(wire.Line{Old: "ref:" + strings.TrimSpace(g.git("symbolic-ref", "HEAD")), New: "ref:" + to, Ref: "HEAD"})
		g.git("symbolic-ref", "HEAD", to)
		j.report(tx)
	}
	move(x)
	sitetest.Eventually(t, "the database has HEAD", func() bool { return g.global("HEAD") == "ref: "+x })
	knowFreezes(g)
	g.freeze("joining")
	other := idleGuard(t, shared, "us-1", storesAll+"\n\tautoClone = true")
	other.limits = settlesAtOnce
	other.options = func(o *site.Options) { o.Hook = sitetest.Hook() }
	if err := os.RemoveAll(other.repo); err != nil {
		t.Fatal(err)
	}
	other.start()
	sitetest.Eventually(t, "the other site has joined", func() bool {
		return there(other.repo) && other.local(y) == g.commit[0] && strings.TrimSpace(other.git("symbolic-ref", "HEAD")) == x
	})
	sitetest.Contains(t, other.fails("update-ref", "-d", x), "the project is frozen: joining")
	move(y)
	g.reconciled()
	if got := g.global("HEAD"); got != "ref: "+x {
		t.Errorf("while the project is frozen the database has HEAD %q", got)
	}
	g.unfreeze()
	sitetest.Eventually(t, "the other site's HEAD follows", func() bool {
		g.reload()
		return strings.TrimSpace(other.git("symbolic-ref", "HEAD")) == y
	})
}

// countsFrozen counts the updates that a freeze refuses.
type countsFrozen struct {
	refdb.Driver
	n *atomic.Int64
}

func (c countsFrozen) Unwrap() refdb.Driver { return c.Driver }

func (c countsFrozen) Update(ctx context.Context, r driver.UpdateRequest) error {
	err := c.Driver.Update(ctx, r)
	if errors.Is(err, refdb.ErrFrozen) {
		c.n.Add(1)
	}
	return err
}

// HEAD that is changed at a site without a guard, as with a forge's button, does not make the site fall behind.
func TestHEADOfAFrozenProjectIsAnnouncedOnceItIsUnfrozen(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1", storesAll)
	var refused atomic.Int64
	g.driver = func(d refdb.Driver) refdb.Driver { return countsFrozen{d, &refused} }
	g.limits = settlesAtOnce
	g.start()
	g.git("update-ref", x, g.commit[0])
	g.git("update-ref", y, g.commit[0])
	head := func(to string) {
		t.Helper()
		g.git("symbolic-ref", "HEAD", to)
	}
	head(x)
	if _, err := g.db.Put(t.Context(), "team/app", "HEAD", refdb.Value("ref: "+x)); err != nil {
		t.Fatal(err)
	}
	sitetest.Eventually(t, "the site agrees with the database", func() bool {
		text, err := os.ReadFile(filepath.Join(g.repo, "refdb/head"))
		return err == nil && string(text) == "ref: "+x+"\n"
	})
	knowFreezes(g)
	g.freeze("as it is")
	head(y)
	sitetest.Eventually(t, "the freeze refuses the new HEAD", func() bool { return refused.Load() > 0 })
	if s := g.status(); len(s.Behind) != 0 {
		t.Errorf("behind: %+v", s.Behind)
	}
	g.unfreeze()
	sitetest.Eventually(t, "the database has the new HEAD", func() bool { return g.global("HEAD") == "ref: "+y })
}

// Gerrit may delete its copy of a frozen project. The project stays, and the audit has no attempt to remove it.
func TestAFrozenProjectOutlivesTheDeletionOfACopy(t *testing.T) {
	t.Parallel()
	for name, forgets := range map[string]bool{"the daemon knew the project": false, "the daemon did not know it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outlivesTheDeletionOfACopy(t, forgets)
		})
	}
}

func outlivesTheDeletionOfACopy(t *testing.T, forgets bool) {
	g := creating(t, sessionDatabase(t), "eu-1")
	g.limits = settlesAtOnce
	g.start()
	j := g.jgit().session()
	j.createdWhole("new/one")
	knowFreezes(g)
	row, _, err := projects.Freeze(t.Context(), g.db, g.projectRow("new/one"), projects.Freezing{Reason: "kept", Settle: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	sitetest.Eventually(t, "the site has read the freeze", func() bool {
		p, ok := g.daemon.Project("new/one")
		return ok && p.Revision == row.Revision
	})
	if m, is := j.deleted("new/one", g.delete("new/one")).(wire.Granted); !is {
		t.Fatalf("the daemon said %+v", m)
	}
	sitetest.Eventually(t, "the status says why the project stays", func() bool {
		b := g.status().Behind
		return len(b) == 1 && b[0].Project == "new/one" && strings.Contains(b[0].Reason, "is frozen: kept")
	})
	if forgets { // as one that has started without the database
		g.halt()
		file := filepath.Join(g.dir, "state/deletions")
		text, err := os.ReadFile(file)
		if err == nil {
			text = regexp.MustCompile(`"revision":\d+`).ReplaceAll(text, []byte(`"revision":0`))
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		g.start()
		sitetest.Eventually(t, "the status says again why the project stays", func() bool { g.reload(); return len(g.status().Behind) == 1 })
	}
	g.reconciled()
	for e, err := range g.db.Audit().All(t.Context(), audit.Filter{Project: "new/one"}) {
		t.Errorf("the audit has %+v, %v", e, err)
	}
	if _, err := projects.Unfreeze(t.Context(), g.db, row); err != nil {
		t.Fatal(err)
	}
	sitetest.Eventually(t, "the deletion is forgotten", func() bool { g.reload(); return g.noted("deletions") == 0 })
	if p := g.projectRow("new/one"); p.Mode != config.Enforce {
		t.Errorf("the project is %+v", p)
	}
}

// A frozen project is not removed, whoever deletes a repository of it.
func TestAFrozenProjectIsNotRemoved(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	g.git("update-ref", "refs/heads/x", g.commit[0])
	knowFreezes(g)
	row := g.freeze("kept")
	var frozen *refdb.FrozenError
	if _, marked, err := projects.Remove(t.Context(), g.db, row); !errors.As(err, &frozen) || marked {
		t.Errorf("removed: %v, %v", marked, err)
	}
	if got := g.project(); got != row && got.Revision != row.Revision || got.Freeze.Reason != "kept" {
		t.Errorf("%+v", got)
	}
	g.has("refs/heads/x", g.commit[0], g.commit[0])
	// A change of the rules keeps it frozen.
	next := g.setRules("ref refs/heads/*")
	if next.Freeze != row.Freeze {
		t.Errorf("after a change of the rules: %+v", next.Freeze)
	}
	if refusal.KindOf(refusal.NotPrepared("eu-1", &refdb.FrozenError{Freeze: row.Freeze})) != wire.Final {
		t.Error("a guard would try again")
	}
}
