package site_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/audit"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// deleted says that a repository was deleted, and returns the answer.
func (j *jgit) deleted(project, id string) any {
	j.g.tb.Helper()
	j.tx++
	tx := "d" + strings.Repeat("x", j.tx)
	j.say(wire.Deleted{TX: tx, Limit: sitetest.Patience, Dir: j.g.path(project), ID: id})
	return j.hear(tx)
}

// delete deletes a repository, as Gerrit's plugin does, and returns the ID that it recorded.
func (g *guard) delete(project string) (id string) {
	g.tb.Helper()
	id = sitetest.Run(g.tb, "", "git", "--git-dir="+g.path(project), "config", "refdb.projectid")
	// The daemon may be writing into it.
	if err := os.Rename(g.path(project), filepath.Join(g.tb.TempDir(), "deleted")); err != nil {
		g.tb.Fatal(err)
	}
	return id
}

// removed waits until a project is removed, with all that the database had of it.
func (g *guard) removed(project string) {
	g.tb.Helper()
	sitetest.Eventually(g.tb, "the project is removed", func() bool {
		if g.projectRow(project).Mode != config.Removed || g.noted("deletions") != 0 {
			return false
		}
		for _, err := range g.db.Refs(g.tb.Context(), project, "refs/") {
			if err != nil {
				g.tb.Fatal(err)
			}
			return false
		}
		return true
	})
}

// A project that was deleted at one site is removed, and goes aside at the others; its name can be used again.
func TestADeletedProjectIsRemoved(t *testing.T) {
	t.Parallel()
	shared := sessionDatabase(t)
	g := creating(t, shared, "eu-1")
	g.start()
	other := creating(t, shared, "us-1", "\tautoClone = true")
	aside := filepath.Join(other.dir, "removed")
	if err := os.Mkdir(aside, 0o755); err != nil {
		t.Fatal(err)
	}
	other.followsRemovals(aside)
	other.start()
	j := g.jgit().session()
	j.createdWhole("new/one")
	sitetest.Eventually(t, "the other site has it", func() bool { return there(filepath.Join(other.path("new/one"), "refdb", "socket")) })

	id := g.delete("new/one")
	if m, is := j.deleted("new/one", id).(wire.Granted); !is {
		t.Fatalf("the daemon said %+v", m)
	}
	g.removed("new/one")
	g.justRemoved()
	tx := j.create("new/one")
	if m, is := j.hear(tx).(wire.Refused); !is || !strings.Contains(m.Lines[0], "has just been removed: nothing was changed, try again in") {
		t.Errorf("created again at once: %+v", m)
	}
	audited := false
	for e, err := range g.db.Audit().All(t.Context(), audit.Filter{Project: "new/one"}) {
		audited = err == nil && e.Action == "project remove" && e.Reason == "its repository was deleted at eu-1" && e.Outcome == "done"
	}
	if !audited {
		t.Error("the audit does not have it")
	}
	// Neither site has an alarm, nor clones it.
	for _, one := range []*guard{g, other} {
		one.daemon.LookForVanished(time.Now().Add(time.Hour))
		if n := one.status().Counters.Alarms; n != 0 {
			t.Errorf("%s has %d alarms", one.name, n)
		}
	}
	g.shared.Exec(t, `UPDATE projects SET time = time - ?`, time.Hour.Microseconds())
	other.halt()
	other.start()
	sitetest.Eventually(t, "it goes aside", func() bool {
		found, err := filepath.Glob(filepath.Join(aside, "refdb-removed-*Z/new/one.git/HEAD"))
		return err == nil && len(found) == 1 && !there(other.path("new/one"))
	})
	g.halt()
	g.start()
	j = g.jgit().session()
	j.createdWhole("new/one")
	if row := g.projectRow("new/one"); row.Mode != config.Enforce || row.ID == id {
		t.Errorf("created again: %+v", row)
	}
	sitetest.Eventually(t, "the other site has it again", func() bool { return there(filepath.Join(other.path("new/one"), "refdb", "socket")) })
}

// heldRow lets a test keep the daemon from the row of project new/one, and so from removing that.
type heldRow struct {
	refdb.Driver
	held *atomic.Pointer[chan struct{}]
}

func (d *heldRow) Unwrap() refdb.Driver { return d.Driver }

