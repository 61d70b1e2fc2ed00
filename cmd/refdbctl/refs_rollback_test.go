package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
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
		if does := w.rollback(t, exitOK, args...); does != step.does {
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
	if *rows[0].By != operator() || rows[0].said() != "main c>-" && rows[0].said() != "main c>0" {
		t.Errorf("the history has %+v", rows[0])
	}
	acts := w.audit(t)
	if len(acts) != 3 || acts[0].Action != "refs rollback" || acts[0].Project == nil || *acts[0].Project != "p" ||
		!strings.Contains(acts[0].Detail, "refs/heads/main@{2} from "+id("c")+" to "+id("a")) || acts[0].Outcome == nil || *acts[0].Outcome != "moved 3 of 3" {
		t.Errorf("the audit has %+v", acts)
	}
}

// meddling is a driver under which others change a ref before each update.
type meddling struct {
	refdb.Driver
	meddle func()
}

func (m meddling) Update(ctx context.Context, r refdb.UpdateRequest) error {
	m.meddle()
	return m.Driver.Update(ctx, r)
}

// modest is a driver that takes few refs at once.
type modest struct {
	refdb.Driver
	most int
}

func (m modest) Update(ctx context.Context, r refdb.UpdateRequest) error {
	if n := len(r.Updates); n > m.most {
		return fmt.Errorf("%w: %d refs", refdb.ErrTooMany, n)
	}
	return m.Driver.Update(ctx, r)
}
