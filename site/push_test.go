package site_test

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

func TestWhatGitDoesIsWhatTheDatabaseHas(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	a, b, c := g.commit[0], g.commit[1], g.commit[2]

	g.git("update-ref", "refs/heads/x", a, zero)
	g.has("refs/heads/x", a, a)
	g.git("update-ref", "refs/heads/x", b, a)
	g.has("refs/heads/x", b, b)
	// An old value of zeros may mean "whatever it is".
	g.git("update-ref", "refs/heads/x", c)
	g.has("refs/heads/x", c, c)
	g.git("update-ref", "-d", "refs/heads/x", c)
	g.has("refs/heads/x", "", zero)
	g.git("update-ref", "refs/heads/x", a)
	g.has("refs/heads/x", a, a)
	if n := g.status().Counters.Updated; n != 5 {
		t.Errorf("%d refs were updated, want 5", n)
	}
}

func TestDeletion(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	a, b := g.commit[0], g.commit[1]
	for _, c := range []struct {
		name string
		make func()
	}{
		{"loose", func() { g.set("refs/heads/x", a) }},
		{"packed", func() { g.set("refs/heads/x", a); g.git("pack-refs", "--all", "--prune") }},
		{"both", func() {
			g.set("refs/heads/x", b)
			g.git("pack-refs", "--all", "--prune")
			g.set("refs/heads/x", a)
		}},
		{"both the same", func() { g.set("refs/heads/x", a); g.git("pack-refs", "--all", "--no-prune") }},
	} {
		for _, old := range [][]string{{a}, nil} {
			t.Run(c.name+" "+strings.Join(old, ""), func(t *testing.T) {
				g.tb = t
				c.make()
				g.has("refs/heads/x", a, a)
				g.git(append([]string{"update-ref", "-d", "refs/heads/x"}, old...)...)
				// Without an old value git never says that it deleted it: its end does.
				g.resolved()
				g.has("refs/heads/x", "", zero)
			})
		}
	}
}

func TestPackingChangesNothing(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	g.set("refs/heads/x", g.commit[0])
	g.set("refs/tags/y", g.commit[1])
	before := g.status().Counters
	g.git("pack-refs", "--all", "--prune")
	g.git("gc", "--quiet")
	g.has("refs/heads/x", g.commit[0], g.commit[0])
	g.has("refs/tags/y", g.commit[1], g.commit[1])
	after := g.status().Counters
	if after.Updated != before.Updated || after.Dropped != before.Dropped || after.Refused != 0 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

func TestASiteThatIsBehindIsRefused(t *testing.T) {
	t.Parallel()
	shared := local.SQLite(t)
	east, west := newGuard(t, shared, "east"), newGuard(t, shared, "west")
	a, b, c := east.commit[0], east.commit[1], east.commit[2]
	for _, g := range []*guard{east, west} {
		g.set("refs/heads/x", a)
	}
	east.git("update-ref", "refs/heads/x", b)
	said := west.fails("update-ref", "refs/heads/x", c)
	want := "refs/heads/x: this site is behind (global " + b[:7] + ", here " + a[:7] + "): fetch and retry in a few seconds"
	if !strings.Contains(said, want) {
		t.Errorf("git said %q, want %q", said, want)
	}
	west.has("refs/heads/x", a, b)
	// A deletion leaves a tombstone, which keeps the other site from bringing the ref back.
	east.git("update-ref", "-d", "refs/heads/x", b)
	if said := west.fails("update-ref", "refs/heads/x", c); !strings.Contains(said, "(global deleted, here "+a[:7]+")") {
		t.Errorf("git said %q", said)
	}
	west.git("-c", "core.hooksPath=/dev/null", "update-ref", "-d", "refs/heads/x")
	west.git("update-ref", "refs/heads/x", c)
	west.has("refs/heads/x", c, c)
	if said := east.fails("update-ref", "refs/heads/x", a); !strings.Contains(said, "(global "+c[:7]+", here nothing)") {
		t.Errorf("git said %q", said)
	}
}
