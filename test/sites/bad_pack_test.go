//go:build linux

package sites

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/intents"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A badPack is what the database has of a project, and no site can unpack.
type badPack struct {
	name string
	// put has the database say that refs/heads/bad of the project is a value, whose pack is of the owner.
	put   func(c *cluster, d *dbtest.Database, project string) (value, owner string)
	says  string
	brave func(c *cluster, project string) // brings the objects to eu in another way; nil if it has them
}

var badPacks = []badPack{
	{"what was stored at eu has changed in the database", func(c *cluster, d *dbtest.Database, project string) (string, string) {
		c.us.kill()
		c.g.run(c, c.h.dir, "push", "--quiet", c.eu.repo(project), c.h.leaves[0]+":refs/heads/bad")
		d.Exec(c, "UPDATE pack_parts SET data = zeroblob(length(data)) WHERE pack IN (SELECT id FROM packs WHERE project = '"+project+"' ORDER BY position DESC LIMIT 1)")
		c.eu.stop() // it forgets what it made itself
		c.eu.start()
		c.us.start()
		return c.h.leaves[0], "eu/"
	}, "the pack is damaged", nil},
	{"a pack without an object that its value needs", func(c *cluster, _ *dbtest.Database, project string) (string, string) {
		return c.h.children[0][0], c.putPack(project, c.h.children[0][0], c.h.leaves[0])
	}, "objects are missing", func(c *cluster, project string) {
		c.eu.must("site", "sync", "--peer", "rescue", "--from", c.rescue(), project)
	}},
}

// putPack has a process that is no site store a pack of what tip reaches and without does not, as if it built on nothing, and moves a ref.
func (c *cluster) putPack(project, tip, without string) (owner string) {
	c.Helper()
	cmd := c.g.command(c.h.dir, "rev-list", "--objects", "--no-object-names", tip, "^"+without)
	ids, err := cmd.Output()
	must(c.TB, ids, err)
	pack := c.g.command(c.h.dir, "pack-objects", "--stdout", "-q")
	pack.Stdin = bytes.NewReader(ids)
	data, err := pack.Output()
	must(c.TB, data, err)
	sum := sha256.Sum256(data)
	part := driver.PackPart{Pack: driver.Pack{ID: "bad-" + tip, Project: project, Owner: c.db.Owner(), Tips: []string{tip}, Size: int64(len(data)), Sum: hex.EncodeToString(sum[:])}, Data: data, Last: true}
	if err := c.db.Packs().Store(c.Context(), part); err != nil {
		c.Fatal(err)
	}
	p, err := c.db.Intents().Prepare(c.Context(), project, []refdb.Update{{Ref: "refs/heads/bad", New: refdb.Value(tip)}}, "test", intents.WithPacks(part.Pack.ID))
	if err := c.db.Intents().Finish(c.Context(), must(c.TB, p, err), []string{"refs/heads/bad"}, nil); err != nil {
		c.Fatal(err)
	}
	return c.db.Owner()
}

// rescue is a repository with all objects of the client's, under the name that lacks them.
func (c *cluster) rescue() string {
	c.Helper()
	c.g.run(c, c.h.dir, "update-ref", "refs/heads/bad", c.h.children[0][0])
	return c.h.dir
}

// Nothing moves to what is not whole. Status says whose pack it is, other repositories go on, and a new base heals all.
func TestABadPackMovesNoRefAndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	for _, row := range badPacks {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			d := dbtest.SQLite(t)
			c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 1, 1), extra: storing,
				database: func(testing.TB) database { return d }, projects: []string{project, "other"}})
			c.eu.pushed(c.h.a + ":refs/heads/main")
			c.us.follows(project)
			before := c.us.refs(project)
			value, owner := row.put(c, d, project)
			c.us.behind(project, owner)
			c.us.behind(project, row.says)
			c.us.behind(project, "refdbctl site store compact "+project)
			sameRefs(t, "us", c.us.refs(project), before)
			for i, s := range []*server{c.eu, c.us} {
				c.g.run(t, c.h.dir, "push", "--quiet", s.repo("other"), fmt.Sprintf("%s:refs/heads/%d", c.h.b, i))
				s.other().follows("other")
			}
			if row.brave != nil {
				row.brave(c, project)
			}
			c.eu.must("site", "store", "compact", project)
			c.us.follows(project)
			c.eu.follows(project)
			if got := c.us.refs(project)["refs/heads/bad"]; got != value {
				t.Errorf("it is %s", got)
			}
			c.us.pushed(c.h.c + ":refs/heads/after")
			c.eu.follows(project)
		})
	}
}
