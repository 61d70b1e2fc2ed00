package install_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/config"
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

// Git reads the configuration of a work tree after the repository's. What is there can switch the site's hooks off, for pushes into that work
// tree, too.
func TestASettingOfAWorkTreeMustNotLeadPastTheHooks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		linked     bool
		key, value string
		code       string
	}{
		"hooks elsewhere":                       {false, "core.hooksPath", "/elsewhere", "hooks-path"},
		"hooks elsewhere in a linked work tree": {true, "core.hooksPath", "/elsewhere", "hooks-path"},
		"refs that are shown":                   {false, "receive.hideRefs", "!refs/heads", "hooks-path"},
		"refs that a linked work tree shows":    {true, "transfer.hideRefs", "!refs/heads", "hooks-path"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sitetest.NewReplicas(t)
			r.Serve(t)
			r.Both(t, sitetest.MainRef, r.A.Commit(t, "x"))
			sitetest.GitIn(t, r.B.Dir, "fetch", "--quiet", r.A.Dir, "+refs/heads/*:refs/heads/*")
			for _, setting := range [][2]string{{"core.repositoryFormatVersion", "1"}, {"extensions.worktreeConfig", "true"}} {
				sitetest.GitIn(t, r.B.Dir, "config", setting[0], setting[1])
			}
			tree := r.B.Dir
			if c.linked {
				tree = filepath.Join(t.TempDir(), "linked")
				sitetest.GitIn(t, r.B.Dir, "worktree", "add", "--quiet", tree, "main")
			}
			sitetest.GitIn(t, tree, "config", "--worktree", c.key, c.value)
			was := r.B.Files(t)
			if _, err := r.Enable(t, sitetest.HookFile(t, "")); err == nil || !strings.Contains(err.Error(), "config.worktree") {
				t.Errorf("enable: %v", err)
			}
			if is := r.B.Files(t); is != was {
				t.Errorf("was:\n%s\nis:\n%s", was, is)
			}
			sitetest.GitIn(t, tree, "config", "--worktree", "--unset-all", c.key)
			if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
				t.Fatal(err)
			}
			if found := r.Check(t, r.DB, false); found != "" {
				t.Errorf("check finds %q", found)
			}
			sitetest.GitIn(t, tree, "config", "--worktree", c.key, c.value)
			if found := r.Check(t, r.DB, true); !strings.Contains(found, c.code) || strings.Contains(found, "mended") {
				t.Errorf("check finds %q", found)
			}
			var detail string
			err := check.Run(t.Context(), r.Config, nil, []config.Repository{r.RepositoryB()}, check.Options{}, func(f check.Finding) { detail = f.Detail })
			advice := regexp.MustCompile(`remove it: (git config --file \S+ --unset-all \S+)$`).FindStringSubmatch(detail)
			if err != nil || advice == nil {
				t.Fatalf("%v, no advice: %s", err, detail)
			}
			sitetest.Run(t, "/", "sh", "-c", advice[1])
			if found := r.Check(t, r.DB, false); found != "" {
				t.Errorf("check finds %q", found)
			}
		})
	}
}
