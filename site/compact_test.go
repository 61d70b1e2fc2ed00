package site_test

import (
	"context"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
	"github.com/globalrefdb/globalrefdb/test/dbtest/local"
)

// A daemon that is killed while it stores a base leaves its lock. The next one of its site ends that, once it is stale, and no other lock.
func TestTheLockOfABaseThatAnEarlierDaemonLeftIsEnded(t *testing.T) {
	t.Parallel()
	const base = "refs/refdb/base"
	shared := local.SQLite(t)
	g := idleGuard(t, shared, "eu-1")
	g.newRepository("other")
	leave := func(site, project, ref string) {
		t.Helper()
		db, err := refdb.New(shared.Open(t), refdb.Options{Site: site, StaleAfter: leases})
		if err == nil {
			_, err = db.TryLock(context.WithoutCancel(t.Context()), project, ref)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		shared.Exec(t, `UPDATE locks SET owner = owner || '-killed' WHERE project = ? AND ref = ?`, project, ref) // nobody beats it
	}
	leave(g.name, "team/app", base)
	leave("us-1", "other", base)
	leave(g.name, "other", x)
	stands := func(project, ref string) bool {
		t.Helper()
		for _, err := range g.db.Locks(t.Context(), refdb.LockFilter{Project: project, Ref: ref}) {
			if err != nil {
				t.Fatal(err)
			}
			return true
		}
		return false
	}
	g.start()
	if !stands("team/app", base) {
		t.Error("it is ended before it is stale")
	}
	shared.Exec(t, `UPDATE locks SET heartbeat = heartbeat - ? WHERE owner LIKE '%-killed'`, (2 * leases).Microseconds())
	sitetest.Eventually(t, "it is ended", func() bool { return !stands("team/app", base) })
	if !stands("other", base) || !stands("other", x) {
		t.Error("another lock was ended")
	}
}
