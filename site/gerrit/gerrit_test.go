package gerrit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/gerrit"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

func TestMain(m *testing.M) {
	sitetest.RunLocker()
	os.Exit(m.Run())
}

// directory makes a site directory of files.
func directory(tb testing.TB, files map[string]string) string {
	tb.Helper()
	dir := tb.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

func open(tb testing.TB, files map[string]string) *gerrit.Directory {
	tb.Helper()
	d, err := gerrit.Open(tb.Context(), directory(tb, files))
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// The process that has an index open is found, in each place where Gerrit has one, and none once it has ended.
func TestWhoHasTheIndexesOpen(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"index/accounts_0013/write.lock", "index/changes_0084/open/write.lock"} {
		// Lucene leaves the files.
		dir := directory(t, map[string]string{"index/groups_0010/write.lock": "", file: ""})
		if h, held, err := gerrit.HolderOf(dir); held || err != nil {
			t.Errorf("%s: %+v, %v, before anybody has it open", file, h, err)
		}
		pid, stop := sitetest.Lock(t, filepath.Join(dir, file))
		if h, held, err := gerrit.HolderOf(dir); !held || h.PID != pid || err != nil || h.Offline() {
			t.Errorf("%s: %+v, %v, %v, want process %d", file, h, held, err, pid)
		}
		stop()
		if h, held, err := gerrit.HolderOf(dir); held || err != nil {
			t.Errorf("%s: %+v, %v, after it has ended", file, h, err)
		}
	}
	if _, held, err := gerrit.HolderOf(t.TempDir()); held || err != nil {
		t.Errorf("without an index: %v, %v", held, err)
	}
}

// Gerrit reads what gerrit.config includes; only gerrit.config is changed, and one's comments and mode stay.
func TestIncludedFilesCount(t *testing.T) {
	t.Parallel()
	d := open(t, map[string]string{
		"etc/gerrit.config": "# ours\n[include]\n\tpath = more.config\n[GERRIT]\n\tbasepath = git\n",
		"etc/more.config":   "[gerrit]\n\tinstanceId = mine\n\tallUsers = People\n",
	})
	if d.InstanceID() != "mine" || d.AllUsers() != "People" || d.AllProjects() != "All-Projects" || d.BasePath() != d.Path+"/git" || d.WAR() != d.Path+"/bin/gerrit.war" {
		t.Errorf("%q %q %q %q", d.InstanceID(), d.AllUsers(), d.BasePath(), d.WAR())
	}
	plan, err := d.PlanSettings(t.Context(), d.Settings("/run/refdb/site.sock", "gerrit-eu"))
	if err == nil {
		err = plan.Apply(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(d.Path, "etc/gerrit.config")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); !strings.HasPrefix(s, "# ours\n") || strings.Contains(s, "instanceId") || strings.Contains(s, "socket") {
		t.Errorf("gerrit.config is\n%s", s)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if missing, _, err := d.Missing(t.Context(), d.Settings("/run/refdb/site.sock", "gerrit-eu")); len(missing) > 0 || err != nil {
		t.Errorf("missing: %+v, %v", missing, err)
	}
}

// A configuration that is kept elsewhere stays a link.
func TestAConfigurationMayBeALink(t *testing.T) {
	t.Parallel()
	kept := directory(t, map[string]string{"gerrit.config": "[gerrit]\n\tbasePath = git\n"})
	dir := directory(t, map[string]string{"etc/x": ""})
	link := filepath.Join(dir, "etc/gerrit.config")
	if err := os.Symlink(filepath.Join(kept, "gerrit.config"), link); err != nil {
		t.Fatal(err)
	}
	d, err := gerrit.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := d.PlanSettings(t.Context(), d.Settings("/s", "gerrit-eu"))
	if err == nil {
		err = plan.Apply(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(kept, "gerrit.config"))
	if info, lerr := os.Lstat(link); err != nil || lerr != nil || info.Mode().Type() != os.ModeSymlink || !strings.Contains(string(text), gerrit.DbModule) {
		t.Errorf("%s, %v, %v", text, err, lerr)
	}
}

// Values that mean the same are left as they are.
func TestEquivalentValuesHold(t *testing.T) {
	t.Parallel()
	for text, missing := range map[string]int{
		"[core]\nfsyncObjectFiles\nfsyncRefFiles = on\n":  0,
		"[core]\nfsyncObjectFiles = yes\nfsyncRefFiles=1": 0,
		"[core]\nfsyncObjectFiles = no\nfsyncRefFiles=2":  2,
		"": 2,
	} {
		d := open(t, map[string]string{"etc/gerrit.config": "", "etc/jgit.config": text})
		all, _, err := d.Missing(t.Context(), d.Settings("/s", "i"))
		n := 0
		for _, s := range all {
			if strings.HasPrefix(s.Key, "core.") {
				n++
			}
		}
		if n != missing || err != nil {
			t.Errorf("%q: %d are missing, want %d: %v", text, n, missing, err)
		}
	}
}

func TestTheLargestNumbersOfRefs(t *testing.T) {
	t.Parallel()
	var n gerrit.Numbers
	for _, ref := range []string{
		"refs/changes/41/1041/meta", "refs/changes/03/3/1", "refs/changes/9", "refs/changes/99/9999", "refs/changes/xx/yy/1",
		"refs/users/17/1000017", "refs/users/01/1000001", "refs/users/20/1000020/edit-3/1", "refs/heads/77/78/79",
		"refs/draft-comments/50/5050/1000099", "refs/starred-changes/50/5050/1000099",
	} {
		n.Add(ref)
	}
	if n != (gerrit.Numbers{Change: 1041, Account: 1000017}) {
		t.Errorf("%+v", n)
	}
}

func TestOtherGuardsAreFound(t *testing.T) {
	t.Parallel()
	d := open(t, map[string]string{
		"etc/gerrit.config": "[gerrit]\ninstallDbModule = " + gerrit.DbModule + "\ninstallModule = " + gerrit.SysModule +
			"\ninstallModule = com.gerritforge.gerrit.globalrefdb.validation.LibModule\ninstallModule = com.example.Other\n",
		"lib/globalrefdb-gerrit-3.9.jar": "", "lib/multi-site.jar": "", "lib/aws-dynamodb-refdb.jar": "", "plugins/replication.jar": "", "plugins/spanner-refdb.jar": "",
	})
	want := "[gerrit.installModule = com.gerritforge.gerrit.globalrefdb.validation.LibModule lib/aws-dynamodb-refdb.jar lib/multi-site.jar plugins/spanner-refdb.jar]"
	if got := fmt.Sprint(d.OtherGuards()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
