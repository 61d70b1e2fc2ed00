package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/gitrepo"
)

// Whoever looks for lock files that a killed git has left sees no git that has this one.
func TestAConfigurationWhoseLockIsRemovedMeanwhileStaysAsItWas(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a.git")
	if out, err := exec.Command("git", "init", "--quiet", "--bare", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	repo, err := gitrepo.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "config")
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	err = rewrite(t.Context(), repo, func(c GitConfig) error {
		if err := os.Remove(path + ".lock"); err != nil {
			t.Fatal(err)
		}
		return c.Set(t.Context(), "a.b", "c")
	})
	if is, _ := os.ReadFile(path); err == nil || string(is) != string(was) {
		t.Errorf("%v; it is\n%s", err, is)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if err := rewrite(t.Context(), repo, func(c GitConfig) error { return c.Set(t.Context(), "a.b", "c") }); err != nil {
		t.Error(err)
	}
	if is, _ := os.ReadFile(path); !strings.Contains(string(is), "b = c") {
		t.Errorf("it is\n%s", is)
	}
}
