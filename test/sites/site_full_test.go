//go:build linux

package sites

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// A site whose disk is full, that of the repositories or that of the daemon's state, refuses what it has no room for, says why,
// and has nothing of it. Once there is room it takes pushes again. What it acknowledged meanwhile holds.
func TestASiteWhoseDiskIsFullTakesPushesOnceThereIsRoom(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: two sites, each with a disk of its own, some 10 s; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	for name, row := range map[string]struct {
		of   func(s *server) string
		says string
	}{
		"the repositories":   {func(s *server) string { return s.root }, "No space left on device"},
		"the daemon's state": {func(s *server) string { return filepath.Join(s.dir, "state") }, "the disk that holds the site daemon's state is full: nothing was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 8, 0), extra: storing})
			c.eu.pushed(c.h.a + ":refs/heads/main")
			c.us.follows(project)
			c.eu.stop()
			full := onTmpfs(t, row.of(c.eu), 64<<20)
			c.eu.must("site", "take-over", "--yes") // the state has moved
			c.eu.start()
			large := commitOfSize(t, c, 6<<20, c.h.a)

			release := full.fill(0)
			told := c.global(project)
			for i, value := range append([]string{large}, c.h.leaves...) {
				ref := "refs/heads/" + string(rune('a'+i))
				p := c.eu.push(value + ":" + ref)
				if p.ok {
					told[ref] = value
				} else if len(p.accepted()) > 0 || !strings.Contains(p.said, row.says) {
					t.Errorf("the client was told %+v", p)
				}
			}
			c.us.pushed(c.h.leaves[0] + ":refs/heads/elsewhere")
			told["refs/heads/elsewhere"] = c.h.leaves[0]
			status, err := c.eu.status()
			if full := strings.Contains(status.StateError, "no space left on device"); err != nil || !status.Database || full != (name == "the daemon's state") {
				t.Errorf("status: %v, %+v", err, status)
			}
			release()
			eventually(t, "pushes go on", func() error {
				if p := c.eu.push(large + ":refs/heads/large"); !p.ok {
					return errors.New(p.said)
				}
				return nil
			})
			told["refs/heads/large"] = large
			c.settled()
			sameRefs(t, "the database", c.global(project), told)
			for _, s := range []*server{c.eu, c.us} {
				s.follows(project)
				s.must("site", "check")
			}
		})
	}
}
