//go:build linux

package sites

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// storing is the configuration of sites whose new projects have all their objects in the database.
const storing = "\tstore = all\n"

var errBehind = errors.New("it is behind")

// follows waits until a site has what the database has of a project, and all objects of it.
func (s *server) follows(project string) {
	s.c.Helper()
	want := s.c.global(project)
	maps.DeleteFunc(want, func(ref, value string) bool { return ref == "HEAD" || strings.Trim(value, "0") == "" })
	eventually(s.c, "site "+s.name+" follows", func() error {
		if got := s.refs(project); !maps.Equal(got, want) {
			return fmt.Errorf("%w: %v, not %v", errBehind, got, want)
		}
		return nil
	})
	s.c.g.run(s.c, s.repo(project), "fsck", "--connectivity-only", "--no-dangling")
}

func TestSitesFollowWithNothingButTheDatabase(t *testing.T) {
	eachStorage(t, func(t *testing.T, g *git, s storage) {
		c := newCluster(t, g, design{storage: s, h: newHistory(t, g, s.objects, 2, 2), extra: storing})
		step := func(at *server, args ...string) {
			t.Helper()
			at.pushed(args...)
			at.other().follows(project)
		}
		step(c.eu, c.h.a+":refs/heads/main")
		step(c.us, c.h.b+":refs/heads/main")
		step(c.eu, c.h.c+":refs/heads/side", c.h.tag+":refs/tags/annotated")
		step(c.us, "--force", c.h.c+":refs/heads/main")                                                    // a forced move
		step(c.eu, c.h.b+":refs/heads/again")                                                              // what no ref reaches any more
		step(c.us, ":refs/heads/side", c.h.leaves[0]+":refs/heads/side/below")                             // a name that was in the way
		step(c.eu, c.h.children[0][0]+":refs/heads/side/below", c.h.children[1][1]+":refs/heads/deep/one") // a history of its own
		step(c.us, ":refs/heads/again", ":refs/tags/annotated")
		step(c.us, "--atomic", c.h.leaves[1]+":refs/heads/x", c.h.leaves[0]+":refs/heads/y")
	})
}

func TestASiteIsClonedFromTheDatabaseAlone(t *testing.T) {
	eachStorage(t, func(t *testing.T, g *git, s storage) {
		c := newCluster(t, g, design{storage: s, h: newHistory(t, g, s.objects, 2, 2), extra: storing})
		c.eu.must("refs", "put", project, "HEAD", "ref: refs/heads/trunk", "--force")
		c.eu.pushed(c.h.a+":refs/heads/trunk", c.h.tag+":refs/tags/annotated")
		c.us.follows(project)
		c.us.pushed(c.h.b + ":refs/heads/trunk")
		c.us.pushed("--force", c.h.leaves[0]+":refs/heads/trunk")
		c.eu.follows(project)
		out := c.eu.must("site", "store", "compact", "-o", "json", project)
		if !strings.Contains(out, `"position"`) {
			t.Errorf("compacted: %s", out)
		}
		c.us.pushed(c.h.children[0][0] + ":refs/heads/trunk")

		// The disk of us is lost.
		c.us.losesRepository(project)
		c.us.must("site", "store", "verify", project)
		c.us.must("site", "clone", project)
		c.us.follows(project)
		for _, s := range []*server{c.eu, c.us} {
			eventually(t, "HEAD of "+s.name+" follows", func() error {
				if got := s.git("symbolic-ref", "HEAD"); got != "refs/heads/trunk" {
					return fmt.Errorf("%w: it is %s", errBehind, got)
				}
				return nil
			})
		}
		c.us.pushed(c.h.children[0][1] + ":refs/heads/other")
		c.eu.follows(project)
		c.eu.pushed(c.h.children[1][0] + ":refs/heads/third")
		c.us.follows(project)
		if out, err := c.us.run("site", "clone", project); err == nil || !strings.Contains(err.Error(), "has a repository") {
			t.Errorf("cloned over what is there: %s, %v", out, err)
		}
	})
}

