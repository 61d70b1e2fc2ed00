//go:build linux

package sites

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A database whose disk is full refuses pushes with a reason, has nothing of them, and takes them once there is room.
func TestADatabaseWhoseDiskIsFullTakesPushesOnceThereIsRoom(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a PostgreSQL on a disk of its own, some 10 s; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	pg := newPostgres(t)
	if err := pg.Stop(); err != nil {
		t.Fatal(err)
	}
	disk := onTmpfs(t, filepath.Join(pg.DataDir(), "base"), 96<<20) // what is written ahead is elsewhere: without it the server ends
	pg.start()
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 8, 0), extra: storing, database: func(testing.TB) database { return pg }})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	large := commitOfSize(t, c, 6<<20, c.h.a)

	release := disk.fill(1 << 20)
	before := c.global(project)
	for _, s := range []*server{c.eu, c.us} {
		p := s.push(large + ":refs/heads/large")
		if p.ok || len(p.accepted()) > 0 || !strings.Contains(p.said, "nothing was changed") || strings.Contains(p.said, pg.Dir()) {
			t.Errorf("the client of %s was told %+v", s.name, p)
		}
		eventually(t, "a status that says what to do", func() error {
			status, err := s.status()
			if err == nil && !strings.Contains(status.DatabaseError, "disk is full") {
				err = fmt.Errorf("%+v", status)
			}
			return err
		})
	}
	// Small ones may find room; what they are told holds.
	told := map[string]string{}
	for i, leaf := range c.h.leaves {
		s := []*server{c.eu, c.us}[i%2]
		ref := fmt.Sprintf("refs/heads/%d", i)
		if p := s.push(leaf + ":" + ref); p.ok {
			told[ref] = leaf
		} else if !strings.Contains(p.said, "nothing was changed") {
			t.Errorf("the client of %s was told %+v", s.name, p)
		}
	}
	release()
	eventually(t, "pushes go on", func() error {
		if p := c.eu.push(large + ":refs/heads/large"); !p.ok {
			return errors.New(p.said)
		}
		return nil
	})
	c.settled()
	now := c.global(project)
	for ref, value := range before {
		told[ref] = value
	}
	told["refs/heads/large"] = large
	sameRefs(t, "the database", now, told)
	for _, s := range []*server{c.eu, c.us} {
		s.follows(project)
		s.must("site", "check")
	}
	eventually(t, "nothing of what was refused is left", func() error {
		usage, err := c.db.Packs().Usage(t.Context(), project)
		if err == nil && usage.Unused > 0 {
			err = fmt.Errorf("%+v", usage)
		}
		return err
	})
}
