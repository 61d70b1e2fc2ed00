package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

type returningJSON struct {
	Result, Project, Ref string
	Old, New             *string
}

func (w *world) rollback(tb testing.TB, code int, args ...string) (said string) {
	tb.Helper()
	r := w.run(tb, append([]string{"refs", "rollback", "p", "-o", "json"}, args...)...)
	r.is(tb, code, "")
	var all []string
	for _, row := range decode[[]returningJSON](tb, r.out) {
		l := loggedJSON{Ref: &row.Ref, Old: row.Old, New: row.New}
		all = append(all, row.Result+" "+l.said())
	}
	return strings.Join(all, ", ")
}

// holds returns the project's refs in short.
func (w *world) holds(tb testing.TB) string {
	tb.Helper()
	var all []string
	for ref, err := range w.open(tb).Refs(tb.Context(), "p", "") {
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, strings.TrimPrefix(ref.Name, "refs/heads/")+" "+string(ref.Value[:1]))
	}
	return strings.Join(all, ", ")
}

func TestRefsAreMovedBackByTheirLastChanges(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.All() {
		t.Run(string(kind.Dialect), func(t *testing.T) {
			t.Parallel()
			db := kind.New(t)
			testMovingBack(t, &world{Database: db, env: map[string]string{"REFDB_URL": db.URL(), "REFDB_SITE": "here"}})
		})
	}
}

func testMovingBack(t *testing.T, w *world) {
	t.Helper()
	w.puts(t, mainRef, "a", "b", "c")
	w.puts(t, "refs/heads/x", "d")
	w.puts(t, "refs/heads/y", "e")
	w.do(t, "refs", "delete", "p", "refs/heads/y", "--old", id("e"))
	for _, step := range []struct{ args, does, holds string }{
		{"refs/heads/main@{2} refs/heads/x --dry-run", "would_move main c>a, would_delete x d>-", "main c, x d"},
		{"refs/heads/main@{2} refs/heads/x refs/heads/y@{1}", "moved main c>a, deleted x d>-, moved y ->e", "main a, y e"},
		{"refs/heads/main", "moved main a>c", "main c, y e"}, // a rollback is a change, too
		{"refs/heads/main@{5} refs/heads/y@{3}", "deleted main c>-, deleted y e>-", ""},
		{"refs/heads/y@{2}", "", ""}, // it was absent then
	} {
		args := strings.Fields(step.args)
		if !slices.Contains(args, "--dry-run") {
			args = append(args, "--yes")
		}
		if does := w.rollback(t, exit.OK, args...); does != step.does {
			t.Errorf("%s: %q, want %q", step.args, does, step.does)
		}
		if holds := w.holds(t); holds != step.holds {
			t.Errorf("%s: then it holds %q, want %q", step.args, holds, step.holds)
		}
	}
	rows, _ := w.log(t, mainRef)
	if got := w.do(t, "refs", "list", "p", "--at", fmt.Sprint(rows[2].Position)); !strings.Contains(got, id("a")) {
		t.Errorf("after the first rollback there was %q", got)
	}
	if *rows[0].By != cli.Operator() || rows[0].said() != "main c>-" && rows[0].said() != "main c>0" {
		t.Errorf("the history has %+v", rows[0])
	}
	acts := w.audit(t)
	if len(acts) != 3 || acts[0].Action != "refs rollback" || acts[0].Project == nil || *acts[0].Project != "p" ||
		!strings.Contains(acts[0].Detail, "refs/heads/main@{2} from "+id("c")+" to "+id("a")) || acts[0].Outcome == nil || *acts[0].Outcome != "moved 3 of 3" {
		t.Errorf("the audit has %+v", acts)
	}
}

func TestAProjectIsMovedBackToAStateOfThePast(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, mainRef, "a")
	w.puts(t, "refs/heads/gone", "b")
	w.puts(t, "refs/heads/same", "c")
	w.puts(t, "refs/sequences/n", "1")
	rows, _ := w.log(t)
	at := fmt.Sprint(rows[0].Position)
	w.puts(t, mainRef, "d")
	w.do(t, "refs", "delete", "p", "refs/heads/gone", "--old", id("b"))
	w.puts(t, "refs/heads/new", "e")
	w.puts(t, "refs/sequences/n", "2") // a counter: it never goes back
	for _, step := range []struct{ args, does, holds string }{
		{"--prefix refs/heads/m --dry-run", "would_move main d>a", "main d, new e, same c, refs/sequences/n 2"},
		{"--prefix refs/heads/n --yes", "deleted new e>-", "main d, same c, refs/sequences/n 2"},
		{"--yes", "moved gone ->b, moved main d>a", "gone b, main a, same c, refs/sequences/n 2"},
		{"--yes", "", "gone b, main a, same c, refs/sequences/n 2"},
	} {
		if does := w.rollback(t, exit.OK, append(strings.Fields(step.args), "--at", at)...); does != step.does {
			t.Errorf("%s: %q, want %q", step.args, does, step.does)
		}
		if holds := w.holds(t); holds != step.holds {
			t.Errorf("%s: then it holds %q, want %q", step.args, holds, step.holds)
		}
	}
	w.run(t, "refs", "rollback", "p", "--yes", "--at", at).is(t, exit.OK, "nothing to move")
}

