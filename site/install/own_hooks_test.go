package install_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/install"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// push pushes a value to a ref of site b over receive-pack, as a client does, and returns what the client reads.
func push(tb testing.TB, r *sitetest.Replicas, value, ref string) (says string, accepted bool) {
	tb.Helper()
	cmd := exec.Command("git", "push", r.B.Dir, value+":"+ref)
	cmd.Dir = r.A.Dir
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// dispatching is the hook of a forge: it runs what is in the directory NAME.d, NAME being the name that it runs under.
const dispatching = `for hook in "${GIT_DIR:-.}/hooks/$(basename "$0").d"/*; do
	test -x "$hook" || continue
	"$hook" "$@" || exit 1
done`

// protect gives site b a forge's hooks, which refuse all pushes but to refs/heads/open.
func protect(tb testing.TB, b sitetest.Bare, version string) {
	tb.Helper()
	for _, name := range []string{"pre-receive", "update"} {
		os.Remove(filepath.Join(b.Dir, "hooks", name))
		sitetest.ForeignHook(tb, b, name, "# "+version+"\n"+dispatching)
	}
	sitetest.ForeignHook(tb, b, "pre-receive.d/forge", `while read old new ref; do [ $ref = refs/heads/open ] || { echo "protected branch" >&2; exit 1; }; done`)
}

func TestAForgesHooksKeepTheirNames(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	protect(t, r.B, "1")
	tip := r.A.Commit(t, "x")
	if says, ok := push(t, r, tip, "refs/heads/closed"); ok || !strings.Contains(says, "protected branch") {
		t.Fatalf("before: %v, %s", ok, says)
	}
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	if says, ok := push(t, r, tip, "refs/heads/closed"); ok || !strings.Contains(says, "protected branch") {
		t.Errorf("after enable: %v, %s", ok, says)
	}
	if says, ok := push(t, r, tip, "refs/heads/open"); !ok || r.Get(t, "refs/heads/open") != refdb.Value(tip) {
		t.Errorf("what the forge allows: %v, %s", ok, says)
	}
}

func TestAForgeMayWriteItsHooksAnew(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	protect(t, r.B, "1")
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	protect(t, r.B, "2")
	if found := r.Check(t, r.DB, false); found != "" {
		t.Errorf("check finds %s", found)
	}
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Error(err)
	}
	tip := r.A.Commit(t, "x")
	if says, ok := push(t, r, tip, "refs/heads/closed"); ok || !strings.Contains(says, "protected branch") {
		t.Errorf("%v, %s", ok, says)
	}
	if says, ok := push(t, r, tip, "refs/heads/open"); !ok || r.Get(t, "refs/heads/open") != refdb.Value(tip) {
		t.Errorf("what the forge allows: %v, %s", ok, says)
	}
}

// The daemon asks for it before git hands refs to the hook proc-receive, of which the site has one in any case.
func TestAHookOfTheRepositorysOwnIsFoundWhereItIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hooksPath string // in the repository; "" for none
		file      string
		mode      os.FileMode
		want      bool
	}{
		"none":                           {"", "hooks/post-receive", 0o755, false},
		"in the usual place":             {"", "hooks/proc-receive", 0o755, true},
		"one that can't be run":          {"", "hooks/proc-receive", 0o644, false},
		"in another directory":           {"custom", "custom/proc-receive", 0o755, true},
		"in a directory without meaning": {"custom", "hooks/proc-receive", 0o755, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sitetest.NewReplicas(t)
			r.Serve(t)
			if c.hooksPath != "" {
				sitetest.GitIn(t, r.B.Dir, "config", "core.hooksPath", filepath.Join(r.B.Dir, c.hooksPath))
			}
			if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(r.B.Dir, c.file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"), c.mode); err != nil {
				t.Fatal(err)
			}
			if got := install.HasOwnHook(r.B.Dir, "proc-receive"); got != c.want {
				t.Errorf("has one: %v", got)
			}
		})
	}
}

