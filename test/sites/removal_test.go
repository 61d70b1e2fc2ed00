//go:build linux

package sites

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// followsRemovals lets a site move repositories of removed projects to the directory that it returns.
func (s *server) followsRemovals(extra string) (dir string) {
	s.c.Helper()
	dir = filepath.Join(s.dir, "removed")
	if err := os.Mkdir(dir, 0o755); err != nil {
		s.c.Fatal(err)
	}
	s.stop()
	s.configure(extra + "\tfollowRemoval = " + dir + "\n")
	s.start()
	return dir
}

// movesAside waits until a site has moved the repository of a project below dir, and returns where it is.
func (s *server) movesAside(dir, project string) (repo string) {
	s.c.Helper()
	eventually(s.c, "site "+s.name+" moves "+project+" aside", func() error {
		found, err := filepath.Glob(filepath.Join(dir, "refdb-removed-*Z", project+".git"))
		if len(found) != 1 {
			return errors.Join(err, fmt.Errorf("%s has %v", dir, found))
		}
		repo = found[0]
		return nil
	})
	return repo
}

// remains waits until the status says that the repository of a removed project is here, and why.
func (s *server) remains(project, reason string) {
	s.c.Helper()
	s.behind(project, "its repository is still here: "+reason)
}

// fails runs refdbctl, which must say so.
func (s *server) fails(text string, args ...string) {
	s.c.Helper()
	if _, err := s.run(args...); err == nil || !strings.Contains(err.Error(), text) {
		s.c.Errorf("refdbctl %s: %v, want %q", args, err, text)
	}
}

// enables waits until the name of a removed project can be used again.
func (s *server) enables(args ...string) {
	s.c.Helper()
	eventually(s.c, "the name can be used again", func() error {
		_, err := s.run(append([]string{"site", "enable"}, args...)...)
		return err
	})
}

func TestTheRepositoryOfARemovedProjectIsMovedAside(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a site looks for removed projects some seconds apart; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing})
	dir := c.us.followsRemovals(storing)
	c.eu.pushed(c.h.a+":refs/heads/main", c.h.b+":refs/tags/v1")
	c.us.follows(project)
	before := c.us.refs(project)
	// Somebody has moved a ref past the guard.
	g.run(t, c.us.repo(project), "-c", "core.hooksPath=/dev/null", "update-ref", "refs/heads/theirs", c.h.b)

	c.eu.must("project", "remove", project, "--yes", "--reason", "it moved")
	c.us.remains(project, "refs/heads/theirs has a value that the database never had (refs with such values: 1)")
	c.eu.refused("was removed", c.h.b+":refs/heads/new")
	c.us.refused("was removed", c.h.b+":refs/heads/new")
	g.run(t, c.us.repo(project), "-c", "core.hooksPath=/dev/null", "update-ref", "-d", "refs/heads/theirs")
	aside := c.us.movesAside(dir, project)
	if _, err := os.Lstat(c.us.repo(project)); !os.IsNotExist(err) {
		t.Errorf("it is in its old place, too: %v", err)
	}
	for ref, value := range before {
		if got := strings.TrimSpace(g.run(t, aside, "rev-parse", ref)); got != value {
			t.Errorf("%s aside is %s, want %s", ref, got, value)
		}
	}

	// A site that does not follow removals keeps its repository, and says so.
	if out, _ := c.eu.run("site", "check", project); !strings.Contains(out, "project-removed") {
		t.Errorf("site check: %s", out)
	}
	c.us.fails("was removed", "site", "clone", project)
	c.eu.fails("was removed", "site", "enable", project)

	// From there it can be brought back.
	c.eu.enables("--new", project)
	c.eu.pushed(c.h.b + ":refs/heads/main")
	c.us.must("site", "clone", project)
	c.us.follows(project)
}

func TestAProjectThatWasRemovedAndMadeAgainIsAnotherOne(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a name is free again after 24 s; make test-all runs it")
	}
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	const cloning = storing + "\tautoClone = true\n"
	c := newCluster(t, g, design{extra: cloning})
	dir := c.us.followsRemovals(cloning)
	c.eu.pushed(c.h.a + ":refs/heads/main")
	c.us.follows(project)
	c.us.stop() // it hears of neither

	c.eu.must("project", "remove", project, "--yes")
	c.eu.losesRepository(project)
	g.initBare(t, c.eu.repo(project), files)
	const older = "UPDATE projects SET time = time - ?"
	c.passes(-time.Hour, older) // however long it takes, it has just been removed
	c.eu.fails("has just been removed", "site", "enable", project)
	c.passes(2*time.Hour, older)
	c.eu.enables(project)
	c.eu.soon(c.h.b + ":refs/heads/other") // the rules of the project have just changed

	c.us.start()
	c.us.refused("not a copy of the project", c.h.b+":refs/heads/main")
	aside := c.us.movesAside(dir, project)
	if got := strings.TrimSpace(g.run(t, aside, "rev-parse", "refs/heads/main")); got != c.h.a {
		t.Errorf("aside is %s, want %s", got, c.h.a)
	}
	c.us.clones(project)
	if refs := c.us.refs(project); len(refs) != 1 || refs["refs/heads/other"] != c.h.b {
		t.Errorf("its own refs are %v", refs)
	}
}
