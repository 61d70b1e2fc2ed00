package refs

import (
	"slices"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// deleteAll deletes all refs of the project, as "refs delete --prefix" does.
func (f *fixture) deleteAll(tb testing.TB) (*deletion, error) {
	tb.Helper()
	refs, err := cli.Collect(f.Refs(tb.Context(), f.db, "p", "", false))
	if err != nil {
		tb.Fatal(err)
	}
	results := cli.NewResults(f.Run, deletedColumns)
	d := &deletion{app: f.app, db: f.db, project: "p", refs: refs,
		report: func(ref refdb.Ref, result string) { results.Add(projectRef{"p", ref}, result) }}
	err = d.run(tb.Context())
	if err := results.Close(); err != nil {
		tb.Fatal(err)
	}
	return d, err
}

func TestADeletionLeavesRefsThatAreLockedOrHaveChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(f *fixture, d refdb.Driver) refdb.Driver {
		u := newUpdating(d)
		u.before = func(n int, _ driver.UpdateRequest) error {
			if n == 1 {
				f.put(t, branch(2), id("b"))
			}
			return nil
		}
		return u
	})
	for i := range 4 {
		f.put(t, branch(i), id("a"))
	}
	f.lock(t, branch(1))
	d, err := f.deleteAll(t)
	if err != nil || d.deleted != 2 || d.changed != 1 || d.locked != 1 {
		t.Errorf("%v, %+v", err, d)
	}
	rows := f.printed(t)
	slices.Sort(rows)
	if want := []string{"changed b0002", "deleted b0000", "deleted b0003", "locked b0001"}; !slices.Equal(rows, want) {
		t.Errorf("printed %q", rows)
	}
	if holds := f.holds(t); holds != "b0001 a, b0002 b" {
		t.Errorf("then there are %s", holds)
	}
}

func TestADeletionWorksInBatches(t *testing.T) {
	t.Parallel()
	batches := 0
	f := newFixture(t, func(_ *fixture, d refdb.Driver) refdb.Driver {
		u := newUpdating(d)
		u.before = func(n int, r driver.UpdateRequest) error {
			if batches = n; len(r.Updates) > deleteBatch {
				t.Errorf("%d refs at once", len(r.Updates))
			}
			return nil
		}
		return u
	})
	var updates []refdb.Update
	for i := range 2*deleteBatch + 1 {
		updates = append(updates, refdb.Update{Ref: branch(i), New: id("a")})
	}
	if err := f.other.Update(t.Context(), "p", updates); err != nil {
		t.Fatal(err)
	}
	if d, err := f.deleteAll(t); err != nil || d.deleted != len(updates) || batches != 3 {
		t.Errorf("%v, %d deleted in %d batches", err, d.deleted, batches)
	}
}
