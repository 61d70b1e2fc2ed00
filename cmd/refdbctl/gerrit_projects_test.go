package main

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
)

// A Gerrit can go on to list a project after its repository has gone: its guard says which.
func TestGerritCheckFindsAProjectThatOnlyGerritKnows(t *testing.T) {
	t.Parallel()
	g := guardedAt(t, newWorld(t), "a")
	g.write(t, "data/refdb/without-repository", "team/only gerrit\nAll-Projects\n")
	g.gerrit(t, "check").is(t, exit.OK, "0 findings") // no Gerrit runs
	_, stop := g.start(t, "3.9.4")
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
