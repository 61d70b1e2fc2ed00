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

func TestAPushFromAnotherPIDNamespaceIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("a PID namespace can't be made here (as root it can): %v: %s", err, out)
	}
	g := newGuard(t, local.SQLite(t), "eu-1")
	out, err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c",
		"git --git-dir="+g.repo+" update-ref refs/heads/x "+g.commit[0]+"; exit $?").CombinedOutput()
	if err == nil {
		t.Error("it was let through")
	}
	sitetest.Contains(t, string(out), "different PID namespaces")
	g.has("refs/heads/x", "", "")
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
