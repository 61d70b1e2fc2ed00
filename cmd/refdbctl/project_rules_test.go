package main

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func TestAProjectsRulesAreShownAndChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(t, "project", "show", "p").is(t, exit.Failed, "site enable")
	w.run(t, "project", "set", "p", "--ref", "refs/heads/*").is(t, exit.Failed, "site enable")
	if _, err := w.open(t).Projects().Put(t.Context(), driver.Project{Project: "p", ID: "id", Rules: "ref *", Mode: "enforce"}); err != nil {
		t.Fatal(err)
	}
	w.run(t, "project", "set", "p", "--ref", "^(").is(t, exit.Misuse, "is not a pattern")
	w.run(t, "project", "set", "p", "--ref", "refs/heads/*", "--skip-ref", "refs/heads/o'brien/*", "--reason", "asked").is(t, exit.OK, "all sites refuse pushes to p")
	type projectJSON struct {
		ID, Rules, Mode string
		Revision        int
	}
	got := decode[projectJSON](t, w.do(t, "project", "show", "p", "-o", "json"))
	if got != (projectJSON{"id", "ref refs/heads/*; skipRef refs/heads/o'brien/*", "enforce", 2}) {
		t.Errorf("%+v", got)
	}
	w.do(t, "project", "set", "p", "--ref", "refs/heads/*", "--skip-ref", "refs/heads/o'brien/*")
	w.run(t, "project", "set", "p", "--also-ref", "^(").is(t, exit.Misuse, "is not a pattern")
	all := w.audit(t)
	if len(all) != 1 || all[0].Action != "project set" || text(all[0].Outcome) != "mode enforce, revision 2" || !strings.HasPrefix(all[0].Detail, "from ref * (enforce) to ref refs/heads/*; skipRef") {
		t.Errorf("%+v", all)
	}
	w.do(t, "project", "set", "p", "--also-ref", "refs/changes/*")
	if got := decode[projectJSON](t, w.do(t, "project", "show", "p", "-o", "json")); got.Rules != "ref *; alsoRef refs/changes/*" {
		t.Errorf("%+v", got)
	}
}
