package site_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

const metaConfig = "refs/meta/config"

// creating returns a site whose daemon can put repositories under guard.
func creating(t *testing.T, shared *local.Database, name string, settings ...string) *guard {
	t.Helper()
	g := idleGuard(t, shared, name, append([]string{storesAll}, settings...)...)
	g.options = func(o *site.Options) { o.Hook = sitetest.Hook() }
	return g
}

func created(t *testing.T) *guard {
	t.Helper()
	g := creating(t, sessionDatabase(t), "eu-1")
	g.start()
	return g
}

func (g *guard) path(project string) string { return filepath.Join(g.dir, "git", project+".git") }

// projectRow returns the row of a project; the zero one if the database has none.
func (g *guard) projectRow(project string) driver.Project {
	g.tb.Helper()
	row, _, err := g.db.Projects().Get(g.tb.Context(), project)
	if err != nil {
		g.tb.Fatal(err)
	}
	return row
}

// create asks whether a repository may be made, and returns the name of the creation.
func (j *jgit) create(project string) (tx string) {
	j.g.tb.Helper()
	j.tx++
	tx = fmt.Sprintf("c%d", j.tx)
	j.say(wire.Create{TX: tx, Limit: sitetest.Patience, Dir: j.g.path(project)})
	return tx
}

// mayCreate asks, and has the OK.
func (j *jgit) mayCreate(project string) (tx string) {
	j.g.tb.Helper()
	tx = j.create(project)
	if m := j.hear(tx); m != (wire.Granted{TX: tx}) {
		j.g.tb.Fatalf("the daemon said %+v, want an OK", m)
	}
	return tx
}

