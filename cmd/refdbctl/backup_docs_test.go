package main

import (
	"cmp"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// The documented backup and its rehearsal are run as they are written: first without a push since the backup, then with one.
func TestTheDocumentedBackupIsRehearsed(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	text, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Backups\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var lines []string
	for i, block := range strings.Split(section, "\n```") {
		if i%2 == 1 {
			lines = append(lines, strings.Split(strings.TrimPrefix(block, "sh\n"), "\n")...)
		}
	}
	if len(lines) != 6 {
		t.Fatalf("found: %q", lines)
	}

	u, err := url.Parse(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	rehearsal := "rehearsal" + strings.ReplaceAll(strings.TrimPrefix(u.Path, "/"), "test", "")
	password, _ := u.User.Password()
	there := *u
	there.Path = "/" + rehearsal
	t.Cleanup(func() { db.Exec(t, `DROP DATABASE IF EXISTS `+rehearsal+` WITH (FORCE)`) })
	r := newRepo(t, mainRef)
	w := &world{Database: db, env: map[string]string{"REFDB_URL": db.URL(), "REFDB_SITE": "here"}}
	w.do(t, "refs", "import", "team/app", "--repo", r.path)

	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, "refdbctl")); err != nil {
		t.Fatal(err)
	}
	run := func(line string) (string, error) {
		line = strings.NewReplacer("refdb_rehearsal", rehearsal, "-O refdb_owner ", "", "/srv/git/team/app.git", r.path).Replace(line)
		cmd := exec.Command("/bin/sh", "-c", line)
		cmd.Dir = bin
		cmd.Env = append(os.Environ(), asProgram+"=1", "PATH="+bin+":"+os.Getenv("PATH"), "REFDB_URL="+db.URL(), "REHEARSAL_URL="+there.String(),
			"PGHOST="+cmp.Or(u.Query().Get("host"), u.Hostname()), "PGPORT="+u.Port(), "PGUSER="+u.User.Username(), "PGPASSWORD="+password)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for n, row := range []struct {
		fails bool
		says  []string // what its output has, with single spaces
	}{
		{false, nil}, {false, nil}, {false, nil},
		{true, []string{"ok tables ", "FAIL admitted server "}},
		{false, []string{"ADMITTED false", "UNDECIDED 0"}},
		{false, nil},
	} {
		out, err := run(lines[n])
		if (err != nil) != row.fails {
			t.Errorf("%s: %v: %s", lines[n], err, out)
		}
		for _, text := range row.says {
			if !strings.Contains(strings.Join(strings.Fields(out), " "), text) {
				t.Errorf("%s does not say %q: %s", lines[n], text, out)
			}
		}
	}
	r.set(t, mainRef)
	out, err := run(lines[5])
	if failed, ok := err.(*exec.ExitError); !ok || failed.ExitCode() != exit.Failed || !strings.Contains(out, mainRef) {
		t.Errorf("after a push: %v: %s", err, out)
	}
}
