//go:build linux

package sites

import "testing"

func TestABranchThatIsRenamedAtOneSiteIsRenamedAtAll(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing})
	c.eu.pushed(c.h.a+":refs/heads/main", c.h.b+":refs/heads/old")
	c.us.follows(project)
	c.eu.git("branch", "-m", "old", "new")
	c.settled()
	if got := c.global(project)["refs/heads/new"]; got != c.h.b {
		t.Errorf("the new name is %q in the database", got)
	}
	c.us.follows(project)
	c.us.pushed(c.h.c+":refs/heads/other", ":refs/heads/new")
	c.eu.follows(project)
	c.us.git("branch", "-m", "other", "another")
	c.settled()
	c.eu.follows(project)
	c.us.git("branch", "-D", "another") // where it was renamed
	c.settled()
	c.eu.follows(project)
	c.agreed()
}
