package site_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// inside returns a command line that runs another one in a PID namespace below the test's, which ends with it.
func inside(t *testing.T, options []string, command ...string) *exec.Cmd {
	t.Helper()
	unshare := append([]string{"--pid", "--fork", "--kill-child"}, options...)
	if out, err := exec.Command("unshare", append(unshare, "true")...).CombinedOutput(); err != nil {
		t.Skipf("a PID namespace can't be made here (as root it can): %v: %s", err, out)
	}
	return exec.Command("unshare", append(unshare, command...)...)
}

// mounted gives a PID namespace its own /proc, as containers have it.
var mounted = []string{"--mount-proc"}

func TestAPushFromAPIDNamespaceBelowTheDaemons(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	updateRef := func(ref string) []string {
		return []string{"git", "--git-dir=" + g.repo, "update-ref", "refs/heads/" + ref, g.commit[0]}
	}
	for what, c := range map[string]struct {
		command []string
		ref     string
	}{
		"of a git that is its first process": {updateRef("first"), "first"},
		"of a git that another one started":  {append([]string{"sh", "-c", `"$@"; exit $?`, "sh"}, updateRef("later")...), "later"},
	} {
		if out, err := inside(t, mounted, c.command...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", what, err, out)
		}
		g.has("refs/heads/"+c.ref, g.commit[0], g.commit[0])
	}
	out, err := inside(t, nil, append([]string{"sh", "-c", `"$@"; exit $?`, "sh"}, updateRef("unmounted")...)...).CombinedOutput()
	if err == nil {
		t.Error("without its own /proc: it was let through")
	}
	sitetest.Contains(t, string(out), "the /proc that the hook sees is not that of its PID namespace: mount it (unshare --mount-proc)")
	g.has("refs/heads/unmounted", "", "")
}

func TestAPushInAPIDNamespaceThatEndsIsSettled(t *testing.T) {
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	s := g.sessionOf(inside(t, mounted, "git", "--git-dir="+g.repo, "update-ref", "--stdin"))
	if err := s.prepare("create refs/heads/x " + g.commit[0]); err != nil {
		t.Fatal(err)
	}
	// The daemon restarts in between: the next one finds the process by what the intent says.
	if err := g.daemon.Reload(g.newConfig(func(old string) string { return old + "[site]\n\tstopTimeout = 20ms\n" })); err != nil {
		t.Fatal(err)
	}
	g.halt()
	g.start()
	if n := g.intents(); n != 1 {
		t.Errorf("%d intents while git runs", n)
	}
	s.kill()
	sitetest.Eventually(t, "the push is settled", func() bool { return g.intents() == 0 })
	g.has("refs/heads/x", "", "")
	g.unlock()
	g.git("update-ref", "refs/heads/x", g.commit[1])
	g.has("refs/heads/x", g.commit[1], g.commit[1])
}

func TestAWrappedGitPushesIfTheConfigurationNamesIt(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wrapped := filepath.Join(t.TempDir(), ".vcs-wrapped")
	if err := testprogram.Write(wrapped, program); err != nil {
		t.Fatal(err)
	}
	shared := local.SQLite(t)
	for _, c := range []struct {
		site, setting, says string
	}{
		{"eu-1", "", "was started by .vcs-wrapped, which is not git: nothing was changed; if it is, add it to the site's configuration as site.gitExe"},
		{"eu-2", "[site]\n\tgitExe = .vcs-wrapped", ""},
	} {
		g := newGuard(t, shared, c.site, c.setting)
		out, err := exec.Command(wrapped, "--git-dir="+g.repo, "update-ref", "refs/heads/x", g.commit[0]).CombinedOutput()
		if (err == nil) != (c.says == "") {
			t.Errorf("%s: %v: %s", c.site, err, out)
		}
		sitetest.Contains(t, string(out), c.says)
	}
}
