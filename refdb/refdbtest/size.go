package refdbtest

import (
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func sizeRows() []row {
	return []row{
		{"as many refs as an update may have are created, moved and deleted at once", func(e *env) {
			updates := make([]refdb.Update, e.most(refdb.MaxUpdateRefs))
			last := len(updates) - 1
			for i := range updates {
				updates[i] = move(fmt.Sprintf("refs/heads/%05d", i), "", v1)
			}
			e.must(e.update(e.a, updates...))
			for i := range updates {
				updates[i].Old, updates[i].New = v1, v2
			}
			updates[last].Old = v3
			e.wantMismatches(e.update(e.a, updates...), refdb.Mismatch{Ref: updates[last].Ref, Want: v3, Have: v1})
			updates[last].Old = v1
			e.must(e.update(e.a, updates...))
			var n int
			for _, r := range e.list(e.project) {
				if r.Value == v2 {
					n++
				}
			}
			if n != len(updates) {
				e.Errorf("%d refs hold the new value, want %d", n, len(updates))
			}
			if n := e.remove(refdb.RemoveRequest{Limit: len(updates)}); n != len(updates) {
				e.Errorf("removed %d", n)
			}
		}},
		{"as many locks as an acquisition may have are taken, reclaimed, beaten, released and purged at once", func(e *env) {
			refs := make([]string, e.most(refdb.MaxLockRefs))
			for i := range refs {
				refs[i] = fmt.Sprintf("refs/heads/%05d", i)
			}
			l := e.acquire(e.a, refs...)
			for i, got := range e.beat(e.a, l.ids()...) {
				if got != refdb.Beaten {
					e.Fatalf("the beat of %s says %v", refs[i], got)
				}
			}
			last := refs[len(refs)-1]
			if h := e.refused(e.b, "HEAD", last); len(h) != 1 || h[0].Ref != last {
				e.Fatalf("the holders are %+v", h)
			}
			e.db.Exec(e, fmt.Sprintf("UPDATE locks SET stale_after = 0 WHERE project = '%s'", e.project))
			next := e.acquire(e.b, refs...)
			if len(next.Reclaimed) != len(refs) || next.Token <= l.Token {
				e.Errorf("reclaimed %d of %d, token %d after %d", len(next.Reclaimed), len(refs), next.Token, l.Token)
			}
			e.must(e.transact(e.b, refdb.UpdateRequest{Fence: next.releasing(), Updates: []refdb.Update{move(refA, "", v1)}}))
			if got := e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}}); len(got) != 0 {
				e.Errorf("%d locks are left", len(got))
			}
			l = e.acquire(e.a, refs...)
			if missing := e.release(e.a, l); len(missing) != 0 {
				e.Fatalf("%d were not released", len(missing))
			}
			l = e.acquire(e.a, refs...)
			if got := e.purge(e.b, standing(l.ids()...)...); slices.Contains(got, false) {
				e.Fatalf("purged %v", got)
			}
		}},
	}
}
