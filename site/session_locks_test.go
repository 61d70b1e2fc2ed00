package site_test

import (
	"path/filepath"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/client"
)

// Rule 17: an OK without an intent counts, and what a guard may have been told by an earlier daemon.
func TestTheDaemonSaysWhereGuardsMayHaveLockFiles(t *testing.T) {
	t.Parallel()
	g := sessionTest(t)
	other := g.newRepository("team/other")
	g.register("team/other")
	socket := filepath.Join(g.dir, "sock")
	may := func(when string, here, there bool) {
		t.Helper()
		for dir, want := range map[string]bool{g.repo: here, other: there} {
			if got, err := client.GuardsMayWork(t.Context(), socket, dir); err != nil || got != want {
				t.Errorf("%s: %s: %v, %v, want %v", when, filepath.Base(dir), got, err, want)
			}
		}
	}
	const unguarded = "refs/cache-automerge/ab/cdef"
	may("before any guard", false, false)
	j := g.jgit().session()
	may("without a transaction", false, false)
	tx := j.granted(line(unguarded, "", g.commit[0]))
	may("with an OK", true, false)
	g.halt()
	g.start()
	may("after a restart, before the guard has said what it has", true, true)
	j.lists(tx, line(unguarded, "", g.commit[0]))
	j.session()
	may("once it has", true, false)
	j.report(tx)
	may("after the report", false, false)
}
