//go:build linux

package sites

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// Programs from before the newest migration restore a database that has it, at a server that has begun fewer transactions: they recover
// it, and what they write comes last, for them and for this program.
func TestEarlierProgramsWriteAfterWhatWasRestored(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: the programs from before the newest migration are built, a minute; make test-all runs it")
	}
	t.Parallel()
	earlier := earlierPrograms(t)
	now, err := programs()
	must(t, now, err)
	refdbctl := func(bin string, db *dbtest.Database, args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(bin, "refdbctl"), args...)
		cmd.Env = append(os.Environ(), "REFDB_URL="+db.URL())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("refdbctl %s: %v: %s", args, err, out)
		}
		return string(out)
	}
	value := func(digit string) string { return strings.Repeat(digit, 40) }
	for name, lost := range map[string]bool{"nothing is lost": false, "a change is lost": true} {
		t.Run(name, func(t *testing.T) {
			older := dbtest.OlderPostgres(t)
			refdbctl(earlier, older, "refs", "put", "p", "refs/heads/main", value("1"), "--old", "none")
			refdbctl(earlier, older, "refs", "put", "p", "refs/heads/main", value("2"), "--old", value("1"))
			db := dbtest.RestoreIntoYounger(t, older)
			want := []string{value("4"), value("2"), value("1")}
			if lost {
				want = []string{value("4"), value("3"), value("2"), value("1")}
				db.Exec(t, `UPDATE admission SET server = ''`)
				db.Exec(t, `INSERT INTO lost (project, ref, op, old, new, owner, asked_by, token, move, at, witness, fate, reported)
					VALUES ('p', 'refs/heads/main', 'OP', $1, $2, 'eu/1', '', 0, '', now(), 'eu', '', now())`, value("2"), value("3"))
			}
			refdbctl(earlier, db, "recover", "--reason", "restored", "--yes")
			refdbctl(earlier, db, "refs", "put", "p", "refs/heads/main", value("4"), "--old", want[1])
			for bin, who := range map[string]string{earlier: "the earlier program", now: "this program"} {
				var logged []string
				for i, line := range strings.Split(strings.TrimSpace(refdbctl(bin, db, "refs", "log", "p", "refs/heads/main", "-o", "csv")), "\n") {
					if i > 0 {
						fields := strings.Split(line, ",")
						logged = append(logged, fields[6])
					}
				}
				if got := strings.Join(logged, "\n"); got != strings.Join(want, "\n") {
					t.Errorf("by the log of %s the ref held\n%s\nwant\n%s", who, got, strings.Join(want, "\n"))
				}
			}
		})
	}
}
