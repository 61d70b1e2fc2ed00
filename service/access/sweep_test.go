package access

import (
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func TestStaleLocksOfConfirmationsAreRemovedAndNoOthers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, db *refdb.DB, _ *Cache) {
		acquire := func(project, ref string, staleAfter time.Duration) {
			t.Helper()
			if _, err := db.Grants().Acquire(t.Context(), "server/x", staleAfter, project, ref); err != nil {
				t.Fatal(err)
			}
		}
		inProject, prefix := ConfirmationRefs()
		acquire(inProject, prefix+"left", 10*time.Second)
		acquire(inProject, prefix+"fresh", time.Hour)
		acquire(inProject, "refs/sites/x", 10*time.Second)
		acquire("p", prefix+"left", 10*time.Second)
		time.Sleep(sweepEvery + time.Second)
		var left []string
		for l, err := range db.Locks(t.Context(), refdb.LockFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, l.Project+" "+l.Ref)
		}
		slices.Sort(left)
		if want := []string{"p " + prefix + "left", inProject + " " + prefix + "fresh", inProject + " refs/sites/x"}; !slices.Equal(left, want) {
			t.Errorf("%q", left)
		}
	})
}
