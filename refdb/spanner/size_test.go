package spanner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestLargestRequestsAreTaken(t *testing.T) {
	t.Parallel()
	d := dbtest.Spanner(t).Open(t)
	updates := make([]refdb.Update, refdb.MaxUpdateRefs)
	for i, ref := range names(len(updates)) {
		updates[i] = move(ref, "", v1)
	}
	must(t, update(t, d, "u", updates...))
	refs := names(refdb.MaxLockRefs)
	a := acquire(t, d, "n", refs...)
	if len(a.Refs) != len(refs) {
		t.Errorf("%d refs were read with the locks", len(a.Refs))
	}
	results, err := d.Beat(t.Context(), lockIDs(a.Token, refs...))
	must(t, err)
	for i, r := range results {
		if r != refdb.Beaten {
			t.Fatalf("the beat of %s says %v", refs[i], r)
		}
	}
}

// longNames are n refs of nearly 2 kB each, and updates that create them.
func longNames(n int) ([]string, []refdb.Update) {
	refs := make([]string, n)
	updates := make([]refdb.Update, n)
	for i := range refs {
		refs[i] = fmt.Sprintf("refs/heads/%05d/%s", i, strings.Repeat("x", 1900))
		updates[i] = move(refs[i], "", v1)
	}
	return refs, updates
}

func TestNamesThatDoNotFitOneRequestAreReadInSeveral(t *testing.T) {
	t.Parallel()
	w := &wire{}
	d := openWire(t, dbtest.Spanner(t), w)
	refs, updates := longNames(2400)
	w.take()
	must(t, update(t, d, "u", updates...))
	wantCalls(t, "update", w.take(), "ExecuteStreamingSql", "ExecuteStreamingSql", "ExecuteStreamingSql", "ExecuteStreamingSql", "Commit")
	rows, err := d.Get(t.Context(), project, refs)
	must(t, err)
	if len(rows) != len(refs) {
		t.Errorf("got %d refs", len(rows))
	}
	wantCalls(t, "get", w.take(), "BeginTransaction", "StreamingRead", "StreamingRead")
}
