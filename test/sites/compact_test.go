//go:build linux

package sites

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/client"
)

func (s *server) compacts(want client.Compacted) {
	s.c.Helper()
	if got := s.maintain(); got.Compacted != want {
		s.c.Errorf("site %s: %+v, want compacted: %s", s.name, got, want)
	}
}

// What refs put writes has no pack: the other site waits for its objects until a site that has them is maintained.
func TestMaintenanceStoresWhatWasWrittenWithoutAPush(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: maintenance that stores objects written without a push; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 1, 1), extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	c.eu.compacts(client.CompactedNothing)
	// Its objects are at eu, by hand.
	c.g.run(c, c.eu.repo(project), "fetch", "--quiet", c.h.dir, c.h.b)
	c.eu.must("refs", "put", project, "refs/heads/main", c.h.b, "--force")
	c.us.compacts(client.CompactedNothing)
	c.eu.follows(project)
	c.eu.compacts(client.CompactedBase)
	c.us.follows(project)
	c.eu.compacts(client.CompactedNothing)
	c.us.compacts(client.CompactedNothing)
}

// What was in transit for a week is dropped once both sites have it; who comes later needs a base.
func TestMaintenanceDropsWhatWasInTransit(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: maintenance that drops packs in transit; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 2, 2), extra: "\tstore = transit\n"})
	c.us.losesRepository(project) // us follows changes all the same
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.passDays(8)
	c.eu.compacts(client.CompactedNothing)
	c.us.must("site", "clone", project)
	c.us.pushed(c.h.b + ":refs/heads/main")
	c.eu.follows(project)
	c.passDays(8)
	c.eu.compacts(client.CompactedNothing)
	c.us.compacts(client.CompactedDropped) // eu has just recorded that it has all
	c.eu.compacts(client.CompactedNothing)
	c.eu.pushed(c.h.leaves[0] + ":refs/heads/next")
	c.us.follows(project)
	c.us.pushed(c.h.leaves[1] + ":refs/heads/other")
	c.eu.follows(project)

	c.us.losesRepository(project)
	if _, err := c.us.run("site", "clone", project); err == nil || !strings.Contains(err.Error(), "site store compact "+project) {
		t.Errorf("cloned without a base: %v", err)
	}
	c.eu.must("site", "store", "compact", project)
	c.us.must("site", "clone", project)
	c.us.follows(project)
}

// A process that ended after it had stored a base has left the packs that it stands for.
func TestMaintenanceDropsWhatAnotherBaseStandsFor(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: maintenance that drops packs that a base replaces; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 1, 1), extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.pushed(c.h.b + ":refs/heads/other")
	c.us.follows(project)
	c.eu.follows(project)
	state, err := c.db.HistoryState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	whole := c.g.run(t, c.eu.repo(project), "pack-objects", "--all", "--stdout", "-q")
	sum := sha256.Sum256([]byte(whole))
	base := driver.Pack{ID: "~2-base", Project: project, Owner: "eu/x", Full: true, Position: state.Upto, Size: int64(len(whole)), Sum: hex.EncodeToString(sum[:])}
	if err := c.db.Packs().Store(t.Context(), driver.PackPart{Pack: base, Data: []byte(whole), Last: true}); err != nil {
		t.Fatal(err)
	}
	kept := func() int {
		t.Helper()
		usage, err := c.db.Packs().Usage(t.Context(), project)
		if err != nil {
			t.Fatal(err)
		}
		return usage.Packs
	}
	if n := kept(); n != 3 {
		t.Fatalf("%d packs, want those of two pushes and a base", n)
	}
	c.us.compacts(client.CompactedDropped)
	if n := kept(); n != 1 {
		t.Errorf("%d packs are left", n)
	}
	c.eu.compacts(client.CompactedNothing)
	c.eu.pushed(c.h.leaves[0] + ":refs/heads/next")
	c.us.follows(project)
}
