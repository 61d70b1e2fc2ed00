package refdb_test

import (
	"testing"
	"testing/synctest"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func TestReadersGetWhatTheySelectAndGoOnWhereTheyWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := inMemory(t)
		update := func(project string, refs ...string) {
			t.Helper()
			for _, ref := range refs {
				if err := db.Update(t.Context(), project, []refdb.Update{{Ref: ref, New: oldMain}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		queries := []refdb.ChangeQuery{{Project: "p", Prefix: "refs/heads/x"}, {Project: "p"}, {Project: "q"}, {}}
		var readings []*reading
		for _, q := range queries {
			readings = append(readings, follow(t, db, q))
			settle()
		}
		update("p", "refs/heads/x1", "refs/heads/a")
		update("q", "refs/heads/x2", "refs/heads/b")
		settle()
		for i, want := range []string{"x1", "x1a", "x2b", "x1ax2b"} {
			if got := readings[i].refs(); got != want {
				t.Errorf("%+v: got %q, want %q", queries[i], got, want)
			}
			readings[i].stop()
		}
		update("p", "refs/heads/x3")
		update("q", "refs/heads/c")
		for i, want := range []string{"x3", "x3", "c", "x3c"} {
			_, cursor, _ := readings[i].state()
			queries[i].After = cursor
			again := follow(t, db, queries[i])
			settle()
			if got := again.refs(); got != want {
				t.Errorf("%+v, again: got %q, want %q", queries[i], got, want)
			}
		}
	})
}

func TestTheDatabaseIsAskedForWhatReadersSelect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, d := observedInMemory(t)
		for _, next := range []struct{ q, want refdb.ChangeQuery }{
			{refdb.ChangeQuery{Project: "p", Prefix: "refs/heads/x"}, refdb.ChangeQuery{Project: "p", Prefix: "refs/heads/x"}},
			{refdb.ChangeQuery{Project: "p", Prefix: "refs/heads/x/y"}, refdb.ChangeQuery{Project: "p", Prefix: "refs/heads/x"}},
			{refdb.ChangeQuery{Project: "p", Prefix: "refs/tags/"}, refdb.ChangeQuery{Project: "p"}},
			{refdb.ChangeQuery{Project: "q"}, refdb.ChangeQuery{}},
		} {
			follow(t, db, next.q)
			settle()
			for _, r := range d.during(settle) {
				if r.Project != next.want.Project || r.Prefix != next.want.Prefix {
					t.Errorf("after %+v it is asked for %+v, not %+v", next.q, r, next.want)
				}
			}
		}
	})
}
