package site_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// Behind a slow hook of the repository's own, what was read when the push began is old when update is asked. Prepared refuses a push as a whole, and
// over HTTP without a word.
func TestWhatHasChangedBeforeUpdateIsRefusedRefByRef(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	g.limits = (*site.Daemon).LetSnapshotsAge
	g.start()
	a, b := g.commit[0], g.commit[3]
	g.set("refs/heads/x", a)
	client := g.client()
	stopped, cont := g.pause()
	pushed := make(chan string, 1)
	go func() {
		said, _ := client.push("c1:refs/heads/x", "c1:refs/heads/y")
		pushed <- said
	}()
	stopped()
	if _, err := g.db.Put(t.Context(), "team/app", "refs/heads/x", refdb.Value(b)); err != nil {
		t.Fatal(err)
	}
	cont()
	said := <-pushed
	for _, want := range []string{"refs/heads/x: this site is behind", "! [remote rejected] c1 -> x (hook declined)", "* [new branch]      c1 -> y"} {
		if !strings.Contains(said, want) {
			t.Errorf("the client reads %q, want something with %q", said, want)
		}
	}
	g.has("refs/heads/x", a, b)
	g.has("refs/heads/y", g.commit[1], g.commit[1])
}

// However slow the hooks are, they cost one read more, and one each second.
func TestRefsThatAreLeftAreReadAgainAtOnce(t *testing.T) {
	t.Parallel()
	g := idleGuard(t, local.SQLite(t), "eu-1")
	g.limits = (*site.Daemon).LetSnapshotsAge
	driver := g.listen()
	g.start()
	specs := []string{"--atomic"}
	for i := range 20 {
		specs = append(specs, fmt.Sprintf("c0:refs/heads/x%d", i))
	}
	if said, ok := g.client().push(specs...); !ok {
		t.Fatal(said)
	}
	if n := driver.asked.states.Load(); n != 2 {
		t.Errorf("%d reads, want one when the push began and one for all refs that are left", n)
	}
}
