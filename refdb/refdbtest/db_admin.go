package refdbtest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func dbAdminRows() []row {
	return []row{
		{"all locks that a filter selects are listed, page after page, as far as the caller reads", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			names := manyNames(e.many())
			e.acquire(e.a, names...)
			var got []string
			for l, err := range db.Locks(e.Context(), refdb.LockFilter{Project: e.project}) {
				e.must(err)
				if l.Project != e.project || l.Owner != e.a.owner || l.Stale() || len(got) == len(names) {
					e.Fatalf("got %+v", l)
				}
				got = append(got, l.Ref)
			}
			if !slices.Equal(got, names) {
				e.Errorf("%d locks were listed of %d", len(got), len(names))
			}
			if n := tap.count("Locks"); n < 2 {
				e.Errorf("%d locks came in %d pages", len(names), n)
			}
			pages := tap.count("Locks")
			for range db.Locks(e.Context(), refdb.LockFilter{Project: e.project}) {
				break
			}
			if n := tap.count("Locks") - pages; n != 1 {
				e.Errorf("the first lock took %d pages", n)
			}
		}},
		{"a process's own locks are found by its owner, and by its site", func(e *env) {
			site := "of-" + e.project
			db := e.open(refdb.Options{Site: site})
			e.hold(db, refA, refB)
			e.hold(e.open(refdb.Options{Site: site + "2"}), refC)
			for _, owner := range []string{db.Owner(), site} {
				if got := e.listed(db, refdb.LockFilter{Owner: owner}); len(got) != 2 || got[0].Owner != db.Owner() {
					e.Errorf("the locks of %q are %+v", owner, got)
				}
			}
		}},
		{"an error ends a list", func(e *env) {
			db, tap := e.openTapped(refdb.Options{})
			broken := errors.New("a test's error")
			tap.do(func(call) error { return broken })
			for name, err := range map[string]error{
				"Locks":   firstError(db.Locks(e.Context(), refdb.LockFilter{})),
				"Orphans": firstError(db.Orphans(e.Context())),
				"Refs":    firstError(db.Refs(e.Context(), e.project, "")),
			} {
				if !errors.Is(err, broken) {
					e.Errorf("%s: %v", name, err)
				}
			}
		}},
		{"stale locks are purged as they were listed", func(e *env) {
			db := e.open(refdb.Options{})
			old, fresh := e.acquire(e.a, refA, refB), e.acquire(e.a, refC)
			e.age(old, stale)
			listed := e.listed(db, refdb.LockFilter{Project: e.project, Stale: true})
			removed, err := db.Purge(e.Context(), listed)
			e.must(err)
			if len(listed) != 2 || !slices.Equal(removed, listed) {
				e.Errorf("listed %+v, removed %+v", listed, removed)
			}
			e.wantFree(refA, refB)
			e.wantLock(fresh)
			if removed, err := db.Purge(e.Context(), listed); len(removed) != 0 || err != nil {
				e.Errorf("again: %v, %v", removed, err)
			}
			if removed, err := db.Purge(e.Context(), nil); len(removed) != 0 || err != nil {
				e.Errorf("nothing: %v, %v", removed, err)
			}
		}},
		{"a lock that was listed as stale and has beaten since is not purged, not even by force", func(e *env) {
			db := e.open(refdb.Options{})
			l := e.acquire(e.a, refA, refB)
			e.age(l, stale)
			listed := e.listed(db, refdb.LockFilter{Project: e.project})
			e.beat(e.a, l.ids()[0])
			removed, err := db.Purge(e.Context(), listed, refdb.PurgeFresh())
			e.must(err)
			if len(removed) != 1 || removed[0].Ref != refB {
				e.Errorf("removed %+v", removed)
			}
			e.wantLock(l, refA)
			e.wantFree(refB)
		}},
		{"a lock that has changed hands since it was listed is not purged, not even by force", func(e *env) {
			db := e.open(refdb.Options{})
			old, fresh := e.acquire(e.a, refA), e.acquire(e.a, refB)
			e.age(old, stale)
			listed := e.listed(db, refdb.LockFilter{Project: e.project})
			e.release(e.a, fresh)
			next := e.acquire(e.b, refA, refB)
			removed, err := db.Purge(e.Context(), listed, refdb.PurgeFresh())
			e.must(err)
			if len(removed) != 0 {
				e.Errorf("removed %+v", removed)
			}
			e.wantLock(next)
		}},
		{"one fresh lock among those to purge refuses all, unless by force", func(e *env) {
			holder, db := e.open(quick()), e.open(refdb.Options{})
			old, l := e.acquire(e.a, refA), e.hold(holder, refB)
			e.age(old, stale)
			listed := e.listed(db, refdb.LockFilter{Project: e.project})
			removed, err := db.Purge(e.Context(), listed)
			e.wantHolders(err, refB)
			e.wantClass(err, refdb.ErrLocked, refdb.Retryable)
			if len(removed) != 0 {
				e.Errorf("removed %+v", removed)
			}
			e.wantLock(old)
			e.wantHeld(l)

			e.wantBeats(refB) // its heartbeat is no condition
			removed, err = db.Purge(e.Context(), listed, refdb.PurgeFresh())
			e.must(err)
			if len(removed) != 2 {
				e.Errorf("removed %+v", removed)
			}
			e.wantFree(refA, refB)
			e.wantEnd(l, refdb.ErrLockLost)
		}},
		{"a marker is an orphan if its lock has another token or is gone, and is purged", func(e *env) {
			db := e.open(refdb.Options{})
			a, b := e.acquire(e.a, refA), e.acquire(e.a, refB)
			insert := func(project, ref string) {
				e.db.InsertLock(e, refdb.LockInfo{Project: project, Ref: ref, Owner: gerrit})
			}
			// Gerrit's plugin prints the time in one way, other programs in another.
			orphans := []string{
				marker(e.project, a.Token-1),
				marker(e.project+"_b", a.Token),
				refdb.ReclaimPrefix + e.project + "_" + (a.Token - 2).Time().Format(time.RFC3339Nano),
			}
			slices.Sort(orphans)
			for _, o := range orphans {
				insert(o, refA)
			}
			underWay := marker(e.project, b.Token)
			insert(underWay, refB)
			insert(refdb.ReclaimPrefix+e.project, refA) // no marker's name
			insert(refdb.ReclaimPrefix+e.project+"_x", refA)

			var found []refdb.LockInfo
			var got []string
			for l, err := range db.Orphans(e.Context()) {
				e.must(err)
				if strings.Contains(l.Project, e.project) {
					found, got = append(found, l), append(got, l.Project)
				}
			}
			if !slices.Equal(got, orphans) {
				e.Errorf("the orphans are %q, want %q", got, orphans)
			}
			removed, err := db.Purge(e.Context(), found)
			e.must(err)
			if len(removed) != len(orphans) {
				e.Errorf("removed %+v", removed)
			}
			for _, o := range orphans {
				if _, ok := e.db.RowLock(e, o, refA); ok {
					e.Errorf("%q is left", o)
				}
			}
			if _, ok := e.db.RowLock(e, underWay, refB); !ok {
				e.Error("the marker of a reclaim under way is gone")
			}
			e.wantLock(a)
			e.wantLock(b)
			if got := e.listed(db, refdb.LockFilter{Project: e.project}); len(got) != 2 {
				e.Errorf("the locks are %+v", got)
			}
		}},
	}
}

// listed returns what db lists.
func (e *env) listed(db *refdb.DB, f refdb.LockFilter) []refdb.LockInfo {
	e.Helper()
	var all []refdb.LockInfo
	for l, err := range db.Locks(e.Context(), f) {
		e.must(err)
		all = append(all, l)
	}
	return all
}