// make makes a repository without refs, as JGit does, and returns a commit in it.
func (j *jgit) make(project string) (commit string) {
	j.g.tb.Helper()
	repo := j.g.path(project)
	sitetest.Run(j.g.tb, "", "git", "init", "--quiet", "--bare", repo)
	sitetest.Run(j.g.tb, "", "git", "--git-dir="+repo, "hash-object", "-t", "tree", "-w", "/dev/null")
	j.g.repo = repo
	return strings.TrimSpace(sitetest.Run(j.g.tb, "", "git", "--git-dir="+repo, "commit-tree", "-m", "x", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"))
}

// createdWhole creates a project with its first ref.
func (j *jgit) createdWhole(project string) {
	j.g.tb.Helper()
	tx := j.mayCreate(project)
	move := line(metaConfig, "", j.make(project))
	first := j.granted(move)
	j.move(move)
	j.report(first)
	j.report(tx)
}

// noted are the creations that a later daemon would know of.
func (g *guard) noted(file string) (n int) {
	g.tb.Helper()
	b, err := os.ReadFile(filepath.Join(g.dir, "state", file))
	if os.IsNotExist(err) {
		return 0
	}
	var all []any
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		g.tb.Fatal(err)
	}
	return len(all)
}

// nothingLeft waits until a creation that has failed has left nothing.
func (g *guard) nothingLeft(project string) {
	g.tb.Helper()
	sitetest.Eventually(g.tb, "nothing of the creation is left", func() bool {
		mode := g.projectRow(project).Mode
		return !there(g.path(project)) && (mode == "" || mode == config.Removed) && g.noted("creations") == 0
	})
	left, err := filepath.Glob(filepath.Join(filepath.Dir(g.path(project)), config.Unfinished+"*"))
	if err != nil || len(left) > 0 {
		g.tb.Errorf("%v is left, %v", left, err)
	}
}

// justRemoved has the removals of projects, by their rows, be so late that a test can't outlast the time in which their names can't be used again.
func (g *guard) justRemoved() {
	g.tb.Helper()
	g.shared.Exec(g.tb, `UPDATE projects SET time = time + ? WHERE mode = ?`, sitetest.Patience.Microseconds(), config.Removed)
}

func TestACreation(t *testing.T) {
	t.Parallel()
	g := created(t)
	j := g.jgit().session()
	tx := j.mayCreate("new/one")
	if row := g.projectRow("new/one"); row.Mode != config.Enforce || row.Store != config.StoreAll || g.noted("creations") != 1 {
		t.Errorf("after the OK: %+v, noted: %d", row, g.noted("creations"))
	}
	a := j.make("new/one")
	move := line(metaConfig, "", a)
	first := j.granted(move)
	if id := g.git("config", "refdb.projectid"); id != g.projectRow("new/one").ID {
		t.Errorf("the repository records %q", id)
	}
	j.move(move)
	j.report(first)
	j.report(tx)
	if !there(g.repo) || g.projectRow("new/one").Mode != config.Enforce || g.local(metaConfig) != a {
		t.Errorf("it is not complete: %+v", g.projectRow("new/one"))
	}
	if n := g.noted("creations"); n != 0 {
		t.Errorf("%d creations are noted", n)
	}
}

// A name that can't be used is refused before anything is made.
func TestWhatCannotBeCreated(t *testing.T) {
	t.Parallel()
	shared := sessionDatabase(t)
	g := creating(t, shared, "eu-1", "[guard]\n\tproject = ^(new|old|team|taken|going|refs|within).*")
	g.start()
	j := g.jgit().session()
	j.createdWhole("new/one")
	if err := os.MkdirAll(g.path("taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := g.db.Projects().Put(t.Context(), driver.Project{Project: "old/removed", ID: "x", Rules: "ref refs/*", Mode: config.Removed}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.db.Projects().Put(t.Context(), driver.Project{Project: "new/elsewhere", ID: "y", Rules: "ref refs/*", Mode: config.Enforce}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.db.Put(t.Context(), "refs/only", metaConfig, refdb.Value(g.commit[0])); err != nil {
		t.Fatal(err)
	}
	if _, err := g.db.Projects().Put(t.Context(), driver.Project{Project: "new/reserved", ID: "z", Rules: "ref refs/*", Mode: config.Enforce}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.db.Put(t.Context(), "new/elsewhere", metaConfig, refdb.Value(g.commit[0])); err != nil {
		t.Fatal(err)
	}
	g.justRemoved()
	under := j.mayCreate("going/on")
	for _, c := range []struct{ project, reason, says string }{
		{"new/one", "not_configured", "has a repository"},
		{"new/elsewhere", "exists", "the project new/elsewhere already exists, perhaps just created at another site"},
		{"new/reserved", "exists", "it has no refs: if the site that was creating it is lost, ask the administrator to free the name with `refdbctl project remove new/reserved`"},
		{"old/removed", "other", "has just been removed: nothing was changed, try again in"},
		{"refs/only", "exists", "the database has refs of refs/only, but no such project"},
		{"taken", "exists", g.path("taken") + " already exists: nothing was changed; ask the administrator to move it away"},
		{"going/on", "exists", "the project going/on is being created"},
		{"new/one.git/within", "not_configured", "can't be below"},
		{"within/../../out", "not_configured", "is not the path of a project below site.root"},
		{"new/RECLAIM.git", "not_configured", "can't be a path below site.root"},
	} {
		tx := j.create(c.project)
		m, is := j.hear(tx).(wire.Refused)
		if !is || m.Kind != wire.Final || m.Reason != c.reason || !strings.Contains(strings.Join(m.Lines, "\n"), c.says) {
			t.Errorf("%s: the daemon said %+v, want %q", c.project, m, c.says)
		}
	}
	sitetest.Eventually(t, "only the creation under way is noted", func() bool { return g.noted("creations") == 1 })
	// The one that no rule guards needs nothing of the database.
	j.report(j.mayCreate("unguarded"))
	if row := g.projectRow("unguarded"); row.Project != "" {
		t.Errorf("%+v", row)
	}
	j.report(under)
	g.nothingLeft("going/on")
}

// Of two sites that create a project at once one does, and the other is told.
func TestTwoSitesCreateAProjectAtOnce(t *testing.T) {
	t.Parallel()
	shared := sessionDatabase(t)
	eu, us := creating(t, shared, "eu-1"), creating(t, shared, "us-1")
	eu.start()
	us.start()
	for _, project := range []string{"new/a", "new/b", "new/c", "new/d", "new/e", "new/f"} {
		a, b := eu.jgit().session(), us.jgit().session()
		ta, tb := a.create(project), b.create(project)
		won := 0
		for _, m := range []any{a.answer(ta), b.answer(tb)} {
			switch m := m.(type) {
			case wire.Granted:
				won++
			case refusedAs:
				if m != (refusedAs{"final", "exists"}) {
					t.Errorf("%s: the daemon said %+v", project, m)
				}
			}
		}
		if won != 1 {
			t.Errorf("%s: %d sites may create it", project, won)
		}
		sitetest.Eventually(t, "one creation is noted", func() bool { return eu.noted("creations")+us.noted("creations") == 1 })
		a.report(ta)
		b.report(tb)
		eu.nothingLeft(project)
		us.nothingLeft(project)
	}
}

// A creation that has failed, or whose guard was killed, leaves neither a project nor a repository, wherever it was.
func TestACreationThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	steps := []string{"asked", "allowed", "half made", "made", "under guard", "announced", "locked"}
	for i, end := range []string{"reported", "killed", "killed with the daemon", "killed while the daemon is away"} {
		for k, step := range steps {
			if end == "reported" && (step == "announced" || step == "locked") {
				continue // the transaction is reported before
			}
			t.Run(end+" when "+step, func(t *testing.T) {
				if testing.Short() && (i+k)%3 > 0 {
					t.Skip("left out by -short: two of three steps of an end, and others of the next end; make test-all runs them")
				}
				t.Parallel()
				g := created(t)
				j := g.jgitChild().session()
				const project = "new/one"
				tx := ""
				if step == "asked" {
					tx = j.create(project)
				} else {
					tx = j.mayCreate(project)
				}
				switch step {
				case "half made":
					if err := os.MkdirAll(filepath.Join(g.path(project), "objects"), 0o755); err != nil {
						t.Fatal(err)
					}
				case "made", "under guard", "announced", "locked":
					a := j.make(project)
					if step == "made" {
						break
					}
					if step == "under guard" {
						j.report(j.granted(line("refs/cache-automerge/ab/cdef", "", a)))
						break
					}
					j.granted(line(metaConfig, "", a))
					if step == "locked" {
						if err := os.MkdirAll(filepath.Join(g.repo, "refs/meta"), 0o755); err != nil {
							t.Fatal(err)
						}
						g.lock("refs/meta/config.lock")
						g.lock("packed-refs.lock")
					}
				}
				switch end {
				case "reported":
					j.say(wire.Report{TX: tx})
					for {
						if _, is := j.hear(tx).(wire.Settled); is {
							break
						}
					}
				case "killed":
					j.kill()
				case "killed with the daemon":
					j.kill()
					g.halt()
					g.start()
				case "killed while the daemon is away":
					g.halt()
					j.kill()
					g.start()
				}
				if step == "announced" || step == "locked" {
					// Its objects are stored, and go once no site can store more of them.
					sitetest.Eventually(t, "its row is taken back", func() bool { return g.projectRow(project).Mode == config.Removed })
					g.shared.Exec(t, `UPDATE projects SET time = time - ?`, time.Hour.Microseconds())
					g.reload()
				}
				g.nothingLeft(project)
				if row := g.projectRow(project); step != "asked" && row.Mode != config.Removed {
					t.Errorf("%+v", row)
				}
				g.justRemoved()
				// The name can be used again.
				next := g.jgit().session()
				tx = next.create(project)
				if m, is := next.hear(tx).(wire.Refused); step != "asked" && (!is || !strings.Contains(m.Lines[0], "try again in")) {
					t.Errorf("at once: %+v", m)
				}
				if step == "asked" {
					return
				}
				g.halt()
				g.shared.Exec(t, `UPDATE projects SET time = time - ?`, time.Hour.Microseconds())
				g.start()
				next = g.jgit().session()
				next.createdWhole(project)
				if row := g.projectRow(project); row.Mode != config.Enforce || g.git("config", "refdb.projectid") != row.ID {
					t.Errorf("created again: %+v", row)
				}
			})
		}
	}
}

// A creation is complete once the repository has a ref, whatever becomes of its guard, and of the daemon.
func TestACreationWithARefIsComplete(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"the guard is killed before the report of the ref", "the guard is killed before the report of the creation", "the daemon is restarted", "the session broke"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			g := created(t)
			j := g.jgit().session()
			if strings.HasPrefix(end, "the guard") {
				j = g.jgitChild().session()
			}
			const project = "new/one"
			tx := j.mayCreate(project)
			a := j.make(project)
			move := line(metaConfig, "", a)
			first := j.granted(move)
			j.move(move)
			switch end {
			case "the guard is killed before the report of the ref":
				j.kill()
			case "the guard is killed before the report of the creation":
				j.report(first)
				j.kill()
			case "the daemon is restarted":
				g.halt()
				g.start()
				j.lists(first, move)
				j.session()
				j.report(first)
				j.report(tx)
			case "the session broke":
				j.report(first)
				j.session()
				j.report(tx)
			}
			sitetest.Eventually(t, "it is complete", func() bool { return g.noted("creations") == 0 && g.intents() == 0 })
			if v, err := g.db.Get(t.Context(), project, metaConfig); err != nil || v != refdb.Value(a) || g.local(metaConfig) != a {
				t.Errorf("the database has %s, %v, the repository %s, want %s", v, err, g.local(metaConfig), a)
			}
			if row := g.projectRow(project); row.Mode != config.Enforce {
				t.Errorf("%+v", row)
			}
		})
	}
}

// A guard that lives goes on with a creation after the daemon was restarted, or its session broke, before there is a ref.
func TestACreationGoesOnInALaterSession(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{true, false} {
		t.Run(fmt.Sprintf("daemon restarted %v", restart), func(t *testing.T) {
			t.Parallel()
			g := created(t)
			j := g.jgit().session()
			const project = "new/one"
			tx := j.mayCreate(project)
			a := j.make(project)
			id := g.projectRow(project).ID
			if restart {
				g.halt()
				g.start()
			}
			j.session()
			g.reconciled()
			if !there(g.repo) || g.noted("creations") != 1 {
				t.Fatal("the creation has not been waited for")
			}
			move := line(metaConfig, "", a)
			first := j.granted(move)
			j.move(move)
			j.report(first)
			j.report(tx)
			if row := g.projectRow(project); row.Mode != config.Enforce || row.ID != id || g.git("config", "refdb.projectid") != id || g.noted("creations") != 0 {
				t.Errorf("%+v, %d are noted", row, g.noted("creations"))
			}
		})
	}
}
