package site_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/client"
)

// Rule M11. A guard writes no object that it has, however old it is, and does not look when it moves a ref to it.
func TestNothingIsPrunedUnderAnOKOfAnEarlierDaemon(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	out, err := exec.Command("git", "--git-dir="+g.repo, "hash-object", "-w", "--stdin").Output()
	if err != nil {
		t.Fatal(err)
	}
	id := string(out[:40])
	file := filepath.Join(g.repo, "objects", id[:2], id[2:])
	old := time.Now().Add(-30 * 24 * time.Hour)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	pruned := func() bool {
		t.Helper()
		if _, err := client.Maintain(t.Context(), filepath.Join(g.dir, "sock"), g.repo, func(string) {}); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(file)
		return os.IsNotExist(err)
	}
	move := line("refs/cache-automerge/ab/cdef", "", id) // no intent keeps it
	j := g.jgit().session()
	tx := j.granted(move)
	g.halt()
	g.start()
	if pruned() {
		t.Error("before the guard has said what it has")
	}
	j.lists(tx, move)
	j.session()
	if pruned() {
		t.Error("before the report")
	}
	j.report(tx)
	if !pruned() {
		t.Error("not pruned afterwards: the test sees nothing")
	}
}
