//go:build linux

package sites

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// emulatorVariable is what Google's client libraries read.
const emulatorVariable = "SPANNER_EMULATOR_HOST"

// Two sites on the Spanner emulator: pushes at both, a large one, forced moves, deletions, maintenance, bases, and a disk that is lost.
func TestSitesFollowOnSpanner(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: sites on the Spanner emulator, half a minute; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := *must(t, all, err)[0]
	c := newCluster(t, &g, design{h: newHistory(t, &g, "sha1", 20, 1), extra: storing, database: func(t testing.TB) database {
		d := dbtest.Spanner(t)
		g.env = append(slices.Clone(g.env), emulatorVariable+"="+os.Getenv(emulatorVariable))
		return d
	}})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	var pushed, followed time.Duration
	for i, leaf := range c.h.leaves {
		at := []*server{c.eu, c.us}[i%2]
		began := time.Now()
		at.pushed("--force", leaf+":refs/heads/main", leaf+fmt.Sprintf(":refs/heads/%d", i))
		pushed += time.Since(began)
		began = time.Now()
		at.other().must("site", "wait", "--limit", patience.String(), project)
		followed += time.Since(began)
		if got := at.other().refs(project)["refs/heads/main"]; got != leaf {
			t.Fatalf("push %d is not at the other site: %s", i, got)
		}
	}
	n := time.Duration(len(c.h.leaves))
	t.Logf("a push took %s, and site wait at the other site %s", (pushed / n).Round(time.Millisecond), (followed / n).Round(time.Millisecond))

	began := time.Now()
	c.us.pushed(commitOfSize(t, c, 9<<20, c.h.a) + ":refs/heads/large")
	t.Logf("a push of 9 MiB took %s", time.Since(began).Round(time.Millisecond))
	c.eu.follows(project)
	c.eu.pushed(":refs/heads/0", ":refs/heads/large")
	c.us.follows(project)

	// Both sites push, maintain and compact at the same time.
	var tasks sync.WaitGroup
	for i, s := range []*server{c.eu, c.us} {
		tasks.Go(func() {
			for k, children := range c.h.children {
				if k%2 == i {
					eventually(t, "a push to "+s.name, func() error {
						if p := s.push(children[0] + fmt.Sprintf(":refs/heads/%s-%d", s.name, k)); !p.ok {
							return fmt.Errorf("%+v", p)
						}
						return nil
					})
				}
			}
		})
		tasks.Go(func() { s.must("site", "maintain", project) })
		tasks.Go(func() {
			began := time.Now()
			s.must("site", "store", "compact", project)
			t.Logf("a base took %s", time.Since(began).Round(time.Millisecond))
		})
	}
	tasks.Wait()
	c.settled()
	c.eu.follows(project)
	c.us.follows(project)
	c.eu.must("site", "store", "verify", project)

	c.us.kill()
	c.us.losesRepository(project)
	c.us.start()
	began = time.Now()
	c.us.must("site", "clone", project)
	t.Logf("a clone took %s", time.Since(began).Round(time.Millisecond))
	c.us.follows(project)
	c.us.pushed("--force", c.h.c+":refs/heads/main")
	c.eu.follows(project)
	for _, s := range []*server{c.eu, c.us} {
		s.must("site", "check")
	}
}
