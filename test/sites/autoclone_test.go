//go:build linux

package sites

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/config"
)

// create makes a repository of a new project at a site, and pushes to it.
func (s *server) create(project string) {
	s.c.Helper()
	repo := s.repo(project)
	if err := os.MkdirAll(filepath.Dir(repo), 0o755); err != nil {
		s.c.Fatal(err)
	}
	s.c.g.initBare(s.c, repo, files)
	s.must("site", "enable", "--new", repo)
	s.c.g.run(s.c, s.c.h.dir, "push", "--quiet", repo, s.c.h.a+":refs/heads/main")
}

// clones waits until a site has a project that it did not have, and follows it.
func (s *server) clones(project string) {
	s.c.Helper()
	eventually(s.c, "site "+s.name+" clones "+project, func() error {
		_, err := os.Lstat(filepath.Join(s.repo(project), "HEAD"))
		return err
	})
	s.follows(project)
}

// behind waits until a site's status says of a project why it is behind.
func (s *server) behind(project, reason string) {
	s.c.Helper()
	eventually(s.c, "site "+s.name+" says why it does not have "+project, func() error {
		status, err := s.status()
		for _, b := range status.Behind {
			if b.Project == project && strings.Contains(b.Reason, reason) {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("%w: %v", errBehind, status.Behind))
	})
}

func TestASiteClonesProjectsByItself(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{extra: storing + "\tautoClone = true\n"})
	c.eu.pushed(c.h.a + ":refs/heads/main")
	// A daemon that was killed while it cloned has left this.
	left := filepath.Join(c.us.root, config.UnfinishedDir, fmt.Sprintf("%s%x-1", config.Unfinished, sha256.Sum256([]byte(c.us.repo("new/project")))))
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	c.eu.create("new/project")
	c.us.clones("new/project")
	if _, err := os.Lstat(left); !os.IsNotExist(err) {
		t.Errorf("what was left is there: %v", err)
	}
	// It is guarded, too.
	eventually(t, "it is guarded", func() error {
		_, err := g.try(c.h.dir, "push", "--quiet", c.us.repo("new/project"), c.h.b+":refs/heads/other")
		return err
	})
	c.eu.follows("new/project")

	// What is there stays.
	theirs := filepath.Join(c.us.root, "taken.git", "file")
	if err := errors.Join(os.MkdirAll(filepath.Dir(theirs), 0o755), os.WriteFile(theirs, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	c.eu.create("taken")
	c.us.behind("taken", "is there already")
	if _, err := os.Lstat(theirs); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Dir(theirs)); err != nil {
		t.Fatal(err)
	}
	c.us.clones("taken")

	// One that was here may be on a disk that is away.
	if err := os.Rename(c.us.repo("new/project"), filepath.Join(c.us.dir, "away")); err != nil {
		t.Fatal(err)
	}
	c.us.stop()
	c.us.start()
	c.us.behind("new/project", "it was here and is missing")
	c.us.must("site", "clone", "new/project")
	c.us.follows("new/project")
}
