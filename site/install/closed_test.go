package install_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/hookdir"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// Git runs no hook that it does not find. Each of these refuses pushes, and reading goes on.
func TestWithoutTheSitesHooksNoPushIsAccepted(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(testing.TB, *sitetest.Replicas){
		"the directory is gone": func(tb testing.TB, r *sitetest.Replicas) {
			if err := os.RemoveAll(r.Config.Hooks); err != nil {
				tb.Fatal(err)
			}
		},
		"it leads nowhere": func(tb testing.TB, r *sitetest.Replicas) {
			if err := hookdir.Dir(r.Config.Hooks).Close(); err != nil {
				tb.Fatal(err)
			}
		},
		"a repository restored from another machine": func(tb testing.TB, r *sitetest.Replicas) {
			text := strings.ReplaceAll(r.B.File(tb, "config"), r.Config.Hooks, "/srv/another/.refdb-hooks")
			if err := os.WriteFile(filepath.Join(r.B.Dir, "config"), []byte(text), 0o644); err != nil {
				tb.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sitetest.NewReplicas(t)
			stop := r.Serve(t)
			// What an administrator shows in spite of hiding others must not stay open.
			for _, value := range []string{"refs/heads", "!refs/heads/x"} {
				sitetest.GitIn(t, r.B.Dir, "config", "--add", "transfer.hideRefs", value)
			}
			if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
				t.Fatal(err)
			}
			tip := r.A.Commit(t, "x")
			if says, ok := push(t, r, tip, "refs/heads/x"); !ok {
				t.Fatalf("before: %s", says)
			}
			stop() // or it restores them
			lose(t, r)
			for _, update := range []string{r.A.Commit(t, "y", tip) + ":refs/heads/x", tip + ":refs/tags/new", ":refs/heads/x"} {
				value, ref, _ := strings.Cut(update, ":")
				if says, ok := push(t, r, value, ref); ok || !strings.Contains(says, "hidden ref") && !strings.Contains(says, "[remote rejected]") {
					t.Errorf("%s: %v, %s", update, ok, says)
				}
			}
			local := exec.Command("git", "-C", r.B.Dir, "update-ref", "refs/heads/local", tip)
			local.Env = append(os.Environ(), "REFDB_HOOK_TIMEOUT=100ms") // the daemon does not answer
			if out, err := local.CombinedOutput(); err == nil {
				t.Errorf("git moved a ref by itself: %s", out)
			}
			if got := sitetest.GitIn(t, "/", "ls-remote", r.B.Dir, "refs/heads/x"); got != tip+"\trefs/heads/x" {
				t.Errorf("readers get %q", got)
			}
			r.Serve(t)
			if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
				t.Fatal(err)
			}
			if says, ok := push(t, r, r.A.Commit(t, "z", tip), "refs/heads/x"); !ok {
				t.Errorf("afterwards: %s", says)
			}
			if says, ok := push(t, r, tip, "refs/heads/hidden"); ok {
				t.Errorf("a ref that an administrator hides: %s", says)
			}
		})
	}
}

// Forges and tools such as husky set core.hooksPath. Only what git reads after the repository's configuration may lead it past the site's hooks.
func TestAnotherHooksPathInTheRepositorysConfigurationHasNoEffect(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	sitetest.GitIn(t, r.B.Dir, "config", "core.hooksPath", elsewhere)
	tip := r.A.Commit(t, "x")
	if says, ok := push(t, r, tip, "refs/heads/x"); !ok || r.Get(t, "refs/heads/x") != refdb.Value(tip) {
		t.Errorf("the database has %q: %v, %s", r.Get(t, "refs/heads/x"), ok, says)
	}
	if found := r.Check(t, r.DB, false); found != "" {
		t.Errorf("check finds %s", found)
	}
	// In a file that is included at the end it has one, until a repair.
	file := filepath.Join(elsewhere, "config")
	sitetest.GitIn(t, "/", "config", "--file", file, "core.hooksPath", elsewhere)
	sitetest.GitIn(t, r.B.Dir, "config", "--add", "include.path", file)
	if found := r.Check(t, r.DB, true); found != "hooks-path "+elsewhere+" mended" {
		t.Errorf("check finds %q", found)
	}
	if says, ok := push(t, r, tip, "refs/heads/y"); !ok || r.Get(t, "refs/heads/y") != refdb.Value(tip) {
		t.Errorf("the database has %q: %v, %s", r.Get(t, "refs/heads/y"), ok, says)
	}
	if err := r.Disable(t); err != nil {
		t.Fatal(err)
	}
	if got := sitetest.GitIn(t, r.B.Dir, "config", "core.hooksPath"); got != elsewhere {
		t.Errorf("core.hooksPath is %s", got)
	}
}

