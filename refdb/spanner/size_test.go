package spanner_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestLargestRequestsAreTaken(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left out by -short: as many refs as a request may have, some seconds on the emulator; make test-all runs it")
	}
	d := patient(t, dbtest.Spanner(t))
	updates := make([]driver.Update, spanner.MaxRefs)
	for i, ref := range names(len(updates)) {
		updates[i] = move(ref, "", v1)
	}
	must(t, update(t, d, "u", updates...))
	if err := update(t, d, "u", append(updates, move("HEAD", "", v1))...); !errors.Is(err, driver.ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	refs := names(driver.MaxLockRefs)
	a := acquire(t, d, "n", refs...)
	if len(a.Refs) != len(updates) {
		t.Errorf("%d refs were read with the locks", len(a.Refs))
	}
	results, err := d.Beat(t.Context(), lockIDs(a.Token, refs...))
	must(t, err)
	if i := slices.IndexFunc(results, func(r driver.BeatResult) bool { return r != driver.BeatRenewed }); i >= 0 {
		t.Fatalf("the beat of %s says %v", refs[i], results[i])
	}
}

// longNames returns n refs of nearly 2 kB each, and updates that create them.
func longNames(n int) ([]string, []driver.Update) {
	refs := make([]string, n)
	updates := make([]driver.Update, n)
	for i := range refs {
		refs[i] = fmt.Sprintf("refs/heads/%05d/%s", i, strings.Repeat("x", 1900))
		updates[i] = move(refs[i], "", v1)
	}
	return refs, updates
}

func TestNamesBeyondOneRequestAreReadInSeveral(t *testing.T) {
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
