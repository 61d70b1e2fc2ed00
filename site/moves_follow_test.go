package site_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/projects"
	"github.com/globalrefdb/globalrefdb/site/wire"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// What a follower moves is recorded before its git is let through, and listed when that has ended, not before, over a restart of the
// daemon, too.
func TestWhatAFollowerMovesIsListedWhenItsGitHasEnded(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"commit", "kill", "kill after the move"} {
		for _, daemon := range []string{"watches", "is restarted before the end", "starts after the end"} {
			t.Run(end+", the daemon "+daemon, func(t *testing.T) {
				t.Parallel()
				g := sessionTest(t)
				a, b := g.commit[0], g.commit[1]
				g.set(x, a)
				if _, err := g.db.Put(t.Context(), "team/app", x, refdb.Value(b)); err != nil {
					t.Fatal(err)
				}
				m := g.reader()
				s := g.session("REFDB_REPLICA=1")
				if err := s.prepare("update " + x + " " + b + " " + a); err != nil {
					t.Fatal(err)
				}
				m.lists()
				if daemon != "watches" {
					g.halt()
				}
				if daemon == "is restarted before the end" {
					g.start()
					m.connect()
					m.lists()
				}
				switch {
				case end == "commit" && daemon != "starts after the end":
					s.must("commit")
					m.lists() // its git lives
					s.close()
				case end == "kill":
					s.kill()
				default: // also of a git whose hook finds no daemon in the end
					g.loose(x, b)
					s.kill()
				}
				if daemon == "starts after the end" {
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
			s := g.session("REFDB_REPLICA=1")
			if err := s.prepare("update " + x + " " + b + " " + a); err != nil {
				t.Fatal(err)
			}
			g.halt()
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
			g.loose(x, b)
			s.kill()
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

// A daemon that stops answers the hook of a git that follows the database: it waits for that git, whose hook would wait for the next daemon.
func TestAStopDoesNotWaitForAGitThatWaitsForTheDaemon(t *testing.T) {
	t.Parallel()
	shared := sessionDatabase(t)
	g, other := newGuard(t, shared, "eu-1", storesAll), newGuard(t, shared, "us-1", storesAll)
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\ntouch %[1]s/here\nuntil [ -e %[1]s/go ]; do sleep 0.01; done\n", dir)
	if err := testprogram.Write(filepath.Join(other.repo, "hooks/reference-transaction"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	g.git("update-ref", x, g.commit[0])
	sitetest.Eventually(t, "a git follows", func() bool { return there(filepath.Join(dir, "here")) })
	other.stop()
	sitetest.Eventually(t, "the daemon stops", func() bool { return strings.Contains(other.log.String(), "msg=stopping") })
	time.Sleep(200 * time.Millisecond) // until it waits for that git; if it is slower this test sees less
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := other.halt(); err != nil {
		t.Error(err)
	}
	if other.local(x) != g.commit[0] && !strings.Contains(other.log.String(), "msg=refused") {
		t.Error("its hook was not answered")
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