func (d *heldRow) Projects(ctx context.Context, q driver.ProjectQuery) ([]driver.Project, error) {
	if held := d.held.Load(); held != nil && q.Project == "new/one" {
		select {
		case <-*held:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return d.Driver.Projects(ctx, q)
}

// createdToHold is created, with a daemon that can be kept from removing project new/one.
func createdToHold(t *testing.T) (g *guard, hold func() (release func())) {
	t.Helper()
	g = creating(t, sessionDatabase(t), "eu-1")
	var held atomic.Pointer[chan struct{}]
	g.driver = func(d refdb.Driver) refdb.Driver { return &heldRow{d, &held} }
	g.start()
	return g, func() (release func()) {
		c := make(chan struct{})
		held.Store(&c)
		return func() {
			held.Store(nil)
			close(c)
		}
	}
}

// What a guard says is looked at: nothing is removed that was not deleted, or is another project.
func TestADeletionThatIsNone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		id      string // "" for the right one
		prepare func(*guard)
		want    any
	}{
		{"the repository is there", "", func(*guard) {}, refusedAs{"final", "not_configured"}},
		{"half of it is there", "", func(g *guard) {
			if err := os.Remove(filepath.Join(g.path("new/one"), "HEAD")); err != nil {
				g.tb.Fatal(err)
			}
		}, refusedAs{"final", "not_configured"}},
		{"of an earlier project", "earlier", func(g *guard) { g.delete("new/one") }, wire.Granted{}},
		{"the repository is back before the database knows", "", func(g *guard) {
			if err := os.Rename(g.path("new/one"), filepath.Join(g.dir, "away")); err != nil {
				g.tb.Fatal(err)
			}
		}, wire.Granted{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g, hold := createdToHold(t)
			j := g.jgit().session()
			j.createdWhole("new/one")
			row := g.projectRow("new/one")
			c.prepare(g)
			if c.id == "" {
				c.id = row.ID
			}
			// It is back, but not before the daemon has answered.
			release := hold()
			var got any
			switch m := j.deleted("new/one", c.id).(type) {
			case wire.Granted:
				got = wire.Granted{}
			case wire.Refused:
				got = refusedAs{m.Kind, m.Reason}
			}
			if got != c.want {
				t.Errorf("the daemon said %+v, want %+v", got, c.want)
			}
			os.Rename(filepath.Join(g.dir, "away"), g.path("new/one"))
			release()
			sitetest.Eventually(t, "nothing is noted", func() bool { return g.noted("deletions") == 0 })
			if now := g.projectRow("new/one"); now.Revision != row.Revision {
				t.Errorf("the project was changed: %+v", now)
			}
		})
	}
}

// A deletion outlives the daemon that was told, and a database that is away.
func TestADeletionIsCompletedByALaterDaemon(t *testing.T) {
	t.Parallel()
	g, hold := createdToHold(t)
	j := g.jgit().session()
	j.createdWhole("new/one")
	id := g.delete("new/one")
	release := hold() // as if it were killed there
	if m, is := j.deleted("new/one", id).(wire.Granted); !is {
		t.Fatalf("the daemon said %+v", m)
	}
	if row := g.projectRow("new/one"); row.Mode != config.Enforce || g.noted("deletions") != 1 {
		t.Errorf("%+v, %d are noted", row, g.noted("deletions"))
	}
	g.halt()
	release()
	if row := g.projectRow("new/one"); row.Mode != config.Enforce {
		t.Fatalf("%+v", row)
	}
	g.start()
	g.removed("new/one")
}

// A removal that could not end for a while must not take a project along that somebody has brought back meanwhile.
func TestAProjectThatHasChangedSinceItsDeletionStays(t *testing.T) {
	t.Parallel()
	g, hold := createdToHold(t)
	j := g.jgit().session()
	j.createdWhole("new/one")
	id := g.delete("new/one")
	release := hold()
	if m, is := j.deleted("new/one", id).(wire.Granted); !is {
		t.Fatalf("the daemon said %+v", m)
	}
	row, err := g.db.Projects().Put(t.Context(), g.projectRow("new/one"))
	if err != nil {
		t.Fatal(err)
	}
	release()
	sitetest.Eventually(t, "nothing is noted", func() bool { return g.noted("deletions") == 0 })
	if now := g.projectRow("new/one"); now.Mode != config.Enforce || now.Revision != row.Revision {
		t.Errorf("the project was changed: %+v", now)
	}
}

