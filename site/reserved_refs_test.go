package site_test

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// What is acknowledged at one site has to come to the others: no push may go to refs that each site, or each work tree, has for itself.
func TestNoPushGoesToNamesWithAnotherMeaning(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	client := g.client()
	for _, mode := range []string{"enforce", "log"} {
		if mode == "log" {
			logs(g)
		}
		for ref, why := range map[string]string{
			"refs/peer/eu/heads/x": "only `refdbctl site sync` moves the refs of peers",
			"refs/refdb/kept/x":    "reserved for the site daemon",
			"refs/worktree/x":      "refs below refs/worktree belong to one work tree",
			"refs/bisect/bad":      "refs below refs/bisect belong to one work tree",
			"refs/rewritten/onto":  "refs below refs/rewritten belong to one work tree",
			"refs/Replace/x":       "a case-insensitive file system would place it below refs/replace/",
			"refs/WORKTREE/x":      "a case-insensitive file system would place it below refs/worktree/",
		} {
			said, ok := client.push("c0:" + ref)
			if ok || !strings.Contains(said, ref+": ") || !strings.Contains(said, why) {
				t.Errorf("mode %s: the push to %s succeeded: %v: %s", mode, ref, ok, said)
			}
			if v := g.local(ref); v != "" {
				t.Errorf("mode %s: %s is %s here", mode, ref, v)
			}
		}
	}
}

func TestNamesWithAnotherMeaningServeThatMeaning(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	a, b := g.commit[0], g.commit[1]
	client := g.client()
	for _, ref := range []string{"refs/worktree/x", "refs/bisect/bad", "refs/rewritten/onto"} {
		g.git("update-ref", ref, a) // as git does in a work tree
		g.has(ref, a, "")
		if said, ok := client.push(":" + ref); !ok { // left by a push to a site of an earlier version
			t.Errorf("%s can't be deleted: %s", ref, said)
		}
	}
	sitetest.Contains(t, g.fails("update-ref", "refs/Peer/x", a), "a case-insensitive file system would place it below refs/peer/")
	const old = "refs/Replace/x" // made when its name was not refused
	g.set(old, a)
	g.git("update-ref", old, b)
	g.has(old, b, b)
	g.git("update-ref", "-d", old, b)
	g.has(old, "", zero)
	if said, ok := client.push("c0:refs/replace/" + a); !ok {
		t.Error(said)
	}
	g.has("refs/replace/"+a, a, a)
}
