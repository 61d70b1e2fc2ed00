//go:build linux

package sites

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// As a power cut leaves them: an empty file in the place of an object, of which the copy takes the next ref, and in the place of a ref.
func TestWhatIsDamagedInACopyIsRestoredFromTheDatabase(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{h: newHistory(t, g, files.objects, 1, 1), extra: storing})
	c.eu.pushed(c.h.a+":refs/heads/main", c.h.leaves[0]+":refs/heads/side")
	c.us.follows(project)
	repo := c.us.repo(project)
	object := filepath.Join("objects", c.h.a[:2], c.h.a[2:])
	damage := func(file string) {
		t.Helper()
		path := filepath.Join(repo, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	finds := func(text string, args ...string) {
		t.Helper()
		out, err := c.us.run(append([]string{"site", "check", project}, args...)...)
		if text == "" && (err != nil || strings.TrimSpace(out) != "") || text != "" && !strings.Contains(out, text) {
			t.Errorf("site check %q: %v: %s", args, err, out)
		}
	}
	damage(object)
	damage("refs/heads/side")
	finds("object-damaged", "--objects")
	finds(object, "--objects")
	finds("ref-broken")
	finds("mended", "--objects", "--repair")
	finds("", "--objects")
	c.us.follows(project)
	if _, err := os.Stat(filepath.Join(repo, "refdb/damaged")); err != nil {
		t.Errorf("what was damaged is not kept: %v", err)
	}
	c.us.pushed(c.h.b+":refs/heads/main", c.h.children[0][0]+":refs/heads/side")
	c.eu.follows(project)

	// The disk lost all but the refs.
	if err := os.RemoveAll(filepath.Join(repo, "objects")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(repo, "objects/pack"), 0o755); err != nil {
		t.Fatal(err)
	}
	finds("object-missing", "--objects")
	finds("mended", "--objects", "--repair")
	finds("", "--objects")
	c.us.follows(project)

	// By itself the daemon mends an empty ref file when the ref moves next.
	damage("refs/heads/side")
	c.eu.pushed(c.h.children[0][0]+":refs/heads/another", "+"+c.h.c+":refs/heads/side")
	c.us.follows(project)
}

// Nothing is mended that could not be: the advice says what to do.
func TestDamagedObjectsOfAProjectThatIsNotStored(t *testing.T) {
	t.Parallel()
	all, err := gits()
	g := must(t, all, err)[0]
	c := newCluster(t, g, design{})
	c.us.pushed(c.h.a + ":refs/heads/main")
	path := filepath.Join(c.us.repo(project), "objects", c.h.a[:2], c.h.a[2:])
	if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--objects"}, {"--objects", "--repair"}} {
		out, err := c.us.run(append([]string{"site", "check", project}, args...)...)
		if err == nil || !strings.Contains(out, "the database does not keep the objects of the project") {
			t.Errorf("site check %q: %v: %s", args, err, out)
		}
	}
}
