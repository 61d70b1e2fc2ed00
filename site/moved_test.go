package site_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// Who keeps what refs held learns of each transaction, guarded or not, once git's client may have been told; and a daemon that has
// forgotten how many there were never says what another one said.
func TestTheMarkOfARepositoryIsAnotherOneAfterEachTransaction(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "b", "[guard]\n\tskipRef = refs/own/*")
	other := g.newRepository("team/other")
	ask := func(repo string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), sitetest.Patience)
		defer cancel()
		real, err := filepath.EvalSymlinks(repo)
		if err != nil {
			t.Fatal(err)
		}
		mark, err := client.Mark(ctx, filepath.Join(g.dir, "sock"), real)
		if err != nil || mark == "" {
			t.Fatal(mark, err)
		}
		return mark
	}
	seen := map[string]string{}
	want := func(what string) {
		t.Helper()
		mark := ask(g.repo)
		if before, ok := seen[mark]; ok {
			t.Errorf("%s: the mark is that of %s", what, before)
		}
		// The end of git's process is noticed a moment later, and counts as well.
		sitetest.Eventually(t, what+": the mark stays", func() bool {
			seen[mark] = what
			before := mark
			mark = ask(g.repo)
			return mark == before
		})
	}
	elsewhere := ask(other)
	want("the beginning")
	g.git("update-ref", "refs/heads/main", g.commit[0])
	want("a guarded ref")
	g.git("update-ref", "refs/own/x", g.commit[0])
	want("a ref that is not guarded")
	g.git("update-ref", "-d", "refs/own/x")
	want("its deletion")
	if ask(other) != elsewhere {
		t.Error("the mark of another repository has changed")
	}
	if err := g.halt(); err != nil {
		t.Fatal(err)
	}
	g.start()
	want("a restart")
	if _, err := client.Mark(t.Context(), filepath.Join(g.dir, "sock"), t.TempDir()); err == nil {
		t.Error("a directory that is no repository has a mark")
	}
}