// What was acknowledged is in the database, whatever becomes of the site that took it.
func TestTheLossOfADiskLosesNoAcknowledgedPush(t *testing.T) {
	t.Parallel()
	for _, database := range []struct {
		name string
		on   func(testing.TB) database
	}{{"sqlite", onSQLite}, {"postgres", onPostgres}} {
		t.Run(database.name, func(t *testing.T) {
			if testing.Short() && database.name == "sqlite" {
				t.Skip("left out by -short: the same on SQLite; make test-all runs it")
			}
			t.Parallel()
			all, err := gits()
			g := must(t, all, err)[0]
			pushes := 12
			if testing.Short() {
				pushes = 8
			}
			c := newCluster(t, g, design{database: database.on, h: newHistory(t, g, "sha1", pushes, 0), extra: storing})
			for i, leaf := range c.h.leaves {
				ref := fmt.Sprintf("refs/heads/%d", i)
				c.eu.pushed(leaf + ":" + ref)
				if i%4 != 3 {
					continue
				}
				c.eu.kill()
				c.eu.losesRepository(project)
				c.eu.start()
				c.eu.must("site", "clone", project)
				c.eu.follows(project)
				c.us.follows(project)
			}
			for i, leaf := range c.h.leaves {
				if got := c.us.refs(project)[fmt.Sprintf("refs/heads/%d", i)]; got != leaf {
					t.Errorf("push %d was acknowledged and is lost: %s", i, got)
				}
			}
		})
	}
}

// Refs that came without a push have no objects in the database. A base brings them, also to sites that have looked for them in vain.
func TestABaseBringsWhatSitesHaveLookedForInVain(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a base pack that brings objects whose pack was lost; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", 0, 0), extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	c.eu.git("-c", "core.hooksPath=/dev/null", "fetch", "--quiet", c.h.dir, c.h.b+":refs/heads/side")
	c.eu.must("refs", "put", project, "refs/heads/side", c.h.b, "--old", "none")
	eventually(t, "us to look in vain", func() error {
		status, err := c.us.status()
		if err == nil && (len(status.Behind) == 0 || status.Behind[0].Age < 1) {
			err = errPending
		}
		return err
	})
	c.eu.must("site", "store", "compact", project)
	c.us.follows(project)
}

func TestAPushThatBringsTooMuchIsRefused(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing + "\tpackLimit = 1m\n"})
	big := commitOfSize(t, c, 3<<20, c.h.a)
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.eu.refused("brings more than 1 MiB", big+":refs/heads/big")
	c.eu.pushed(c.h.b + ":refs/heads/main")
	c.us.follows(project)
	eventually(t, "the pack of the refused push is dropped", func() error {
		usage, err := c.db.Packs().Usage(t.Context(), project)
		if err == nil && usage.Unused > 0 {
			err = errPending
		}
		return err
	})
}

