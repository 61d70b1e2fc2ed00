package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
)

// A Gerrit can go on to list a project after its repository has gone: its guard says which.
func TestGerritCheckFindsAProjectThatOnlyGerritKnows(t *testing.T) {
	t.Parallel()
	g := guardedAt(t, newWorld(t), "a")
	g.write(t, "data/refdb/without-repository", "team/only gerrit\nAll-Projects\n")
	g.gerrit(t, "check").is(t, exit.OK, "0 findings") // no Gerrit runs
	_, stop := g.start(t, "3.9.4")
	file, hour := filepath.Join(g.path, "data/refdb/without-repository"), time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, hour, hour); err != nil {
		t.Fatal(err)
	}
	g.gerrit(t, "check").is(t, exit.OK, "0 findings") // an earlier Gerrit wrote that
	if err := os.Chtimes(file, time.Time{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	r := g.gerrit(t, "check")
	r.is(t, exit.Failed, "1 finding")
	for _, says := range []string{"gerrit-project", "team/only gerrit", "finds no repository of it"} {
		if !strings.Contains(r.out, says) {
			t.Errorf("%s%s", r.out, r.err)
		}
	}
	if strings.Contains(r.out, "gerrit-project  All-Projects") {
		t.Errorf("a repository that is there: %s", r.out)
	}
	stop()
}
