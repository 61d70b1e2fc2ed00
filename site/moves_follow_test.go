package site_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/moves"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/pusher"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// A follower's move is recorded before its git starts, and listed when the git has ended, not before,
// even if the daemon is restarted in between.
func TestWhatAFollowerMovesIsListedWhenItsGitHasEnded(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"commit", "kill", "kill after the move"} {
		for _, daemon := range []string{"goes on", "is killed before the end", "is killed, and starts after the end"} {
			t.Run(end+", the daemon "+daemon, func(t *testing.T) {
				t.Parallel()
				g := sessionTest(t)
				a, b := g.commit[0], g.commit[1]
				g.set(x, a)
				if _, err := g.db.Put(t.Context(), "team/app", x, refdb.Value(b)); err != nil {
					t.Fatal(err)
				}
				m := g.reader()
				git := g.stall(x)
				if daemon == "goes on" {
					g.catchesUp(x)
				} else {
					g.halt()
					g.earlierRecords(moves.Entry{Ref: x, Dir: g.repo})
					g.earlierMoves(gitrepo.Move{Ref: x, From: a, To: b})
				}
				git.waits()
				if daemon == "is killed before the end" {
					g.start()
					m.connect()
				}
				if daemon != "is killed, and starts after the end" {
					m.lists()
				}
				switch end {
				case "commit":
					git.end()
				case "kill":
					git.kill()
				default:
					g.loose(x, b)
					git.kill()
				}
				if daemon == "is killed, and starts after the end" {
					g.start()
					m.connect()
				}
				m.waits(x)
				g.unlock()
				m.lists()
			})
		}
	}
}

// earlierRecords records a move that is about to be made, as a daemon does that is killed then.
func (g *guard) earlierRecords(e moves.Entry) {
	g.tb.Helper()
	c, err := config.Load(g.tb.Context(), g.config)
	if err != nil {
		g.tb.Fatal(err)
	}
	boot, err := pusher.BootID()
	if err != nil {
		g.tb.Fatal(err)
	}
	list, _, err := moves.Open(moves.Dir(c.State), boot, c.Socket+".moves")
	if err == nil {
		_, err = list.Begin(e)
	}
	if err != nil {
		g.tb.Fatal(err)
	}
	list.Close()
}

// If the list is lost while a git of an earlier daemon's follower is under way, readers compare everything, and once more that repository when the
// git has ended.
func TestARepositoryIsListedInWhichAFollowerOfALostListMayMoveRefs(t *testing.T) {
	for name, find := range map[string]func(g *guard){
		"the next daemon finds it lost": func(*guard) {},
		"site repair finds it lost":     func(g *guard) { g.repair() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := sessionTest(t)
			a, b := g.commit[0], g.commit[1]
			g.set(x, a)
			if _, err := g.db.Put(t.Context(), "team/app", x, refdb.Value(b)); err != nil {
				t.Fatal(err)
			}
			m := g.reader()
			git := g.stall(x)
			g.halt()
			g.earlierMoves(gitrepo.Move{Ref: x, From: a, To: b})
			git.waits()
			if err := os.RemoveAll(filepath.Join(g.dir, "state/moves")); err != nil {
				t.Fatal(err)
			}
			find(g)
			g.start()
			m.connect()
			reset, is := m.hear().(wire.Reset)
			if !is {
				t.Fatal("the list goes on")
			}
			m.place = reset.Place
			m.lists()
			git.end()
			m.waits("-")
		})
	}
}

// A real follower, with two sites. A repository that it clones is listed, too: see TestAProjectIsClonedOnceItHasARef.
func TestWhatComesFromAnotherSiteIsListed(t *testing.T) {
	t.Parallel()
	shared := sessionDatabase(t)
	hook := func(o *site.Options) { o.Hook = sitetest.Hook() }
	g := newGuard(t, shared, "eu-1", storesAll)
	other := idleGuard(t, shared, "us-1", storesAll+"\n\tautoClone = true")
	other.options = hook
	other.start()
	m := other.reader()
	g.git("update-ref", x, g.commit[1])
	m.waits(x)
	if got := other.local(x); got != g.commit[1] {
		t.Errorf("%s is %q when it is listed", x, got)
	}
	if _, err := g.db.Put(t.Context(), "team/app", "HEAD", "ref: "+x); err != nil {
		t.Fatal(err)
	}
	m.waits("HEAD")
	if got := other.git("symbolic-ref", "HEAD"); strings.TrimSpace(got) != x {
		t.Errorf("HEAD is %q when it is listed", got)
	}
}

// A repository that was moved aside, because its project was removed, is on the list when it has gone.
func TestARepositoryThatHasGoneIsListed(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	g.newRepository("other")
	g.register("other")
	dir := filepath.Join(g.dir, "removed")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	g.followsRemovals(dir)
	g.start()
	m := g.reader()
	g.halt()
	if _, _, err := projects.Remove(t.Context(), g.db, g.project()); err != nil {
		t.Fatal(err)
	}
	g.shared.Exec(t, `UPDATE projects SET time = time - ?`, time.Hour.Microseconds()) // no push goes by an earlier row
	g.start()
	m.connect()
	for {
		for _, e := range m.next() {
			if e.Dir == g.repo && e.Ref == "" {
				if there(g.repo) {
					t.Error("it is listed before it has gone")
				}
				return
			}
		}
	}
}
