package clone_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/clone"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// pushInto pushes into a repository, as a client does, and returns what the client reads.
func (g *target) pushInto(dir string) (says string, accepted bool) {
	g.Helper()
	cmd := exec.Command("git", "-C", g.Dir, "push", "--quiet", dir, g.Commit(g, "stray")+":refs/heads/stray")
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// Nothing asks the daemon while a copy is made, wherever the configuration of the system, or of a user, leads git to hooks.
func TestACopyTakesNoPushWhileItIsMade(t *testing.T) {
	for name, row := range map[string]struct {
		config string // of the user
		says   string // to a client
	}{
		"hooks in the repository": {"", "site enable"},
		"hooks elsewhere":         {"[core]\n\thooksPath = ELSEWHERE\n", "hidden ref"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTarget(t)
			g.serve()
			usual, err := os.ReadFile(os.Getenv("GIT_CONFIG_GLOBAL"))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "gitconfig")
			if err := os.WriteFile(file, append(usual, strings.ReplaceAll(row.config, "ELSEWHERE", t.TempDir())...), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("GIT_CONFIG_GLOBAL", file)
			refuses := func(pattern string) {
				t.Helper()
				made, err := filepath.Glob(pattern)
				if err != nil || len(made) != 1 {
					t.Fatalf("made are %v, %v", made, err)
				}
				if says, ok := g.pushInto(filepath.Dir(made[0])); ok || !strings.Contains(says, row.says) {
					t.Errorf("pushed: %v, %s", ok, says)
				}
			}
			if _, err := g.clone(func(driver.Pack) { refuses(filepath.Join(g.unfinished(), "*", "HEAD")) }); err != nil {
				t.Fatal(err)
			}
			g.isGuarded()

			past := filepath.Join(g.config.Root, "past.git")
			if _, err := clone.Clone(t.Context(), g.config, g.db, clone.Options{Project: project, Path: past, Hook: sitetest.Hook()}); err != nil {
				t.Fatal(err)
			}
			refuses(filepath.Join(past, "HEAD"))
			if err := os.RemoveAll(g.config.Hooks); err != nil {
				t.Fatal(err)
			}
			if says, ok := g.pushInto(past); ok {
				t.Errorf("without the site's hooks: %s", says)
			}
		})
	}
}