func TestALargePushIsStoredInParts(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a push of 9 MiB that is stored in parts; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{database: onPostgres, extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	big := commitOfSize(t, c, 9<<20, c.h.a)
	c.eu.pushed(big + ":refs/heads/main")
	c.us.follows(project)
}

// commitOfSize makes a commit with a file that can't be compressed.
func commitOfSize(t *testing.T, c *cluster, size int, parent string) string {
	t.Helper()
	file := filepath.Join(shortDir(t), "file")
	text := make([]byte, size)
	state := uint64(size)
	for i := range text {
		state = state*6364136223846793005 + 1442695040888963407
		text[i] = byte(state >> 56)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	blob := c.g.run(t, c.h.dir, "hash-object", "-w", file)
	tree := c.g.feed(t, c.h.dir, "100644 blob "+blob+"\tfile\n", "mktree")
	return c.g.run(t, c.h.dir, "-c", "user.name=t", "-c", "user.email=t@example.com", "commit-tree", "-m", "big", "-p", parent, strings.TrimSpace(tree))
}

// A site that was away, or whose daemon was killed at any moment, goes on where it was.
func TestASiteThatWasAwayCatchesUp(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	pushes := 20
	if testing.Short() {
		pushes = 10
	}
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", pushes, 1), extra: storing})
	for i, leaf := range c.h.leaves {
		if i%5 == 0 {
			c.us.kill()
		}
		c.eu.pushed(leaf+fmt.Sprintf(":refs/heads/%d", i), c.h.children[i][0]+":refs/heads/busy", "--force")
		if i%5 == 4 {
			c.us.start()
			time.Sleep(time.Duration(i*10) * time.Millisecond) // it is killed sooner or later, whatever it has done by then
		}
	}
	c.us.follows(project)
	if failures := slices.Collect(maps.Values(c.us.refs(project))); len(failures) != pushes+1 {
		t.Errorf("%d refs", len(failures))
	}
}

// Whoever waits reads what was written elsewhere before.
func TestWaitingReadsWhatWasPushedElsewhere(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	pushes := 12
	if testing.Short() {
		pushes = 6
	}
	c := newCluster(t, g, design{h: newHistory(t, g, "sha1", pushes, 0), extra: storing})
	for i, leaf := range c.h.leaves {
		from := []*server{c.eu, c.us}[i%2]
		from.pushed("--force", leaf+":refs/heads/main", leaf+fmt.Sprintf(":refs/heads/%d", i))
		to := from.other()
		to.must("site", "wait", "--limit", patience.String(), project)
		refs := to.refs(project)
		if refs["refs/heads/main"] != leaf || refs[fmt.Sprintf("refs/heads/%d", i)] != leaf {
			t.Fatalf("push %d is not at the other site: %v", i, refs)
		}
	}
	c.us.kill()
	c.eu.pushed("--force", c.h.a+":refs/heads/main")
	eventually(t, "a wait in vain", func() error { // on a busy machine the time may be over before all is compared
		out, err := c.us.run("site", "wait", "--limit", "300ms", project)
		if err == nil {
			t.Fatalf("a site that does not follow has waited: %s", out)
		}
		if !strings.Contains(err.Error(), "behind by 1 ref") {
			return err
		}
		return nil
	})
}

// What a command does to a repository the daemon follows at once: it looks at all directories only once a minute.
func TestARepositoryIsFollowedAsSoonAsItIsEnabled(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	const other = "team/other"
	c := newCluster(t, g, design{projects: []string{project, other}, extra: storing})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	anew := func(project string) {
		t.Helper()
		c.us.losesRepository(project)
		g.initBare(t, c.us.repo(project), files)
		c.us.must("site", "enable", "--copy", c.us.repo(project))
	}
	g.run(t, c.h.dir, "push", "--quiet", c.eu.repo(other), c.h.b+":refs/heads/main")
	c.us.follows(other)
	for began := time.Now(); time.Since(began) < patience; { // a busy machine takes more than a minute for some rounds
		// The first look of a daemon finds that another repository took the place of this one, and compares it.
		c.us.stop()
		replace(t, c.us.repo(other))
		g.run(t, c.us.repo(other), "-c", "core.hooksPath=/dev/null", "update-ref", "-d", "refs/heads/main")
		c.us.start()
		c.us.follows(other)
		anew(project)
		c.us.follows(project)
		status, err := c.us.status()
		if must(t, status, err).Uptime < 60 {
			return // there was no second look
		}
	}
	t.Error("it was not followed before the daemon looked at all directories again")
}

// replace puts a copy of a repository in its place.
func replace(t *testing.T, repo string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", repo, repo+".copy").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := errors.Join(os.RemoveAll(repo), os.Rename(repo+".copy", repo)); err != nil {
		t.Fatal(err)
	}
}