// A container without the directory's file system is one for which it is gone, whatever others see.
func TestInAContainerWithoutTheSitesHooksNoPushIsAccepted(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	c := *r.Config
	c.Hooks = t.TempDir() + "/hooks"
	for dir := filepath.Dir(c.Hooks); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			break
		}
	}
	if err := install.Enable(t.Context(), &c, r.RepositoryB(), sitetest.HookFile(t, ""), func(install.Step) {}); err != nil {
		t.Fatal(err)
	}
	tip := r.A.Commit(t, "x")
	cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount -t tmpfs none "$1" && git push "$2" "$3:refs/heads/x"`, "sh", filepath.Dir(c.Hooks), r.B.Dir, tip)
	cmd.Dir = r.A.Dir
	out, err := cmd.CombinedOutput()
	if sitetest.NoNamespace(string(out)) {
		t.Skipf("left out: another mount namespace, which can't be made here: %s", out)
	}
	if err == nil || !strings.Contains(string(out), "hidden ref") {
		t.Errorf("%v, %s", err, out)
	}
	if says, ok := push(t, r, tip, "refs/heads/x"); !ok {
		t.Errorf("outside of it: %s", says)
	}
}

// Git reads the file with the site's part of the configuration as the user who pushes.
func TestAnotherUserWhoCannotEnterTheSitesHooksPushesNothing(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("left out: a push as another user, which needs root")
	}
	const other = 65534
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	tip := r.A.Commit(t, "x")
	sitetest.Run(t, "/", "chmod", "-R", "a+rwX", r.B.Dir)
	for dir := r.B.Dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	trusting := filepath.Join(t.TempDir(), "gitconfig")
	if err := os.WriteFile(trusting, []byte("[safe]\n\tdirectory = *\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(trusting); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	pushes := func() (string, bool) {
		cmd := exec.Command("git", "push", r.B.Dir, tip+":refs/heads/x")
		cmd.Dir = r.A.Dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+trusting)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: other, Gid: other}}
		out, err := cmd.CombinedOutput()
		return string(out), err == nil
	}
	for _, closed := range []string{r.Config.Hooks, filepath.Join(r.Config.Hooks, "current")} {
		if err := os.Chmod(closed, 0o700); err != nil {
			t.Fatal(err)
		}
		if says, ok := pushes(); ok || !strings.Contains(says, "ermission denied") && !strings.Contains(says, "hidden ref") {
			t.Errorf("%s closed: %v, %s", closed, ok, says)
		}
		if found := r.Check(t, r.DB, false); !strings.Contains(found, hookdir.NotExecutable) {
			t.Errorf("%s closed: check finds %q", closed, found)
		}
		if err := os.Chmod(closed, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if r.B.Refs(t)["refs/heads/x"] != "" {
		t.Error("the ref is there")
	}
}

func TestAMovedRepositoryKeepsItsGuardAndItsOwnHooks(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	protect(t, r.B, "1")
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(filepath.Dir(r.B.Dir), "moved.git")
	if err := os.Rename(r.B.Dir, moved); err != nil {
		t.Fatal(err)
	}
	r.B.Dir = moved
	tip := r.A.Commit(t, "x")
	if says, ok := push(t, r, tip, "refs/heads/closed"); ok || !strings.Contains(says, "protected branch") {
		t.Errorf("what its own hooks refuse: %v, %s", ok, says)
	}
	says, ok := push(t, r, tip, "refs/heads/open")
	if got, err := r.DB.Get(t.Context(), "team/moved", "refs/heads/open"); !ok || err != nil || got != refdb.Value(tip) {
		t.Errorf("the database has %s, %v after a push: %v, %s", got, err, ok, says)
	}
}

// A hook that is written in place, as by a forge that runs as root, must be that of one repository.
func TestAHookThatIsWrittenInPlaceIsThatOfOneRepository(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	other := sitetest.Bare{Dir: filepath.Join(filepath.Dir(r.B.Dir), "other.git")}
	sitetest.GitIn(t, "/", "init", "--quiet", "--bare", other.Dir)
	for _, b := range []sitetest.Bare{r.B, other} {
		found, err := r.Config.Find(b.Dir)
		if err == nil {
			err = install.Enable(t.Context(), r.Config, found, sitetest.HookFile(t, ""), func(install.Step) {})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range hookdir.Names {
		f, err := os.OpenFile(filepath.Join(other.Dir, "hooks", name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("#!/bin/sh\nexit 0\n"); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if found := r.Check(t, r.DB, false); found != "" {
		t.Errorf("check finds %s", found)
	}
	tip := r.A.Commit(t, "x")
	if says, ok := push(t, r, tip, "refs/heads/x"); !ok || r.Get(t, "refs/heads/x") != refdb.Value(tip) {
		t.Errorf("%v, %s", ok, says)
	}
}