func TestARollbackRefusesWhatItCannotMeanOrDo(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, mainRef, "a", "b")
	w.puts(t, "refs/heads/x", "a", "b")
	lock, err := w.open(t).TryLock(t.Context(), "p", "refs/heads/x")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release(t.Context())
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"p --yes":                                           {exit.Misuse, "give either refs"},
		"p refs/heads/main --at 1h --yes":                   {exit.Misuse, "give either refs"},
		"p refs/heads/main --prefix refs/ --yes":            {exit.Misuse, "--prefix goes with --at"},
		"p --at 1h --prefix= --yes":                         {exit.Misuse, `--prefix "": give the start of a name`},
		"p refs/heads/main refs/heads/main@{2} --yes":       {exit.Misuse, "named twice"},
		"p refs/heads/main@{0} --yes":                       {exit.Misuse, "the current value"},
		"p refs/heads/main@{yesterday} --yes":               {exit.Misuse, "for a time use --at"},
		"p refs/sequences/n --yes":                          {exit.Misuse, "a counter of Gerrit"},
		"p main --yes":                                      {exit.Misuse, "not a full name"},
		"p refs/heads/main":                                 {exit.Misuse, "--yes"},
		"refdb/sites refs/sites/eu --yes":                   {exit.Misuse, "only their daemons change them"},
		"p --at bogus --yes":                                {exit.Misuse, "give a position"},
		"q refs/heads/main --yes":                           {exit.Failed, "no such project: q"},
		"q --at 1s --yes":                                   {exit.Failed, ""},
		"p refs/heads/main@{3} --yes":                       {exit.Failed, "does not go back that far: p refs/heads/main has 2 changes in it"},
		"p refs/heads/y --yes":                              {exit.Failed, "p refs/heads/y has 0 changes in it"},
		"p refs/heads/main refs/heads/x --yes":              {exit.Locked, "moved 0 of 2 refs; run the command again to see what is left: updating refs of p: ref is locked: p refs/heads/x by there/"},
		"p refs/heads/main refs/heads/x --dry-run":          {exit.Locked, "locked: p refs/heads/x"},
		"p refs/heads/main --yes --objects-in /nonexistent": {exit.Failed, "/nonexistent"},
	} {
		r := w.run(t, append([]string{"refs", "rollback"}, strings.Fields(args)...)...)
		r.is(t, want.code, want.says)
		r.isOneLine(t)
	}
	if holds := w.holds(t); holds != "main b, x b" {
		t.Errorf("then it holds %s", holds)
	}
}

// If no site has the objects any more, no site could ever follow.
func TestTheObjectsOfAGuardedProjectMustBeAtASite(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	r := newRepo(t, mainRef)
	later := r.set(t, mainRef)
	if err := w.open(t).Update(t.Context(), "p", []refdb.Update{{Ref: mainRef, New: refdb.Value(r.commit)}}); err != nil {
		t.Fatal(err)
	}
	w.do(t, "refs", "put", "p", mainRef, later, "--old", r.commit)
	w.do(t, "refs", "put", "p", "refs/heads/lost", id("a"), "--old=none")
	w.do(t, "refs", "put", "p", "refs/heads/lost", later, "--old", id("a"))
	w.do(t, "refs", "put", "p", "refs/heads/new", later, "--old=none")
	w.Exec(t, `INSERT INTO projects (project, id, rules, mode, revision, time, op) VALUES ('p', 'the-id', '', 'enforce', 1, now(), 'id')`)

	for _, flag := range []string{"--yes", "--dry-run"} {
		w.run(t, "refs", "rollback", "p", mainRef, flag).is(t, exit.Failed, "guarded by sites: if no site had the objects of 1 value any more")
		w.run(t, "refs", "rollback", "p", mainRef, flag, "--objects-in", r.path).is(t, exit.Failed, "is not guarded as a copy of p")
	}
	if got := w.rollback(t, exit.OK, "refs/heads/new", "--dry-run"); !strings.HasPrefix(got, "would_delete new ") {
		t.Errorf("a deletion needs no objects: %q", got)
	}
	git(t, r.path, "config", "refdb.projectid", "the-id")
	refused := w.run(t, "refs", "rollback", "p", mainRef, "refs/heads/lost", "--yes", "--objects-in", r.path)
	refused.is(t, exit.Failed, "lacks the objects of 1 value, or objects that these refer to: fetch them from a repository that has them: refs/heads/lost "+id("a"))
	refused.isOneLine(t)
	if got := w.rollback(t, exit.OK, mainRef, "--yes", "--objects-in", r.path); !strings.HasPrefix(got, "moved main ") {
		t.Errorf("%q", got)
	}
	if got := w.do(t, "refs", "get", "p", mainRef); got != r.commit+"\n" {
		t.Errorf("then it holds %q", got)
	}
}
