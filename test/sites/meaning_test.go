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
