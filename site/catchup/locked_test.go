package catchup_test

import (
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// What other sites have locked is about the next move. Otherwise a ref that is pushed to all the time would never come.
func TestSyncMovesWhatOtherSitesHaveLocked(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	old := r.A.Commit(t, "old")
	r.Both(t, sitetest.MainRef, old)
	r.Both(t, "refs/heads/other", old)
	r.Sync(t)
	next := r.A.Commit(t, "next", old)
	r.Both(t, sitetest.MainRef, next)
	r.Both(t, "refs/heads/other", next)
	r.InsertLock(t, refdb.LockInfo{Project: sitetest.Project, Ref: sitetest.MainRef, Owner: "a/1"})
	u := refdb.Update{Ref: "refs/heads/other", Old: refdb.Value(next), New: refdb.Value(r.A.Commit(t, "later", next))}
	if _, err := r.DB.Intents().Prepare(t.Context(), sitetest.Project, []refdb.Update{u}, "x"); err != nil {
		t.Fatal(err)
	}
	if got := r.Sync(t).Summary(); got != "updated heads/main, updated heads/other" {
		t.Error(got)
	}
}
