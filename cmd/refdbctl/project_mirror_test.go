package main

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/presence"
)

func TestAMirrorIsDeclaredAtOneSiteAndTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	db := w.open(t)
	const rules = "ref refs/heads/*"
	if _, err := db.Projects().Put(t.Context(), driver.Project{Project: "p", ID: "id", Rules: rules, Mode: "enforce"}); err != nil {
		t.Fatal(err)
	}
	for _, site := range []string{"eu", "us"} {
		w.InsertRef(t, presence.Project, "refs/sites/"+site, "generation")
	}
	set := func(code int, says string, args ...string) {
		t.Helper()
		w.run(t, append([]string{"project", "set", "p"}, args...)...).is(t, code, says)
	}
	shows := func(want string) {
		t.Helper()
		got := decode[struct {
			Mirror   *string
			Rules    string
			Revision int
		}](t, w.do(t, "project", "show", "p", "-o", "json"))
		if text(got.Mirror) != want || got.Rules != rules || got.Revision != 1 {
			t.Errorf("mirror %q instead of %q: %+v", text(got.Mirror), want, got)
		}
	}
	shows("")
	set(exit.Failed, "sites list", "--mirror-at", "typo")
	set(exit.Misuse, "--no-mirror", "--mirror-at", "")
	set(exit.Misuse, "mirror-at", "--mirror-at", "eu", "--no-mirror")
	set(exit.Misuse, "mirror-at", "--mirror-at", "eu", "--mode", "log")
	set(exit.Misuse, "mirror", "--no-mirror", "--ref", "refs/tags/*")
	shows("")
	set(exit.OK, "", "--mirror-at", "eu", "--reason", "kernel.org")
	shows("eu")
	set(exit.OK, "already", "--mirror-at", "eu")
	set(exit.OK, "", "--mirror-at", "us")
	shows("us")
	set(exit.OK, "", "--no-mirror")
	shows("")
	set(exit.OK, "already", "--no-mirror")
	if all := w.audit(t); len(all) != 3 || all[0].Action != "project set" || all[0].Detail != "from no mirror to a mirror at eu" || text(all[0].Reason) != "kernel.org" {
		t.Errorf("%+v", all)
	}

	set(exit.OK, "", "--mirror-at", "us")
	w.do(t, "project", "remove", "p", "--yes")
	if value, err := db.Get(t.Context(), presence.Project, "refs/mirrors/id"); err != nil || !value.IsAbsent() {
		t.Errorf("of the removed project is left: %q, %v", value, err)
	}
	set(exit.Failed, "was removed", "--mirror-at", "eu")
}
