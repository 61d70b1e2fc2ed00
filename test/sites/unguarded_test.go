//go:build linux

package sites

import "testing"

// A branch that was pushed while the repository had no guard is imported when it gets one again: its objects come to the other sites, too.
func TestWhatWasPushedWithoutAGuardComesToAllSites(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, files.objects, 1, 0), extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	c.eu.must("site", "store", "compact", project) // the database has a base
	c.eu.must("site", "disable", project)
	c.eu.pushed(c.h.leaves[0] + ":refs/heads/meanwhile")
	c.eu.must("site", "enable", project)
	c.us.follows(project)
	c.us.must("site", "store", "verify", project)
}
