package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/presence"
	"github.com/globalrefdb/globalrefdb/site/projects"
)

// putProject writes the row of a project, as new.
func (w *world) putProject(tb testing.TB, name, mode string) {
	tb.Helper()
	if _, err := w.open(tb).Projects().Put(tb.Context(), driver.Project{Project: name, ID: "id-" + name, Rules: "ref *", Mode: mode}); err != nil {
		tb.Fatal(err)
	}
}

func TestAProjectIsFrozenWithAReasonAndUnfrozen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle = time.Nanosecond
	w.putProject(t, "p", "enforce")
	db := w.open(t)
	if err := db.Update(t.Context(), "p", []refdb.Update{{Ref: mainRef, New: refdb.Value(id("a"))}}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Intents().Prepare(t.Context(), "p", []refdb.Update{{Ref: "refs/heads/announced", New: refdb.Value(id("a"))}}, "agent"); err != nil {
		t.Fatal(err)
	}
	w.run(t, "project", "freeze", "p", "--reason", "moves until 18:00").is(t, exit.OK, "1 ref with a push announced before the freeze may still change: see refdbctl locks list --intents --project p")
	frozen := func() string {
		t.Helper()
		return text(decode[struct{ Frozen *string }](t, w.do(t, "project", "show", "p", "-o", "json")).Frozen)
	}
	if got := frozen(); !strings.HasPrefix(got, "moves until 18:00 (by ") || !strings.Contains(got, " since 20") {
		t.Errorf("frozen: %q", got)
	}
	// Whatever writes a ref is refused, and says what to do.
	const advice = "run refdbctl project unfreeze p"
	w.run(t, "refs", "put", "p", mainRef, id("b"), "--force").is(t, exit.Failed, "the project p is frozen: moves until 18:00")
	w.run(t, "refs", "put", "p", mainRef, id("b"), "--old", id("a")).is(t, exit.Failed, advice)
	w.run(t, "refs", "delete", "p", mainRef, "--force").is(t, exit.Failed, advice)
	w.run(t, "project", "remove", "p", "--yes").is(t, exit.Failed, advice)
	w.run(t, "project", "remove", "p", "--yes", "--force").is(t, exit.Failed, advice)
	w.run(t, "project", "set", "p", "--mode", "log").is(t, exit.Failed, "in mode log sites would accept pushes")
	if v, err := db.Get(t.Context(), "p", mainRef); err != nil || v != refdb.Value(id("a")) {
		t.Errorf("the ref holds %q, %v", v, err)
	}
	// Readers, and an operator's decision about an intent, go on.
	w.do(t, "refs", "list", "p")
	w.do(t, "locks", "resolve", "p", "refs/heads/announced", "--keep-old", "--reason", "the site is gone", "--yes")
	// It stays frozen while its rules change.
	w.do(t, "project", "set", "p", "--ref", "refs/heads/*")
	if got := frozen(); got == "" {
		t.Error("a change of the rules has lifted the freeze")
	}
	// It is seen at a glance.
	if out := w.do(t, "project", "list", "-o", "csv"); !strings.Contains(out, "p,1,0,0,") || !strings.Contains(out, ",true\n") {
		t.Errorf("list: %s", out)
	}
	top := decode[struct {
		Problems []struct{ Code, Detail, Command string }
	}](t, w.do(t, "top", "-o", "json"))
	if n := len(top.Problems); n != 1 || top.Problems[0].Code != "frozen" || top.Problems[0].Command != "refdbctl project unfreeze p" || !strings.Contains(top.Problems[0].Detail, "moves until 18:00") {
		t.Errorf("top: %+v", top)
	}
	if top := w.do(t, "top", "other", "-o", "json"); strings.Contains(top, `"frozen"`) {
		t.Errorf("top of another project: %s", top)
	}
	if r := w.run(t, "doctor"); r.code != exit.OK || !strings.Contains(r.out, "frozen projects") || !strings.Contains(r.out, "p, moves until 18:00") {
		t.Errorf("doctor: %+v", r)
	}
	// Another reason replaces the first.
	w.run(t, "project", "freeze", "p", "--reason", "still moving").is(t, exit.OK, "p was frozen before: moves until 18:00")
	if got := frozen(); !strings.HasPrefix(got, "still moving (by ") {
		t.Errorf("frozen: %q", got)
	}
	w.run(t, "project", "unfreeze", "p", "--reason", "moved").is(t, exit.OK, "all sites refuse pushes to p for another "+projects.RulesSettle.String())
	if got := frozen(); got != "" {
		t.Errorf("frozen: %q", got)
	}
	w.run(t, "project", "unfreeze", "p").is(t, exit.OK, "p is not frozen")
	w.run(t, "refs", "put", "p", mainRef, id("b"), "--force").is(t, exit.OK, "")
	if r := w.run(t, "doctor"); strings.Contains(r.out, "frozen") {
		t.Errorf("doctor: %+v", r)
	}
	var acts [][4]string
	for _, e := range w.audit(t) {
		if strings.Contains(e.Action, "freeze") {
			acts = append(acts, [4]string{e.Action, text(e.Reason), e.Detail, text(e.Outcome)})
		}
	}
	if len(acts) != 3 || acts[0][0] != "project freeze" || acts[0][1] != "moves until 18:00" || acts[0][3] != "frozen, revision 2; 1 announced before" ||
		acts[1][0] != "project freeze" || acts[1][1] != "still moving" || !strings.HasPrefix(acts[1][2], "replaces the freeze: moves until 18:00") ||
		acts[2][0] != "project unfreeze" || acts[2][1] != "moved" || !strings.HasPrefix(acts[2][2], "was frozen: still moving (by ") {
		t.Errorf("audit: %q", acts)
	}
}

func TestAFreezeThatCantBeIsRefusedBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.putProject(t, "p", "enforce")
	w.putProject(t, "logs", "log")
	w.putProject(t, "gone", "removed")
	for _, x := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"p"}, exit.Misuse, "--reason"},
		{[]string{"p", "--reason", ""}, exit.Misuse, "it is empty"},
		{[]string{"p", "--reason", "  "}, exit.Misuse, "it is empty"},
		{[]string{"p", "--reason", "two\nlines"}, exit.Misuse, "character"},
		{[]string{"p", "--reason", "\x1b[2J"}, exit.Misuse, "character"},
		{[]string{"p", "--reason", strings.Repeat("x", driver.MaxFreezeReason+1)}, exit.Misuse, "at most"},
		{[]string{"--reason", "r"}, exit.Misuse, "PROJECT"},
		{[]string{"unknown", "--reason", "r"}, exit.Failed, "the database has no rules for project unknown"},
		{[]string{"logs", "--reason", "r"}, exit.Failed, "mode log"},
		{[]string{"gone", "--reason", "r"}, exit.Failed, "was removed"},
	} {
		w.run(t, append([]string{"project", "freeze"}, x.args...)...).is(t, x.code, x.says)
	}
	w.run(t, "project", "unfreeze", "unknown").is(t, exit.Failed, "the database has no rules for project unknown")
	w.down = func() error { return errors.New("the database was asked") }
	w.run(t, "project", "freeze", "p", "--reason", "two\nlines").is(t, exit.Misuse, "character")
	w.down = nil
	if rows, err := w.open(t).Projects().After(t.Context(), 0); err != nil || len(rows) != 3 || rows[0].Revision != 1 {
		t.Errorf("the rows are %+v, %v", rows, err)
	}
}

// A daemon of an earlier version does not know freezes.
func TestAFreezeAwaitsSitesOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *world) {
		db := w.open(t)
		if _, err := db.Projects().Put(t.Context(), driver.Project{Project: "p", ID: "id", Rules: "ref *", Mode: "enforce"}); err != nil {
			t.Fatal(err)
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"eu-1", "us-1", "down"} {
			_, err := db.Put(t.Context(), presence.Project, "refs/sites/"+name, "generation")
			must(err)
			if name == "down" {
				continue
			}
			lock, err := db.TryLock(t.Context(), presence.Project, "refs/sites/"+name)
			must(err)
			defer lock.Release(t.Context())
		}
		freeze := func(code int, says string, args ...string) (took time.Duration) {
			t.Helper()
			start := time.Now()
			w.run(t, append([]string{"project", "freeze", "p", "--reason", "r"}, args...)...).is(t, code, says)
			return time.Since(start)
		}
		must(presence.Tell(t.Context(), db, "eu-1", presence.About{Version: "new", Freezes: true}))
		freeze(exit.Failed, "nothing was done: sites run an earlier version: us-1: upgrade them first") // it has said nothing
		must(presence.Tell(t.Context(), db, "us-1", presence.About{Version: "old"}))
		freeze(exit.Failed, "nothing was done: sites run an earlier version: us-1: upgrade them first")
		if p, _, err := db.Projects().Get(t.Context(), "p"); err != nil || p.Revision != 1 {
			t.Errorf("%+v, %v", p, err)
		}
		if took := freeze(exit.OK, "site us-1 runs an earlier version", "--earlier-sites"); took < projects.RulesSettle {
			t.Errorf("the earlier site may accept pushes: the command took %s", took)
		}
		must(presence.Tell(t.Context(), db, "us-1", presence.About{Version: "new", Freezes: true}))
		time.Sleep(10 * time.Minute)
		if took := freeze(exit.OK, ""); took >= projects.RulesSettle {
			t.Errorf("no site uses earlier rules, but the command took %s", took)
		}
		// A site may use rules from before a change that leave out refs.
		w.do(t, "project", "unfreeze", "p")
		w.do(t, "project", "set", "p", "--ref", "refs/heads/*")
		time.Sleep(2 * projects.RulesSettle) // the row's time is from before the commit, which may have waited
		if took := freeze(exit.OK, "until no site uses the previous rules any more"); took < projects.RulesSettle-time.Second {
			t.Errorf("after a change the command took %s", took)
		}
		// A daemon that took the name since may be of an earlier version.
		time.Sleep(10 * time.Minute)
		lock, err := db.TryLock(t.Context(), presence.Project, "refs/sites/down")
		must(err)
		defer lock.Release(t.Context())
		must(presence.Tell(t.Context(), db, "down", presence.About{Version: "new", Freezes: true}))
		must(lock.Release(t.Context()))
		time.Sleep(time.Second)
		lock, err = db.TryLock(t.Context(), presence.Project, "refs/sites/down")
		must(err)
		defer lock.Release(t.Context())
		if took := freeze(exit.OK, "until no site uses"); took < projects.RulesSettle-time.Second {
			t.Errorf("beside a daemon that has not said what it knows the command took %s", took)
		}
	})
}

func TestTheShellCompletesProjectsToFreeze(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.putProject(t, "team/app", "enforce")
	for _, command := range []string{"freeze", "unfreeze"} {
		if got := w.offered(t, "project", command, "te"); len(got) != 1 || got[0] != "team/app" {
			t.Errorf("%s: %q", command, got)
		}
	}
}