// Forges also link the directory of a repository's hooks to one that all repositories share.
func TestHooksThatOtherRepositoriesShareStayAsTheyAre(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	shared := t.TempDir()
	said := filepath.Join(t.TempDir(), "said")
	if err := testprogram.Write(filepath.Join(shared, "pre-receive"), []byte("#!/bin/sh\ncat >/dev/null; echo $0 >>"+said+"\n")); err != nil {
		t.Fatal(err)
	}
	for _, b := range []sitetest.Bare{r.A, r.B} {
		if err := os.RemoveAll(filepath.Join(b.Dir, "hooks")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(shared, filepath.Join(b.Dir, "hooks")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	if names, err := filepath.Glob(shared + "/*"); err != nil || len(names) != 1 {
		t.Errorf("in the shared directory: %q, %v", names, err)
	}
	tip := r.A.Commit(t, "x")
	if says, ok := push(t, r, tip, "refs/heads/x"); !ok || r.Get(t, "refs/heads/x") != refdb.Value(tip) {
		t.Errorf("%v, %s", ok, says)
	}
	if text, err := os.ReadFile(said); string(text) != "hooks/pre-receive\n" {
		t.Errorf("the own hook ran as %q, %v", text, err)
	}
	sitetest.GitIn(t, r.A.Dir, "update-ref", "refs/heads/unguarded", tip)
}

func TestOwnHooksRunAsInARepositoryWithoutGuard(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	r.Serve(t)
	said := filepath.Join(t.TempDir(), "said")
	// Left out is what differs from one push to the next, and what the shell adds.
	record := `case ${0##*/} in update|proc-receive|post-*) in= ;; *) in=$(cat) ;; esac
{
	echo "$0 $*"; readlink /proc/$$/cwd; echo "$in"
	tr '\0' '\n' </proc/$$/environ | grep -v '^\(PWD\|OLDPWD\|SHLVL\|_\)=' | sed 's/incoming-[A-Za-z0-9]*/QUARANTINE/' | sort
	grep '^Sig[IB]' /proc/self/status; ulimit -a; umask
} >>` + said + `
[ ${0##*/} = proc-receive ] || echo "${0##*/} to stdout"; echo "${0##*/} to stderr" >&2
`
	for _, name := range []string{"pre-receive", "update", "proc-receive", "post-receive", "post-update", "reference-transaction"} {
		status := "exit 0"
		switch name {
		case "update":
			status = "case $1 in *bad) exit 3;; esac"
		case "proc-receive":
			status = "exit 4"
		}
		sitetest.ForeignHook(t, r.B, name, record+status)
	}
	sitetest.GitIn(t, r.B.Dir, "config", "receive.advertisePushOptions", "true")
	sitetest.GitIn(t, r.B.Dir, "config", "receive.procReceiveRefs", "refs/for")
	tip := r.A.Commit(t, "x")
	pushes := func() string {
		t.Helper()
		var says strings.Builder
		for _, args := range [][]string{
			{"-o", "an=option", r.B.Dir, tip + ":refs/heads/good", tip + ":refs/heads/bad"},
			{r.B.Dir, tip + ":refs/for/main"},
			{r.B.Dir, ":refs/heads/good"},
		} {
			// As under nohup: hooks inherit what is ignored.
			cmd := exec.Command("sh", append([]string{"-c", `trap "" HUP; exec git push "$@"`, "sh"}, args...)...)
			cmd.Dir = r.A.Dir
			out, err := cmd.CombinedOutput()
			lines := slices.Sorted(strings.Lines(string(out))) // git relays those of some hooks
			says.WriteString(strings.Join(lines, ""))
			if err != nil {
				says.WriteString(err.Error() + "\n")
			}
		}
		text, err := os.ReadFile(said)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(said); err != nil {
			t.Fatal(err)
		}
		return says.String() + string(text)
	}
	was := pushes()
	if _, err := r.Enable(t, sitetest.HookFile(t, "")); err != nil {
		t.Fatal(err)
	}
	is, before := strings.Split(pushes(), "\n"), strings.Split(was, "\n")
	for i, line := range is[:min(len(is), len(before))] {
		if line != before[i] {
			t.Fatalf("line %d was %q, is %q", i, before[i], line)
		}
	}
	if len(is) != len(before) {
		t.Errorf("%d lines, were %d", len(is), len(before))
	}
	if got := r.Get(t, "refs/heads/good"); got != refdb.Deleted {
		t.Errorf("the database has %q", got)
	}
}
