//go:build linux

package sites

import (
	"strings"
	"testing"
)

// A replacement ref would have every git of the site see another object, or, as here, none at all.
func TestAReplacementRefStopsNothing(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, files.objects, 2, 2), extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	for _, id := range []string{c.h.a, c.h.b} { // each is replaced by itself
		c.eu.pushed(id + ":refs/replace/" + id)
	}
	c.us.follows(project)
	c.eu.pushed(c.h.b + ":refs/heads/main")
	c.us.follows(project)
	c.us.pushed(c.h.leaves[0] + ":refs/heads/other")
	c.eu.follows(project)
	for _, s := range []*server{c.eu, c.us} {
		s.sync()
		s.prunes()
		s.must("site", "store", "verify", project)
		if out := s.must("site", "check"); strings.TrimSpace(out) != "" {
			t.Errorf("site %s: %s", s.name, out)
		}
	}
	c.us.losesRepository(project)
	c.us.must("site", "clone", project)
	c.us.follows(project)
	c.us.pushed(":refs/replace/"+c.h.a, c.h.children[0][0]+":refs/heads/other")
	c.eu.follows(project)
}

// As docs/GIT.md has it for sites without objects in the database.
func TestABareCloneBecomesACopy(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{})
	const project = "another"
	c.eu.create(project)
	g.run(t, c.h.dir, "push", "--quiet", c.eu.repo(project), c.h.b+":refs/heads/main", c.h.tag+":refs/tags/v1", c.h.a+":refs/notes/commits")
	g.run(t, "/", "clone", "--quiet", "--bare", c.eu.repo(project), c.us.repo(project))
	c.us.must("site", "enable", project)
	c.us.must("site", "sync", "--from", c.eu.repo(project), project)
	sameRefs(t, "us", c.us.refs(project), c.global(project))
	if out := c.us.must("site", "check", project); strings.TrimSpace(out) != "" {
		t.Errorf("site check says %s", out)
	}
	// Of a mirror it warns.
	c.us.losesRepository(project)
	c.mirror(project, c.us.repo(project))
	if out, err := c.us.command("site", "enable", project).CombinedOutput(); err != nil || !strings.Contains(string(out), "warning: remote.origin.fetch: ") {
		t.Errorf("site enable: %v: %s", err, out)
	}
}
