package refdbtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func dbAdminRows() []row {
	return []row{
		{"all locks that a filter selects are listed, page after page, as far as the caller reads", alone(func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			names := manyNames(e.manyRows())
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
			if n := driver.count("Locks"); n < 2 {
				e.Errorf("%d locks came in %d pages", len(names), n)
			}
			pages := driver.count("Locks")
			for range db.Locks(e.Context(), refdb.LockFilter{Project: e.project}) {
				break
			}
			if n := driver.count("Locks") - pages; n != 1 {
				e.Errorf("the first lock took %d pages", n)
			}
		})},
		{"a process's own locks are found by its owner, and by its site", func(e *env) {
			site := "of-" + e.project
			db := e.open(refdb.Options{Site: site})
			e.hold(db, refA, refB)
			e.hold(e.open(refdb.Options{Site: site + "2"}), refC)
			for _, owner := range []string{db.Owner(), site} {
				if got := e.listLocks(db, refdb.LockFilter{Owner: owner}); len(got) != 2 || got[0].Owner != db.Owner() {
					e.Errorf("the locks of %q are %+v", owner, got)
				}
			}
		}},
		{"an error ends a list", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			broken := errors.New("a test's error")
			driver.inject(func(call) error { return broken })
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
			listed := e.listLocks(db, refdb.LockFilter{Project: e.project, Stale: true})
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
			listed := e.listLocks(db, refdb.LockFilter{Project: e.project})
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
			listed := e.listLocks(db, refdb.LockFilter{Project: e.project})
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
			holder, db := e.open(fastHeartbeat()), e.open(refdb.Options{})
			old, l := e.acquire(e.a, refA), e.hold(holder, refB)
			e.age(old, stale)
			listed := e.listLocks(db, refdb.LockFilter{Project: e.project})
			removed, err := db.Purge(e.Context(), listed)
			e.wantHolders(err, refB)
			e.wantClass(err, refdb.ErrLocked, refdb.Retryable)
			if len(removed) != 0 {
				e.Errorf("removed %+v", removed)
			}
			e.wantLock(old)
			e.wantHeld(l)

			e.wantBeats(refB) // a purge of fresh locks ignores the heartbeat
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
			// Gerrit's plugin and other programs format the time differently.
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
			insert(refdb.ReclaimPrefix+e.project, refA) // not the name of a marker
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
			if got := e.listLocks(db, refdb.LockFilter{Project: e.project}); len(got) != 2 {
				e.Errorf("the locks are %+v", got)
			}
		}},
	}
}

// listLocks returns the locks that db lists.
func (e *env) listLocks(db *refdb.DB, f refdb.LockFilter) []refdb.LockInfo {
	e.Helper()
	var all []refdb.LockInfo
	for l, err := range db.Locks(e.Context(), f) {
		e.must(err)
		all = append(all, l)
	}
	return all
}

// A driver may return short or empty pages before the last one.
func dbPageRows() []row {
	return []row{
		{"short and empty pages of refs don't end a list", func(e *env) {
			all, shown := hiddenNames()
			e.store(all)
			var got []string
			for ref, err := range e.openOn(&shortPages{Driver: e.db.Open(e)}, refdb.Options{}).Refs(e.Context(), e.project, "") {
				e.must(err)
				got = append(got, ref.Name)
			}
			if !slices.Equal(got, shown) {
				e.Errorf("got %q, want %q", got, shown)
			}
		}},
		{"short and empty pages of projects don't end a list", func(e *env) {
			all, shown := hiddenNames()
			for _, name := range all {
				e.db.InsertRef(e, e.project+"/"+name, refA, v1)
			}
			var got []string
			for p, err := range e.openOn(&shortPages{Driver: e.db.Open(e)}, refdb.Options{}).Projects(e.Context()) {
				e.must(err)
				if name, ok := strings.CutPrefix(p.Name, e.project+"/"); ok {
					got = append(got, name)
				}
			}
			if !slices.Equal(got, shown) {
				e.Errorf("got %q, want %q", got, shown)
			}
		}},
		{"short and empty pages of locks don't end a list", func(e *env) {
			all, shown := hiddenNames()
			e.acquire(e.a, all...)
			var got []string
			for _, l := range e.listLocks(e.openOn(&shortPages{Driver: e.db.Open(e)}, refdb.Options{}), refdb.LockFilter{Project: e.project}) {
				got = append(got, l.Ref)
			}
			if !slices.Equal(got, shown) {
				e.Errorf("got %q, want %q", got, shown)
			}
		}},
		{"short and empty pages of intents don't end a list", func(e *env) {
			all, shown := hiddenNames()
			e.prepare(e.a, creations(all)...)
			var got []string
			for _, i := range e.listIntents(e.openOn(&shortPages{Driver: e.db.Open(e)}, refdb.Options{}), refdb.IntentFilter{Project: e.project}) {
				got = append(got, i.Ref)
			}
			if !slices.Equal(got, shown) {
				e.Errorf("got %q, want %q", got, shown)
			}
		}},
	}
}

const hidden = "hidden"

// hiddenNames returns sorted names, and those of them that shortPages does not hide.
func hiddenNames() (all, shown []string) {
	for i, name := range manyNames(12) {
		if i == 0 || i == 4 || i == 5 || i == 8 {
			name += hidden
		} else {
			shown = append(shown, name)
		}
		all = append(all, name)
	}
	return all, shown
}

// shortPages is a driver whose pages have one row, or none if the row is hidden.
// Next is set as usual.
type shortPages struct{ refdb.Driver }

func isHidden(ref string) bool { return strings.HasSuffix(ref, hidden) }

func (d *shortPages) List(ctx context.Context, q refdb.RefQuery) (refdb.RefPage, error) {
	q.Limit = 1
	page, err := d.Driver.List(ctx, q)
	page.Refs = slices.DeleteFunc(page.Refs, func(r refdb.Ref) bool { return isHidden(r.Name) })
	return page, err
}

func (d *shortPages) Summaries(ctx context.Context, q refdb.SummaryQuery) (refdb.SummaryPage, error) {
	q.Limit = 1
	page, err := d.Driver.Summaries(ctx, q)
	page.Summaries = slices.DeleteFunc(page.Summaries, func(p refdb.ProjectSummary) bool { return isHidden(p.Name) })
	return page, err
}

func (d *shortPages) Locks(ctx context.Context, q refdb.LockQuery) (refdb.LockPage, error) {
	q.Limit = 1
	page, err := d.Driver.Locks(ctx, q)
	page.Locks = slices.DeleteFunc(page.Locks, func(l refdb.LockInfo) bool { return isHidden(l.Ref) })
	return page, err
}

func (d *shortPages) Intents(ctx context.Context, q refdb.IntentQuery) (refdb.IntentPage, error) {
	q.Limit = 1
	page, err := d.Driver.Intents(ctx, q)
	page.Intents = slices.DeleteFunc(page.Intents, func(i refdb.Intent) bool { return isHidden(i.Ref) })
	return page, err
}
