package install_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// In a work tree ./hooks may be a directory that somebody has committed, and git may leave GIT_DIR unset.
func TestAWorkTreeIsGuardedAndItsFilesAreNoHooks(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	tree := filepath.Join(filepath.Dir(r.B.Dir), "tree")
	sitetest.GitIn(t, "/", "init", "--quiet", "--initial-branch=main", tree)
	said := filepath.Join(t.TempDir(), "said")
	for path, script := range map[string]string{"hooks": "echo of the work tree >>" + said, ".git/hooks": "echo of the repository >>" + said} {
		sitetest.ForeignHook(t, sitetest.Bare{Dir: filepath.Join(tree, path, "..")}, "reference-transaction", script)
	}
	for _, dir := range []string{"objects", "refs"} { // it looks like a bare repository
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(tree, "HEAD"), []byte("ref: refs/heads/main\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	sitetest.GitIn(t, tree, "add", ".")
	sitetest.GitIn(t, tree, "config", "receive.denyCurrentBranch", "updateInstead")
	found, err := r.Config.Find(filepath.Join(tree, ".git"))
	if err == nil {
		err = install.Enable(t.Context(), r.Config, found, sitetest.HookFile(t, ""), func(install.Step) {})
	}
	if err != nil {
		t.Fatal(err)
	}
	has := func(ref, want string) {
		t.Helper()
		if got, err := r.DB.Get(t.Context(), found.Project, ref); err != nil || got != refdb.Value(want) {
			t.Errorf("the database has %q, %v, want %q", got, err, want)
		}
	}
	os.Remove(said)
	sitetest.GitIn(t, tree, "commit", "--quiet", "--message", "1")
	first := sitetest.GitIn(t, tree, "rev-parse", "HEAD")
	has("refs/heads/main", first)
	linked := filepath.Join(t.TempDir(), "linked")
	sitetest.GitIn(t, tree, "worktree", "add", "--quiet", "-b", "side", linked)
	sitetest.GitIn(t, linked, "commit", "--quiet", "--allow-empty", "--message", "2")
	second := sitetest.GitIn(t, linked, "rev-parse", "HEAD")
	has("refs/heads/side", second)
	clone := filepath.Join(t.TempDir(), "clone")
	sitetest.GitIn(t, "/", "clone", "--quiet", tree, clone)
	if err := os.WriteFile(filepath.Join(clone, "new"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	sitetest.GitIn(t, clone, "add", "new")
	sitetest.GitIn(t, clone, "commit", "--quiet", "--message", "3")
	cmd := exec.Command("git", "push", "origin", "HEAD:main")
	cmd.Dir = clone
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	has("refs/heads/main", sitetest.GitIn(t, clone, "rev-parse", "HEAD"))
	if _, err := os.Stat(filepath.Join(tree, "new")); err != nil {
		t.Errorf("the push has not updated the work tree: %v", err)
	}
	if text, err := os.ReadFile(said); err != nil || strings.Contains(string(text), "of the work tree") || !strings.Contains(string(text), "of the repository") {
		t.Errorf("hooks that ran: %q, %v", text, err)
	}
}
