//go:build linux

package sites

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// A forge renames a repository on disk. Nobody pushes to it there until its path is in the configuration; then it is the project that it was.
func TestARepositoryThatAForgeHasRenamed(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	const renamed = "team/renamed"
	if err := os.Rename(c.eu.repo(project), c.eu.repo(renamed)); err != nil {
		t.Fatal(err)
	}
	push := func() error {
		_, err := g.try(c.h.dir, "push", "--quiet", c.eu.repo(renamed), c.h.b+":refs/heads/main")
		return err
	}
	if err := push(); err == nil || !strings.Contains(err.Error(), "not a copy of the project "+renamed+", but of "+project) {
		t.Errorf("before: %v", err)
	}
	if out, err := c.eu.run("site", "check"); err == nil || !strings.Contains(out, "moved") || strings.Contains(out, "database-behind") {
		t.Errorf("before: %v: %s", err, out)
	}
	c.us.pushed(c.h.b + ":refs/heads/other") // meanwhile
	c.eu.reconfigure(storing + fmt.Sprintf("[repository %q]\n\tpath = %s\n", project, c.eu.repo(renamed)))
	eventually(t, "it takes pushes", push)
	c.us.follows(project)
	eventually(t, "what was pushed meanwhile", func() error {
		_, err := g.try(c.eu.repo(renamed), "rev-parse", "--verify", "--quiet", "refs/heads/other")
		return err
	})
	for _, s := range []*server{c.eu, c.us} {
		if out := s.must("site", "check"); strings.TrimSpace(out) != "" {
			t.Errorf("site %s: %s", s.name, out)
		}
	}
}

// Forks of a repository may be namespaces of it: what is pushed there has nothing to do with a ref of the same name outside.
func TestAPushIntoANamespaceIsOfARefOfItsOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: the hook's test has the names that the daemon is asked about; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	lock, err := c.db.Lock(t.Context(), project, "refs/heads/main")
	defer must(t, lock, err).Release(c.background())
	inFork := "--receive-pack=env GIT_NAMESPACE=fork " + g.dir + "/git receive-pack"
	c.eu.pushed(inFork, c.h.b+":refs/heads/main")
	c.settled()
	sameRefs(t, "the database", c.global(project), map[string]string{"refs/heads/main": c.h.a, "refs/namespaces/fork/refs/heads/main": c.h.b})
	c.us.follows(project)
}
