package gerrit

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sitecheck "github.com/globalrefdb/globalrefdb/site/check"
	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/config"
	"github.com/globalrefdb/globalrefdb/site/gerrit"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/site"
)

// newCheck returns a check of a Gerrit without a daemon and a database, which has the given
// repositories, and a function that returns the findings so far, each "code subject: detail".
func newCheck(tb testing.TB, repositories map[string]string) (k *gerritCheck, found func() []string) {
	tb.Helper()
	path := tb.TempDir()
	write(tb, filepath.Join(path, "etc/gerrit.config"), "[gerrit]\nbasePath = git\n")
	dir, err := gerrit.Open(tb.Context(), path)
	if err != nil {
		tb.Fatal(err)
	}
	var all []string
	run := cli.New(cli.Streams{Out: io.Discard, Err: io.Discard, Env: func(string) string { return "" }})
	k = &gerritCheck{app: &app{&site.App{Run: run}}, dir: dir, found: func(f sitecheck.Finding) {
		all = append(all, fmt.Sprintf("%s %s: %s", f.Code, f.Subject, f.Detail))
	}}
	for project, at := range repositories {
		k.repositories = append(k.repositories, config.Repository{Project: project, Path: at})
	}
	return k, func() []string { return all }
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		tb.Fatal(err)
	}
}

// newRepository returns the path of a repository with refs, each of which is a blob with the text.
func newRepository(tb testing.TB, refs map[string]string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "r.git")
	git := func(in string, args ...string) string {
		cmd := exec.Command("git", append([]string{"--git-dir", path}, args...)...)
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.CombinedOutput()
		if err != nil {
			tb.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("", "init", "--quiet", "--bare", "--template=")
	for ref, text := range refs {
		git("", "update-ref", ref, git(text, "hash-object", "-w", "--stdin"))
	}
	return path
}

func TestASequenceMustBeAheadOfTheNumbersInUse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		changes, accounts string
		want              string
	}{
		"both are ahead":             {"2", "1000001", ""},
		"that of changes is behind":  {"1", "1000001", "gerrit-sequence refs/sequences/changes: its next number is 1, but 1 is in use"},
		"that of accounts is behind": {"2", "1000000", "gerrit-sequence refs/sequences/accounts: its next number is 1000000, but 1000000 is in use"},
		"one is no number":           {"2", "many", "gerrit-sequence refs/sequences/accounts: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, found := newCheck(t, map[string]string{
				"All-Projects": newRepository(t, map[string]string{"refs/sequences/changes": c.changes}),
				"All-Users":    newRepository(t, map[string]string{"refs/sequences/accounts": c.accounts, "refs/users/00/1000000": "x"}),
				"team/app":     newRepository(t, map[string]string{"refs/changes/01/1/meta": "x"}),
			})
			if err := k.sequences(t.Context()); err != nil {
				t.Fatal(err)
			}
			expect(t, found(), c.want)
		})
	}
	k, found := newCheck(t, nil)
	if err := k.sequences(t.Context()); err != nil || len(found()) != 2 {
		t.Errorf("without their repositories: %q, %v", found(), err)
	}
}

// expect checks that there is one finding, which begins with want; none if that is "".
func expect(tb testing.TB, found []string, want string) {
	tb.Helper()
	if want == "" && len(found) > 0 || want != "" && (len(found) != 1 || !strings.HasPrefix(found[0], want)) {
		tb.Errorf("found %q, want %q", found, want)
	}
}

func TestARunningGerritMustHaveASessionOfItsVersion(t *testing.T) {
	t.Parallel()
	const pid = 1 << 30 // of no process here
	process := fmt.Sprintf("process %d ", pid)
	for name, c := range map[string]struct {
		sessions []client.Session
		want     string
	}{
		"it has one":   {[]client.Session{{PID: 7, State: client.SessionBroken}, {PID: pid, State: client.SessionOpen, Name: "Gerrit 3.9.4"}}, ""},
		"it has none":  {[]client.Session{{PID: 7, State: client.SessionOpen}}, "gerrit-unguarded "},
		"it is broken": {[]client.Session{{PID: pid, State: client.SessionBroken, Age: 60}}, "gerrit-session : " + process + "has had no session for 1m0s"},
		"it is of another Gerrit": {[]client.Session{{PID: pid, State: client.SessionOpen, Name: "Gerrit 3.9.3"}},
			"gerrit-version Gerrit 3.9.3: " + process + "runs another version than "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, found := newCheck(t, nil)
			library := zipped(t, map[string]string{"com/google/gerrit/common/Version": "v3.9.4\n"})
			write(t, k.dir.WAR(), zipped(t, map[string]string{"WEB-INF/lib/com_google_gerrit_common_libversion.jar": library}))
			k.session(client.Status{Sessions: c.sessions}, gerrit.Holder{PID: pid})
			expect(t, found(), c.want)
		})
	}
}

func zipped(tb testing.TB, files map[string]string) string {
	tb.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, text := range files {
		f, err := w.Create(name)
		if err == nil {
			_, err = f.Write([]byte(text))
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}
