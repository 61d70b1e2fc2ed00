package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
)

// Check does not look at indexes, and says so; it says how the guard's last comparison went, and asks for one.
func TestGerritCheckSaysHowTheLastComparisonOfTheIndexesWent(t *testing.T) {
	t.Parallel()
	g := guardedAt(t, newWorld(t), "a")
	type report struct {
		Indexes struct {
			State           string
			Compared, Stale int
			Asked           bool
		}
	}
	state := func(says string, args ...string) report {
		t.Helper()
		r := g.gerrit(t, "check", append(args, "-o", "json")...)
		r.is(t, exit.OK, says)
		return decode[report](t, r.out)
	}
	if got := state("no comparison with the repositories is known"); got.Indexes.State != "unknown" {
		t.Errorf("%+v", got)
	}
	g.write(t, "data/refdb/compared", fmt.Sprintf("ended %d 120345 17\n", time.Now().Add(-2*time.Hour).Unix()))
	if got := state("of 120345 entries 17 were stale"); got.Indexes.State != "compared" || got.Indexes.Compared != 120345 || got.Indexes.Stale != 17 || got.Indexes.Asked {
		t.Errorf("%+v", got)
	}
	g.write(t, "data/refdb/compared", fmt.Sprintf("began %d\n", time.Now().Unix()))
	if got := state("did not finish"); got.Indexes.State != "cut-off" {
		t.Errorf("%+v", got)
	}
	// What can't be read is no comparison that found nothing.
	g.write(t, "data/refdb/compared", "rubbish\n")
	if r := g.gerrit(t, "check"); r.code != exit.Failed || !strings.Contains(r.out, "gerrit-indexes") {
		t.Errorf("%d: %s%s", r.code, r.out, r.err)
	}
	g.write(t, "data/refdb/compared", fmt.Sprintf("began %d\n", time.Now().Unix()))
	g.gerrit(t, "check", "--compare").is(t, exit.Failed, "no Gerrit runs in "+g.path)
	asks := filepath.Join(g.path, "data/refdb/compare")
	if _, err := os.Stat(asks); err == nil {
		t.Error("a comparison was requested that no Gerrit will begin")
	}
	g.start(t, "3.9.4")
	if got := state("has not begun", "--compare"); got.Indexes.State != "comparing" || !got.Indexes.Asked {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(asks); err != nil {
		t.Error(err)
	}
}
