package maker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/maker"
)

func TestMain(m *testing.M) { os.Exit(sitetest.Main(m)) }

// begin returns a Maker that has begun, and the directory that it makes things in.
func begin(t *testing.T, c *config.Config, path string) (*maker.Maker, string) {
	t.Helper()
	m, err := maker.New(t.Context(), c, path)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := m.Dir()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config"), nil, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m, dir
}

func TestARepositoryIsMadeInTheReservedDirectoryOfTheRoot(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	outside := filepath.Join(t.TempDir(), "elsewhere", "b.git")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	more := fmt.Sprintf("[repository %q]\npath = %s\n", "b", outside)
	c := sitetest.SiteConfig(t, root, more)
	for _, row := range []struct{ path, madeIn string }{
		{filepath.Join(root, "a.git"), filepath.Join(root, config.UnfinishedDir)},
		{filepath.Join(root, "team", "deep", "a.git"), filepath.Join(root, config.UnfinishedDir)},
		{filepath.Join(link, "linked.git"), filepath.Join(root, config.UnfinishedDir)},
		{outside, filepath.Dir(outside)},
	} {
		m, dir := begin(t, c, row.path)
		if filepath.Dir(dir) != row.madeIn {
			t.Errorf("%s is made as %s", row.path, dir)
		}
		if all, err := c.Repositories(); err != nil || len(all) != 1 {
			t.Errorf("while it is made there are %v, %v", all, err)
		}
		if err := errors.Join(m.Finish(), m.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(row.path, "config")); err != nil {
			t.Error(err)
		}
		for _, below := range []string{root, filepath.Dir(row.path)} {
			if left, err := filepath.Glob(filepath.Join(below, ".refdb-*")); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		}
	}
}

// What is there, in whatever way it came, is not touched.
func TestNothingIsReplaced(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	c := sitetest.SiteConfig(t, root, "")
	path := filepath.Join(root, "a.git")
	m, dir := begin(t, c, path)
	theirs := filepath.Join(path, "theirs")
	if err := os.MkdirAll(theirs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := m.Finish(); err == nil {
		t.Error("it is at its path")
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("left: %v", err)
	}
	again, err := maker.New(t.Context(), c, path)
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := again.Dir(); err == nil {
		t.Errorf("it is made in %s", dir)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Error(err)
	}
}

// Makers of different repositories share the directory, which the last one removes while others begin.
func TestManyMakersAtOnce(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	c := sitetest.SiteConfig(t, root, "")
	ended := make(chan error)
	const makers, repositories = 8, 20
	for n := range makers {
		go func() {
			var failed error
			for i := range repositories {
				path := filepath.Join(root, fmt.Sprintf("r%d", i%2), fmt.Sprintf("a%d-%d.git", n/2, i))
				m, err := maker.New(t.Context(), c, path)
				if err != nil {
					failed = errors.Join(failed, err)
					continue
				}
				if dir, err := m.Dir(); err == nil { // else the other one has made it
					failed = errors.Join(failed, os.WriteFile(filepath.Join(dir, "config"), nil, 0o644), m.Finish())
				}
				failed = errors.Join(failed, m.Close())
			}
			ended <- failed
		}()
	}
	for range makers {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	made, err := filepath.Glob(filepath.Join(root, "r*", "a*.git", "config"))
	if err != nil || len(made) != makers/2*repositories {
		t.Errorf("%d were made, %v", len(made), err)
	}
	if _, err := os.Stat(filepath.Join(root, config.UnfinishedDir)); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
}

func TestWaitingForAnotherMakerEndsWithTheContext(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	c := sitetest.SiteConfig(t, root, "")
	m, _ := begin(t, c, filepath.Join(root, "a.git"))
	defer m.Close()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("enough"))
	defer cancel()
	if _, err := maker.New(ctx, c, filepath.Join(root, "a.git")); err == nil || err.Error() != "enough" {
		t.Errorf("the second one: %v", err)
	}
}
