package install_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

// Gitolite decides about each ref in its hook update, which has to be a link to its own program: otherwise it takes no push at all.
func TestGitoliteDecidesAsBefore(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: a real Gitolite, many programs in Perl; make test-all runs it")
	}
	t.Parallel()
	shell := "/usr/share/gitolite3/gitolite-shell" // of Debian's package
	if _, err := exec.LookPath("gitolite"); err != nil {
		t.Skip("left out: Gitolite, which is not installed: apt-get install gitolite3")
	}
	home := t.TempDir()
	env := append(os.Environ(), "HOME="+home, "GIT_CONFIG_GLOBAL=/dev/null")
	gitolite := func(args ...string) {
		t.Helper()
		cmd := exec.Command("gitolite", args...)
		cmd.Dir, cmd.Env = home, env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("gitolite %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	gitolite("setup", "-a", "admin")
	conf := filepath.Join(home, ".gitolite/conf/gitolite.conf")
	if err := os.WriteFile(conf, []byte("repo testing\n    -  refs/heads/closed = admin\n    RW+ = admin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gitolite("compile")
	gitolite("setup")
	r := sitetest.NewReplicas(t)
	r.Config = sitetest.SiteConfig(t, filepath.Join(home, "repositories"), "")
	r.Serve(t)
	r.B.Dir = filepath.Join(home, "repositories/testing.git")
	ssh := filepath.Join(home, "ssh") // as sshd starts it, with a key of the user admin
	if err := testprogram.Write(ssh, []byte("#!/bin/sh\nshift\nSSH_ORIGINAL_COMMAND=\"$*\" SSH_CONNECTION=\"127.0.0.1 1 127.0.0.1 22\" exec "+shell+" admin\n")); err != nil {
		t.Fatal(err)
	}
	tip := r.A.Commit(t, "x")
	push := func(ref string) (string, bool) {
		cmd := exec.Command("git", "push", "git@host:testing", tip+":"+ref)
		cmd.Dir, cmd.Env = r.A.Dir, append(env, "GIT_SSH_COMMAND="+ssh, "GIT_SSH_VARIANT=simple")
		out, err := cmd.CombinedOutput()
		return string(out), err == nil
	}
	decides := func(when, open string) {
		t.Helper()
		if says, ok := push("refs/heads/closed"); ok || !strings.Contains(says, "DENIED") {
			t.Errorf("%s: %v, %s", when, ok, says)
		}
		if says, ok := push(open); !ok {
			t.Errorf("%s: %s", when, says)
		}
	}
	decides("before", "refs/heads/before")
	found, err := r.Config.Find(r.B.Dir)
	if err == nil {
		_, err = projects.Register(t.Context(), r.Config, r.DB, found, projects.New)
	}
	if err == nil {
		err = install.Enable(t.Context(), r.Config, found, sitetest.HookFile(t, ""), func(install.Step) {})
	}
	if err != nil {
		t.Fatal(err)
	}
	decides("under guard", "refs/heads/guarded")
	gitolite("setup") // which writes its hooks anew
	decides("after another set-up", "refs/heads/again")
	for _, ref := range []string{"refs/heads/guarded", "refs/heads/again"} {
		if got, err := r.DB.Get(t.Context(), found.Project, ref); err != nil || got != refdb.Value(tip) {
			t.Errorf("the database has %q of %s, %v", got, ref, err)
		}
	}
	if err := install.Disable(t.Context(), r.Config, nil, found, func(install.Step) {}); err != nil {
		t.Fatal(err)
	}
	decides("afterwards", "refs/heads/afterwards")
}
