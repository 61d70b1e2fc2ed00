//go:build linux

package sites

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// A mirror converges to the database whatever happens to the sites that push to it.
func TestAPushMirrorConvergesToTheDatabase(t *testing.T) {
	t.Parallel()
	rounds := 1
	if long() {
		rounds = 40
	}
	all, err := gits()
	g := must(t, all, err)[0]
	outside := shortDir(t)
	mirrored := filepath.Join(outside, project+".git")
	if err := os.MkdirAll(filepath.Dir(mirrored), 0o755); err != nil {
		t.Fatal(err)
	}
	g.initBare(t, mirrored, files)
	c := newCluster(t, g, design{extra: storing + fmt.Sprintf("[pushMirror \"outside\"]\n\turl = %s/{project}.git\n", outside)})
	converged := func() {
		t.Helper()
		eventually(t, "the mirror holds what the database does", func() error {
			want, has := c.global(project), g.refs(t, mirrored)
			if !maps.Equal(want, has) {
				return fmt.Errorf("%w: the mirror has %v instead of %v", errPending, has, want)
			}
			return nil
		})
	}
	pushes := func(s *server) bool {
		status, err := s.status()
		return err == nil && len(status.PushMirrors) == 1 && status.PushMirrors[0].Pushes
	}
	for round := range rounds {
		c.eu.follows(project)
		c.us.follows(project)
		c.eu.pushed("+"+c.h.a+":refs/heads/x", c.h.a+fmt.Sprintf(":refs/heads/%d", round))
		c.us.pushed("+" + c.h.b + ":refs/heads/y")
		converged()
		c.eu.follows(project)
		c.us.follows(project)
		// The site that pushes dies while there is something to push; the other one goes on.
		dies, lives := c.eu, c.us
		if pushes(c.us) {
			dies, lives = c.us, c.eu
		}
		dies.pushed("+"+c.h.b+":refs/heads/x", fmt.Sprintf(":refs/heads/%d", round))
		dies.kill()
		lives.pushed("+" + c.h.a + ":refs/heads/y")
		converged()
		dies.start()
	}
	// All die.
	c.eu.pushed("+" + c.h.a + ":refs/heads/z")
	c.eu.kill()
	c.us.kill()
	c.eu.start()
	c.us.start()
	converged()
}
