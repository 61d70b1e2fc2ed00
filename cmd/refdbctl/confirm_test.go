//go:build linux

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
)

func TestWhatRemovesMuchWantsTheNameTyped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, shows, name string }{
		{"project remove p", "project p has 1 ref, deleted ones included, and 1 lock of 1 holder", "p"},
		{"migrate down --all", "ALL REFS AND LOCKS", "refdb.db"},
	} {
		for answer, code := range map[string]int{"y": exit.Failed, c.name: exit.OK} {
			t.Run(c.args+" "+answer, func(t *testing.T) {
				w := newWorld(t)
				w.InsertRef(t, "p", mainRef, refdb.Value(id("a")))
				w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: mainRef, Owner: "dead", Age: time.Hour})
				term := newTerminal(t)
				cmd := w.program(t, strings.Fields(c.args)...)
				term.start(t, cmd)
				term.shows(t, "Type "+c.name+" to go on: ")
				term.shows(t, "database: "+w.URL())
				term.shows(t, c.shows)
				term.types(t, answer+"\n")
				if got := exitOf(t, cmd); got != code {
					t.Errorf("status %d, want %d: %q", got, code, term.shown.String())
				}
			})
		}
	}
}

func TestQuestionsNameTheDatabaseWithoutItsPassword(t *testing.T) {
	t.Parallel()
	var out screen
	w := &world{env: map[string]string{"REFDB_URL": "postgres://u:" + secret + "@db1/refdb?x=y"}}
	a := w.app(cli.Streams{In: strings.NewReader("y\n"), Out: &out, Err: &out})
	if err := new(cli.Confirmation).Confirm(t.Context(), a.Run, "Really?"); err != nil {
		t.Error(err)
	}
	if got := out.String(); !strings.Contains(got, "database: postgres://u:xxxxx@db1/refdb") || strings.Contains(got, secret) {
		t.Errorf("%q", got)
	}
}

func TestTheNameOfADatabase(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"sqlite:/var/lib/refdb/refdb.db":                "refdb.db",
		"sqlite:refs.sqlite":                            "refs.sqlite",
		"postgres://u:p/w@db1,db2:5432/refdb?sslmode=x": "refdb",
		"postgres://db1":                                "postgres",
		"spanner://projects/p/instances/i/databases/d":  "d",
	} {
		if got := cli.DatabaseName(url); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

func TestPurgingTombstonesAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.InsertRef(t, "p", mainRef, refdb.Deleted)
	w.InsertRef(t, "p", "refs/heads/new", refdb.Deleted)
	w.Exec(t, `UPDATE refs SET time = time - ? WHERE ref <> 'refs/heads/new'`, (48 * time.Hour).Microseconds())
	purge := []string{"refs", "purge-tombstones", "p", "--older-than=1d"}
	w.run(t, purge...).is(t, exit.Misuse, "--yes")
	w.run(t, "refs", "purge-tombstones", "p", "--older-than=23h", "--yes").is(t, exit.Misuse, "at least a day")
	got := decode[removalJSON](t, w.do(t, append(purge, "--dry-run", "-o", "json")...))
	if *got.Removed != 1 || !got.DryRun {
		t.Errorf("%+v", got)
	}
	if rows := decode[[]refJSON](t, w.do(t, "refs", "list", "p", "--deleted", "-o", "json")); len(rows) != 2 {
		t.Errorf("the dry run left %+v", rows)
	}
	term := newTerminal(t)
	cmd := w.program(t, purge...)
	term.start(t, cmd)
	term.shows(t, "Forget 1 tombstone of project p? [y/N]")
	term.types(t, "y\n")
	if code := exitOf(t, cmd); code != exit.OK {
		t.Errorf("status %d: %q", code, term.shown.String())
	}
}

func TestOverwritingAsks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t, branches(3)...)
	w.InsertRef(t, "p", "refs/heads/b00001", refdb.Value(id("a")))
	dry := w.importing(t, r, exit.OK, "--overwrite", "--dry-run")
	if len(dry.Problems) != 1 || dry.Problems[0].Result != "would_overwrite" || *dry.Problems[0].Global != id("a") {
		t.Errorf("dry run: %+v", dry)
	}
	w.run(t, "refs", "import", "p", "--repo", r.path, "--overwrite").is(t, exit.Misuse, "--yes")
	w.answerOverwrite(t, r, "n\n", id("a"))
	w.answerOverwrite(t, r, "y\n", r.commit)
}

func (w *world) answerOverwrite(tb testing.TB, r *repo, answer, holds string) {
	tb.Helper()
	term := newTerminal(tb)
	cmd := w.program(tb, "refs", "import", "p", "--repo", r.path, "--overwrite")
	term.start(tb, cmd)
	term.shows(tb, "Overwrite 1 ref of project p? [y/N]")
	term.shows(tb, "refs/heads/b00001")
	term.types(tb, answer)
	exitOf(tb, cmd)
	if got := w.do(tb, "refs", "get", "p", "refs/heads/b00001"); got != holds+"\n" {
		tb.Errorf("after %q it holds %s", answer, got)
	}
}

func TestWhatAWorkCloneHasForItselfIsNotImportedUnlessTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := newRepo(t, mainRef, "refs/remotes/origin/main", "refs/stash", "refs/tags/v1")
	got := w.importing(t, r, exit.Failed)
	if got.Imported != 2 || got.Refused != 2 || len(got.Problems) != 2 || !strings.Contains(got.Problems[0].Detail, "--work-clone") {
		t.Errorf("%+v", got)
	}
	if got := w.importing(t, r, exit.OK, "--work-clone"); got.Imported != 2 || got.Equal != 2 {
		t.Errorf("told: %+v", got)
	}
}

func TestARollbackShowsWhatItMovesAndAsks(t *testing.T) {
	t.Parallel()
	w := newRecordedWorld(t)
	w.puts(t, mainRef, "a", "b")
	for answer, holds := range map[string]string{"n\n": "main b", "\n": "main b"} {
		w.answerRollback(t, answer, exit.Failed)
		if got := w.holds(t); got != holds {
			t.Errorf("after %q it holds %s", answer, got)
		}
	}
	w.answerRollback(t, "y\n", exit.OK)
	if got := w.holds(t); got != "main a" {
		t.Errorf("after yes it holds %s", got)
	}
}

func (w *world) answerRollback(tb testing.TB, answer string, want int) {
	tb.Helper()
	term := newTerminal(tb)
	cmd := w.program(tb, "refs", "rollback", "p", mainRef)
	term.start(tb, cmd)
	term.shows(tb, mainRef+": bbbbbbbbbbbb -> aaaaaaaaaaaa")
	term.shows(tb, "Move 1 ref of project p back? [y/N]")
	term.types(tb, answer)
	if code := exitOf(tb, cmd); code != want {
		tb.Errorf("status %d, want %d: %q", code, want, term.shown.String())
	}
}
