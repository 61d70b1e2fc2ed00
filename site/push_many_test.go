package site_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/internal/testprogram"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

func skipMany(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by -short: a push of more refs than a transaction may have, which takes a minute; make test-all runs it")
	}
}

// An atomic push is one transaction with every git: with too many refs its pusher reads why, in one
// line, and nothing has moved.
func TestAnAtomicPushOfTooManyRefsIsRefusedInOneLine(t *testing.T) {
	skipMany(t)
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	specs := []string{"--atomic"}
	for i := range refdb.MaxLockRefs + 1 {
		specs = append(specs, fmt.Sprintf("c0:refs/tags/t%04d", i))
	}
	said, ok := g.client().push(specs...)
	if ok {
		t.Error("it was accepted")
	}
	oneGoodLine(t, said)
	for _, broken := range []string{"fatal", "hung up", "unexpected disconnect"} {
		if strings.Contains(said, broken) {
			t.Errorf("the connection broke: %q", broken)
		}
	}
	if n := strings.Count(g.git("for-each-ref", "refs/tags"), "\n"); n != 0 {
		t.Errorf("%d refs moved here", n)
	}
	for ref, err := range g.db.Refs(t.Context(), "team/app", "refs/tags/") {
		t.Fatalf("%s moved in the database, %v", ref.Name, err)
	}
	if n := g.intents(); n != 0 {
		t.Errorf("%d intents are left", n)
	}
}

func oneGoodLine(t *testing.T, said string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "remote: ") && !strings.HasPrefix(line, fmt.Sprintf("remote: error: hook declined to update refs/tags/t%d", refdb.MaxLockRefs)) { // git's own
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "more than 3500 refs in one push: the rest are refused, push them again") {
		t.Errorf("the pusher reads %q", lines[:min(len(lines), 5)])
	}
}

// From git 2.51 on, one git runs update for each ref of a push, and then has one transaction of
// all that it let through. The shell that does so here is called git, for that is who the daemon serves.
func TestOfAPushOfTooManyRefsToALaterGitTheFirstGoOn(t *testing.T) {
	skipMany(t)
	t.Parallel()
	g := newGuard(t, local.SQLite(t), "eu-1")
	shell, err := os.ReadFile("/bin/sh")
	git := filepath.Join(t.TempDir(), "git")
	if err == nil {
		err = testprogram.Write(git, shell)
	}
	if err != nil {
		t.Fatal(err)
	}
	const more = 3
	script := fmt.Sprintf(`H=$(git config core.hooksPath); n=0; : >lines
while [ $n -lt %d ]; do
	ref=refs/tags/t$n
	if $H/update $ref %[2]s %[3]s 2>>said; then echo %[2]s %[3]s $ref >>lines; fi
	n=$((n+1))
done
$H/reference-transaction prepared <lines 2>>said && echo taken >>said
$H/reference-transaction aborted <lines; wait`, refdb.MaxLockRefs+more, zero, g.commit[0])
	cmd := exec.Command(git, "-c", script)
	cmd.Dir = g.repo
	cmd.Env = append(os.Environ(), "GIT_DIR=.")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	said, err := os.ReadFile(filepath.Join(g.repo, "said"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "more than 3500 refs in one push: the rest are refused, push them again\ntaken\n"; !strings.HasSuffix(string(said), want) || strings.Count(string(said), "\n") != 2 {
		t.Errorf("%.300q", said)
	}
	lines, err := os.ReadFile(filepath.Join(g.repo, "lines"))
	if n := strings.Count(string(lines), "\n"); err != nil || n != refdb.MaxLockRefs {
		t.Errorf("%d refs were let through, %v", n, err)
	}
	g.resolved()
}
