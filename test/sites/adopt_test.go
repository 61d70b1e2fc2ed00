//go:build linux

package sites

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An adoptRow is a repository that is put under guard at us, as a copy of a project that eu has: main is a, moved to b, and a tag.
type adoptRow struct {
	name string
	make func(c *cluster, project, repo string) // at that path, which does not exist
	says string                                 // the refusal; "" if it is adopted
}

// mirror makes a full copy of what eu has of the project.
func (c *cluster) mirror(project, repo string) {
	c.Helper()
	c.g.run(c, "/", "clone", "--quiet", "--mirror", c.eu.repo(project), repo)
}

// other makes a repository with a history of its own.
func (c *cluster) other(repo string, refs ...string) {
	c.Helper()
	c.g.initBare(c, repo, files)
	root := c.g.run(c, repo, "commit-tree", "-m", "another history", c.g.feed(c, repo, "", "mktree"))
	for _, ref := range refs {
		c.g.run(c, repo, "update-ref", ref, root)
	}
}

var adoptRows = []adoptRow{
	{"an empty one", func(c *cluster, _, repo string) { c.g.initBare(c, repo, files) }, ""},
	{"an equal one", func(c *cluster, project, repo string) { c.mirror(project, repo) }, ""},
	{"one that is behind with all of its refs", func(c *cluster, project, repo string) {
		c.g.initBare(c, repo, files)
		c.g.run(c, repo, "fetch", "--quiet", c.h.dir, c.h.a+":refs/heads/main")
	}, ""},
	{"one that is ahead", func(c *cluster, project, repo string) {
		c.mirror(project, repo)
		c.g.run(c, repo, "fetch", "--quiet", c.h.dir, "+"+c.h.leaves[0]+":refs/heads/main")
		c.g.run(c, repo, "update-ref", "-d", "refs/tags/v1")
	}, ""},
	{"another history under the same names", func(c *cluster, _, repo string) { c.other(repo, "refs/heads/main", "refs/tags/v1") }, "has another history"},
	{"another history under other names", func(c *cluster, _, repo string) { c.other(repo, "refs/heads/theirs") }, "has another history"},
	{"a shallow one", func(c *cluster, project, repo string) {
		c.g.run(c, "/", "clone", "--quiet", "--bare", "--depth", "1", "file://"+c.eu.repo(project), repo)
	}, "git fetch --unshallow"},
	{"a partial clone", func(c *cluster, project, repo string) {
		c.eu.c.g.run(c, c.eu.repo(project), "config", "uploadpack.allowFilter", "true")
		c.g.run(c, "/", "clone", "--quiet", "--bare", "--filter=blob:none", "file://"+c.eu.repo(project), repo)
	}, "full clone"},
}

// What is put under guard becomes a copy of its project, or is left exactly as it was, and so is the project.
func TestWhatIsNoCopyOfTheProjectIsRefusedByEnable(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 1, 0), extra: storing})
	for i, row := range adoptRows {
		t.Run(row.name, func(t *testing.T) {
			if testing.Short() && i%2 > 0 {
				t.Skip("left out by -short: every other kind of repository; make test-all runs them")
			}
			c := c.in(t)
			project := strings.ReplaceAll(row.name, " ", "-")
			repo := c.us.repo(project)
			c.eu.create(project)
			g.run(t, c.h.dir, "push", "--quiet", c.eu.repo(project), c.h.b+":refs/heads/main", c.h.tag+":refs/tags/v1")
			row.make(c, project, repo)
			if row.says == "" {
				// Refs that differ are reported, and followed.
				if out, err := c.us.run("site", "enable", "--copy", project); err != nil && !strings.Contains(err.Error(), "because the database has another value for them") {
					t.Errorf("%v: %s", err, out)
				}
				c.us.follows(project)
				return
			}
			c.refuses(project, row.says)
			if err := os.RemoveAll(repo); err != nil {
				t.Fatal(err)
			}
			c.us.must("site", "clone", project)
			c.us.follows(project)
		})
	}
	t.Run("a shallow one of a project that is new", func(t *testing.T) {
		c := c.in(t)
		repo := c.us.repo("new")
		g.run(t, c.h.dir, "update-ref", "refs/heads/main", c.h.b)
		g.run(t, "/", "clone", "--quiet", "--bare", "--depth", "1", "file://"+c.h.dir, repo)
		c.refuses("new", "git fetch --unshallow")
		if out, err := c.us.run("project", "show", "new"); err == nil {
			t.Errorf("it was recorded: %s", out)
		}
		g.run(t, repo, "fetch", "--quiet", "--unshallow")
		c.us.must("site", "enable", "--new", "new")
	})
}

// refuses fails the test unless us refuses to put its repository of a project under guard, and leaves all as it was.
func (c *cluster) refuses(project, says string) {
	c.Helper()
	repo := c.us.repo(project)
	refs, global := c.us.refs(project), c.global(project)
	settings := c.g.run(c, repo, "config", "--local", "--list")
	claims := [][]string{{project}, {"--copy", project}}
	if _, known, err := c.db.Projects().Get(c.Context(), project); err != nil || !known {
		claims = append(claims, []string{"--new", project})
	}
	for _, args := range claims {
		out, err := c.us.run(append([]string{"site", "enable"}, args...)...)
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "nothing was changed") || strings.Count(err.Error(), "\n") > 1 {
			c.Errorf("site enable %q: %v: %s", args, err, out)
		}
	}
	sameRefs(c, "the repository", c.us.refs(project), refs)
	if got := c.global(project); !maps.Equal(got, global) {
		c.Errorf("the database has %v, and had %v", got, global)
	}
	if now := c.g.run(c, repo, "config", "--local", "--list"); now != settings {
		c.Errorf("git's settings were\n%s\nand are\n%s", settings, now)
	}
	if _, err := os.Lstat(filepath.Join(repo, "hooks/reference-transaction")); err == nil {
		c.Error("it has hooks")
	}
}

// A project's objects are not promised by a site that does not have them all.
func TestAShallowRepositoryCanNotLetTheDatabaseKeepObjects(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{})
	repo := c.us.repo("cut")
	g.run(t, c.h.dir, "update-ref", "refs/heads/main", c.h.b)
	g.run(t, "/", "clone", "--quiet", "--bare", "--depth", "1", "file://"+c.h.dir, repo)
	c.us.must("site", "enable", "--new", "cut") // the database keeps no objects
	out, err := c.us.run("site", "store", "start", "cut", "--reason", "test")
	if err == nil || !strings.Contains(err.Error(), "git fetch --unshallow") {
		t.Errorf("%v: %s", err, out)
	}
	if p, _, err := c.db.Projects().Get(t.Context(), "cut"); err != nil || p.Store != "" {
		t.Errorf("it keeps %q: %v", p.Store, err)
	}
}