// A repository that is gone, and nobody said why, is an alarm, and nothing else: it is neither cloned again nor removed.
func TestARepositoryThatVanishesIsAnAlarm(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		for _, autoClone := range []string{"", "\tautoClone = true"} {
			t.Run(fmt.Sprintf("clones by itself %v, restarted %v", autoClone != "", restart), func(t *testing.T) {
				t.Parallel()
				g := creating(t, sessionDatabase(t), "eu-1", autoClone)
				g.start()
				j := g.jgit().session()
				j.createdWhole("new/one")
				row := g.projectRow("new/one")
				now := time.Now() // the daemon looks by itself, too, but not before
				id := g.delete("new/one")
				if restart {
					g.halt()
					g.start()
				}
				g.daemon.LookForVanished(now)
				g.daemon.LookForVanished(now.Add(59 * time.Second))
				if n := g.status().Counters.Alarms; n != 0 {
					t.Errorf("%d alarms while it may be being deleted", n)
				}
				for range 2 {
					g.daemon.LookForVanished(now.Add(time.Hour))
				}
				s := g.status()
				if s.Counters.Alarms != 1 || len(s.Behind) != 1 || !strings.Contains(s.Behind[0].Reason, "it was here and is missing") {
					t.Errorf("%+v", s)
				}
				if autoClone != "" {
					if err := g.daemon.CloneNow(t.Context(), "new/one"); err == nil || !strings.Contains(err.Error(), "project remove new/one") {
						t.Errorf("cloning it again: %v", err)
					}
				}
				if there(g.path("new/one")) || g.projectRow("new/one").Revision != row.Revision {
					t.Error("it is there again, or the project was changed")
				}
				// A copy that is complete when it appears: the follower looks at any time.
				back := filepath.Join(t.TempDir(), "back")
				sitetest.GitIn(t, "/", "init", "--quiet", "--bare", back)
				sitetest.GitIn(t, back, "config", projects.IDKey, row.ID)
				own := filepath.Join(back, "refdb")
				if err := errors.Join(os.MkdirAll(own, 0o755), os.Symlink(filepath.Join(g.dir, "sock"), filepath.Join(own, "socket"))); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(back, g.path("new/one")); err != nil {
					t.Fatal(err)
				}
				if s := g.status(); len(s.Behind) != 0 {
					t.Errorf("it was brought back, and the status says %+v", s.Behind)
				}
				if err := os.Rename(g.path("new/one"), back); err != nil {
					t.Fatal(err)
				}
				// The guard says so after all.
				j = g.jgit().session()
				j.deleted("new/one", id)
				g.removed("new/one")
				g.daemon.LookForVanished(now.Add(2 * time.Hour))
				sitetest.Eventually(t, "the status has nothing of it", func() bool {
					g.daemon.LookForVanished(now.Add(2 * time.Hour))
					return len(g.status().Behind) == 0
				})
			})
		}
	}
}

// A removal that can't end yet is tried again, is in the status, and in the audit once.
func TestADeletionThatCannotEndYet(t *testing.T) {
	t.Parallel()
	g := created(t)
	j := g.jgit().session()
	j.createdWhole("new/one")
	intent, err := g.db.Intents().Prepare(t.Context(), "new/one", []refdb.Update{{Ref: x, New: refdb.Value(g.commit[0])}}, "agent")
	if err != nil {
		t.Fatal(err)
	}
	if m, is := j.deleted("new/one", g.delete("new/one")).(wire.Granted); !is {
		t.Fatalf("the daemon said %+v", m)
	}
	sitetest.Eventually(t, "the status says why", func() bool {
		behind := g.status().Behind
		return len(behind) == 1 && strings.Contains(behind[0].Reason, "its repository was deleted here, and the project can't be removed yet: ")
	})
	g.reconciled()
	if row := g.projectRow("new/one"); row.Mode != config.Removed {
		t.Errorf("%+v", row)
	}
	if err := g.db.Intents().Finish(t.Context(), intent, nil, []string{x}); err != nil {
		t.Fatal(err)
	}
	g.reload()
	g.removed("new/one")
	entries := 0
	for _, err := range g.db.Audit().All(t.Context(), audit.Filter{Project: "new/one"}) {
		if entries++; err != nil {
			t.Fatal(err)
		}
	}
	if entries != 1 {
		t.Errorf("%d entries", entries)
	}
	sitetest.Eventually(t, "the status has nothing of it any more", func() bool { return len(g.status().Behind) == 0 })
}
