package site_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// oneByOne reports whether git moves the refs of a push in a transaction for each, unless it is atomic.
func oneByOne(tb testing.TB) bool {
	tb.Helper()
	var major, minor int
	if _, err := fmt.Sscanf(sitetest.Run(tb, "", "git", "version"), "git version %d.%d", &major, &minor); err != nil {
		tb.Fatal(err)
	}
	return major == 2 && minor < 51
}

func TestAPushAsksTheDatabaseForAllOfItsRefsAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		refs           int
		atomic, hooked bool
		states         int
		transactions   int // each is prepared and finished
	}{
		{"one ref", 1, false, true, 1, 1},
		{"some refs", 5, false, true, 1, 5},
		{"20 refs", 20, false, true, 1, 20},
		{"some refs, atomic", 5, true, true, 1, 1},
		{"20 refs, atomic", 20, true, true, 1, 1},
		{"1,000 refs, atomic", 1000, true, true, 1, 1},
		{"2,001 refs, atomic", 2001, true, true, 3, 1},
		{"one ref without the pre-receive hook", 1, false, false, 1, 1},
		{"some refs without the pre-receive hook", 5, true, false, 5, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && c.refs > 100 {
				t.Skip("left out by -short: a push of that many refs takes some seconds; make test-all runs it")
			}
			g := idleGuard(t, local.SQLite(t), "eu-1")
			driver := g.listen()
			g.start()
			if !c.hooked {
				g.drop("pre-receive")
			}
			specs := []string{"--quiet"}
			if c.atomic {
				specs = append(specs, "--atomic")
			} else if !oneByOne(t) {
				c.transactions = 1
			}
			for i := range c.refs {
				specs = append(specs, fmt.Sprintf("c0:refs/tags/t%04d", i))
			}
			client := g.client()
			before := driver.asked.listed.Load()
			if said, ok := client.push(specs...); !ok {
				t.Fatal(said)
			}
			want := fmt.Sprintf("%d states, %d prepared, %d finished, %d listed", c.states, c.transactions, c.transactions, before)
			if got := driver.asked.String(); got != want {
				t.Errorf("the database was asked for %s, want %s", got, want)
			}
			if n := g.status().Counters.Updated; n != uint64(c.refs) {
				t.Errorf("%d refs were updated", n)
			}
		})
	}
}

// drop removes a hook.
func (g *guard) drop(name string) {
	g.tb.Helper()
	if err := os.Remove(filepath.Join(hooksPath(g.repo), name)); err != nil {
		g.tb.Fatal(err)
	}
}

// pause makes the update hook wait for a file; stop waits until it does, and cont lets it go on.
func (g *guard) pause() (stopped func(), cont func()) {
	g.tb.Helper()
	dir := g.tb.TempDir()
	script := fmt.Sprintf("#!/bin/sh\ntouch %[1]s/here\nuntil [ -e %[1]s/go ]; do sleep 0.01; done\n", dir)
	path := filepath.Join(g.repo, "hooks/update")
	if err := testprogram.Write(path+".new", []byte(script)); err != nil {
		g.tb.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		g.tb.Fatal(err)
	}
	stopped = func() {
		g.tb.Helper()
		sitetest.Eventually(g.tb, "the update hook is run", func() bool {
			_, err := os.Stat(filepath.Join(dir, "here"))
			return err == nil
		})
	}
	cont = func() {
		g.tb.Helper()
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
			g.tb.Fatal(err)
		}
	}
	return stopped, cont
}

// What was read when the push began may be wrong by the time that it is used: then
// the decision about the transaction finds that.
func TestWhatChangesDuringAPushIsFoundAllTheSame(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(g *guard){
		"another value": func(g *guard) {
			if _, err := g.db.Put(g.tb.Context(), "team/app", "refs/heads/x", refdb.Value(g.commit[3])); err != nil {
				g.tb.Fatal(err)
			}
		},
		"a lock": func(g *guard) {
			lock, err := g.db.TryLock(g.tb.Context(), "team/app", "refs/heads/x")
			if err != nil {
				g.tb.Fatal(err)
			}
			g.tb.Cleanup(func() { lock.Release(g.tb.Context()) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, local.SQLite(t), "eu-1", "\tlockWait = 100ms")
			a := g.commit[0]
			g.set("refs/heads/x", a)
			client := g.client()
			stopped, cont := g.pause()
			type told struct {
				said string
				ok   bool
			}
			pushed := make(chan told, 1)
			go func() {
				said, ok := client.push("c1:refs/heads/x")
				pushed <- told{said, ok}
			}()
			stopped()
			change(g)
			global := g.global("refs/heads/x")
			cont()
			if p := <-pushed; p.ok || !strings.Contains(p.said, "refs/heads/x: ") {
				t.Errorf("the push was told %+v", p)
			}
			g.has("refs/heads/x", a, global)
		})
	}
}

// A daemon that was restarted during a push has forgotten what it read, and asks.
func TestARestartDuringAPushCostsReads(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	driver := g.listen()
	g.start()
	client := g.client()
	stopped, cont := g.pause()
	pushed := make(chan string, 1)
	go func() {
		said, ok := client.push("--atomic", "c0:refs/heads/x", "c0:refs/heads/y")
		if ok {
			said = ""
		}
		pushed <- said
	}()
	stopped()
	g.halt()
	g.start()
	cont()
	if said := <-pushed; said != "" {
		t.Error(said)
	}
	if n := driver.asked.states.Load(); n != 3 {
		t.Errorf("%d reads, want one for the push and one for each ref", n)
	}
	g.has("refs/heads/x", g.commit[0], g.commit[0])
}

// Without the database a push is refused at once if all of its refs are guarded;
// others of its refs go on.
func TestAPushWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	down := g.unplug()
	g.start()
	client := g.client()
	down.Store(true)
	const reason = "the global ref database does not answer: nothing was changed"
	said, ok := client.push("c0:refs/heads/x", "c0:refs/heads/y")
	if ok || strings.Count(said, reason) != 1 || !strings.Contains(said, "x (pre-receive hook declined)") {
		t.Errorf("guarded refs: %s", said)
	}
	said, ok = client.push("c0:refs/heads/x", "c0:refs/changes/01/1/1")
	if ok || !strings.Contains(said, reason) || !strings.Contains(said, "x (hook declined)") {
		t.Errorf("a guarded ref and another: %s", said)
	}
	if g.local("refs/heads/x") != "" || g.local("refs/changes/01/1/1") != g.commit[0] {
		t.Errorf("the refs are %q and %q", g.local("refs/heads/x"), g.local("refs/changes/01/1/1"))
	}
	down.Store(false)
}
