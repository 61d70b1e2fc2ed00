package site_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// The button of each forge that renames a branch runs git branch -m, of which a hook sees the deletion of the old name alone.
func TestABranchIsRenamedInTheDatabase(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		prepare func(g *guard)
		args    []string
	}{
		"a loose one":          {func(*guard) {}, []string{"-m", "x", "new"}},
		"a packed one":         {func(g *guard) { g.git("pack-refs", "--all") }, []string{"-m", "x", "new"}},
		"the one of HEAD":      {func(g *guard) { g.git("symbolic-ref", "HEAD", "refs/heads/x") }, []string{"--move", "new"}},
		"below its own name":   {func(*guard) {}, []string{"-m", "x", "x/new"}},
		"by force, to nothing": {func(*guard) {}, []string{"-M", "x", "new"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuard(t, local.SQLite(t), "eu-1")
			a, b := g.commit[0], g.commit[1]
			g.set("refs/heads/x", a)
			row.prepare(g)
			g.git(append([]string{"branch"}, row.args...)...)
			g.resolved()
			to := "refs/heads/" + row.args[len(row.args)-1]
			g.has("refs/heads/x", "", zero)
			g.has(to, a, a)
			g.git("update-ref", to, b)
			g.has(to, b, b)
			if n := g.status().Counters.Deaths; n != 0 {
				t.Errorf("%d processes count as dead with something left", n)
			}
		})
	}
}

func TestABranchIsNotRenamedToWhatIsThere(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	a, b := g.commit[0], g.commit[1]
	for _, ref := range []string{"refs/heads/x", "refs/heads/here"} {
		g.set(ref, a)
	}
	if _, err := g.db.Put(t.Context(), "team/app", "refs/heads/elsewhere", refdb.Value(b)); err != nil {
		t.Fatal(err)
	}
	sitetest.Contains(t, g.fails("branch", "-m", "x", "elsewhere"), "refs/heads/elsewhere: this site is behind")
	sitetest.Contains(t, g.fails("branch", "-M", "x", "here"), "refs/heads/x: it can't be renamed to refs/heads/here, which exists")
	g.resolved()
	g.has("refs/heads/x", a, a)
	g.has("refs/heads/here", a, a)
	g.has("refs/heads/elsewhere", "", b)
	g.git("branch", "-m", "x", "free")
	g.resolved()
	g.has("refs/heads/free", a, a)
}

// What git gave up is put back.
func TestARenameThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	a := g.commit[0]
	g.set("refs/heads/x", a)
	sitetest.LockFile(t, sitetest.Bare{Dir: g.repo}, "refs/heads/new.lock") // git finds it when the old name is gone
	g.git("config", "core.filesRefLockTimeout", "0")
	g.fails("branch", "-m", "x", "new")
	g.resolved()
	g.has("refs/heads/x", a, a)
	g.has("refs/heads/new", "", "")
}
