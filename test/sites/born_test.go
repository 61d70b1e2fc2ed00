//go:build linux

package sites

import (
	"os"
	"path/filepath"
	"testing"
)

// A forge makes repositories by itself: git's template guards them from the beginning, and no command does.
func TestARepositoryGuardedFromBirthComesToAllSites(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, files.objects, 1, 1), extra: storing + "\tautoClone = true\n"})
	template := filepath.Join(c.eu.dir, "template")
	for _, dir := range []string{"hooks", "refdb"} {
		if err := os.MkdirAll(filepath.Join(template, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(c.eu.socket(), filepath.Join(template, "refdb/socket")); err != nil {
		t.Fatal(err)
	}
	for _, hook := range []string{"reference-transaction", "update", "pre-receive"} {
		if err := os.Symlink(filepath.Join(c.eu.bin, "refdb-hook"), filepath.Join(template, "hooks", hook)); err != nil {
			t.Fatal(err)
		}
	}
	const born = "forge/born"
	repo := c.eu.repo(born)
	g.run(t, "/", "init", "--quiet", "--bare", "--template="+template, repo)
	push := func(at *server, refspec string) {
		t.Helper()
		g.run(t, c.h.dir, "push", "--quiet", at.repo(born), refspec)
	}
	push(c.eu, c.h.a+":refs/heads/main")
	c.us.clones(born)
	push(c.us, c.h.b+":refs/heads/main")
	c.eu.follows(born)
	push(c.eu, c.h.leaves[0]+":refs/heads/other")
	c.us.follows(born)
	c.us.must("site", "store", "verify", born)
}
