package db

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/operator"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

func adminRows() []row {
	return []row{
		{"all locks that a filter selects are listed, page after page, as far as the caller reads", suite.Long(suite.Alone(func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			names := suite.ManyNames(manyRows(e))
			e.Acquire(e.A, names...)
			var got []string
			for l, err := range db.Locks(e.Context(), driver.LockFilter{Project: e.Project}) {
				e.Must(err)
				if l.Project != e.Project || l.Owner != e.A.Owner || l.Stale() || len(got) == len(names) {
					e.Fatalf("got %+v", l)
				}
				got = append(got, l.Ref)
			}
			if !slices.Equal(got, names) {
				e.Errorf("%d locks were listed of %d", len(got), len(names))
			}
			if n := faulty.Count("Locks"); n < 2 {
				e.Errorf("%d locks came in %d pages", len(names), n)
			}
			pages := faulty.Count("Locks")
			for range db.Locks(e.Context(), driver.LockFilter{Project: e.Project}) {
				break
			}
			if n := faulty.Count("Locks") - pages; n != 1 {
				e.Errorf("the first lock took %d pages", n)
			}
		}))},
		{"a listing of locks goes on behind a place", func(e *env) {
			db := e.Open(refdb.Options{})
			e.Hold(db, refA, refB, refC)
			for after, want := range map[string][]string{"": {refA, refB, refC}, refA: {refB, refC}, refC: nil} {
				var got []string
				for l, err := range db.Locks(e.Context(), driver.LockFilter{Project: e.Project}, refdb.Behind(e.Project, after)) {
					e.Must(err)
					got = append(got, l.Ref)
				}
				if !slices.Equal(got, want) {
					e.Errorf("behind %q: got %q, want %q", after, got, want)
				}
			}
		}},
		{"a process's own locks are found by its owner, and by its site", func(e *env) {
			site := "of-" + e.Project
			db := e.Open(refdb.Options{Site: site})
			e.Hold(db, refA, refB)
			e.Hold(e.Open(refdb.Options{Site: site + "2"}), refC)
			for _, owner := range []string{db.Owner(), site} {
				if got := listLocks(e, db, driver.LockFilter{Owner: owner}); len(got) != 2 || got[0].Owner != db.Owner() {
					e.Errorf("the locks of %q are %+v", owner, got)
				}
			}
		}},
		{"an error ends a list", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			broken := errors.New("a test's error")
			faulty.Inject(func(suite.Call) error { return broken })
			for name, err := range map[string]error{
				"Locks":   suite.FirstError(db.Locks(e.Context(), driver.LockFilter{})),
				"Orphans": suite.FirstError(db.Operator().Orphans(e.Context())),
				"Refs":    suite.FirstError(db.Refs(e.Context(), e.Project, "")),
			} {
				if !errors.Is(err, broken) {
					e.Errorf("%s: %v", name, err)
				}
			}
		}},
		{"stale locks are purged in the state in which they were listed", func(e *env) {
			db := e.Open(refdb.Options{})
			old, fresh := e.Acquire(e.A, refA, refB), e.Acquire(e.A, refC)
			e.Age(old, stale)
			listed := listLocks(e, db, driver.LockFilter{Project: e.Project, Stale: true})
			removed, err := db.Operator().Purge(e.Context(), listed)
			e.Must(err)
			if len(listed) != 2 || !slices.Equal(removed, listed) {
				e.Errorf("listed %+v, removed %+v", listed, removed)
			}
			e.WantFree(refA, refB)
			e.WantLock(fresh)
			if removed, err := db.Operator().Purge(e.Context(), listed); len(removed) != 0 || err != nil {
				e.Errorf("again: %v, %v", removed, err)
			}
			if removed, err := db.Operator().Purge(e.Context(), nil); len(removed) != 0 || err != nil {
				e.Errorf("nothing: %v, %v", removed, err)
			}
		}},
		{"a lock that was listed as stale and has beaten since is not purged, not even by force", func(e *env) {
			db := e.Open(refdb.Options{})
			l := e.Acquire(e.A, refA, refB)
			e.Age(l, stale)
			listed := listLocks(e, db, driver.LockFilter{Project: e.Project})
			e.Beat(e.A, l.IDs()[0])
			removed, err := db.Operator().Purge(e.Context(), listed, operator.PurgeFresh())
			e.Must(err)
			if len(removed) != 1 || removed[0].Ref != refB {
				e.Errorf("removed %+v", removed)
			}
			e.WantLock(l, refA)
			e.WantFree(refB)
		}},
		{"a lock that has changed hands since it was listed is not purged, not even by force", func(e *env) {
			db := e.Open(refdb.Options{})
			old, fresh := e.Acquire(e.A, refA), e.Acquire(e.A, refB)
			e.Age(old, stale)
			listed := listLocks(e, db, driver.LockFilter{Project: e.Project})
			e.Release(e.A, fresh)
			next := e.Acquire(e.B, refA, refB)
			removed, err := db.Operator().Purge(e.Context(), listed, operator.PurgeFresh())
			e.Must(err)
			if len(removed) != 0 {
				e.Errorf("removed %+v", removed)
			}
			e.WantLock(next)
		}},
		{"one fresh lock among those to purge refuses all, unless by force", func(e *env) {
			holder, db := e.Open(suite.FastHeartbeat()), e.Open(refdb.Options{})
			old, l := e.Acquire(e.A, refA), e.Hold(holder, refB)
			e.Age(old, stale)
			listed := listLocks(e, db, driver.LockFilter{Project: e.Project})
			removed, err := db.Operator().Purge(e.Context(), listed)
			e.WantHolders(err, refB)
			e.WantClass(err, driver.ErrLocked, driver.Retryable)
			if len(removed) != 0 {
				e.Errorf("removed %+v", removed)
			}
			e.WantLock(old)
			e.WantHeld(l)

			wantBeats(e, refB) // a purge of fresh locks ignores the heartbeat
			removed, err = db.Operator().Purge(e.Context(), listed, operator.PurgeFresh())
			e.Must(err)
			if len(removed) != 2 {
				e.Errorf("removed %+v", removed)
			}
			e.WantFree(refA, refB)
			e.WantEnd(l, driver.ErrLockLost)
		}},
		{"a marker is an orphan if its lock has another token or is gone, and is purged", func(e *env) {
			db := e.Open(refdb.Options{})
			a, b := e.Acquire(e.A, refA), e.Acquire(e.A, refB)
			insert := func(project, ref string) {
				e.DB.InsertLock(e, driver.LockInfo{Project: project, Ref: ref, Owner: gerrit})
			}
			// Gerrit's plugin and other programs format the time differently.
			orphans := []string{
				suite.Marker(e.Project, a.Token-1),
				suite.Marker(e.Project+"_b", a.Token),
				driver.ReclaimPrefix + e.Project + "_" + (a.Token - 2).Time().Format(time.RFC3339Nano),
			}
			slices.Sort(orphans)
			for _, o := range orphans {
				insert(o, refA)
			}
			underWay := suite.Marker(e.Project, b.Token)
			insert(underWay, refB)
			insert(driver.ReclaimPrefix+e.Project, refA) // not the name of a marker
			insert(driver.ReclaimPrefix+e.Project+"_x", refA)

			var found []driver.LockInfo
			var got []string
			for l, err := range db.Operator().Orphans(e.Context()) {
				e.Must(err)
				if strings.Contains(l.Project, e.Project) {
					found, got = append(found, l), append(got, l.Project)
				}
			}
			if !slices.Equal(got, orphans) {
				e.Errorf("the orphans are %q, want %q", got, orphans)
			}
			removed, err := db.Operator().Purge(e.Context(), found)
			e.Must(err)
			if len(removed) != len(orphans) {
				e.Errorf("removed %+v", removed)
			}
			for _, o := range orphans {
				if _, ok := e.DB.RowLock(e, o, refA); ok {
					e.Errorf("%q is left", o)
				}
			}
			if _, ok := e.DB.RowLock(e, underWay, refB); !ok {
				e.Error("the marker of a reclaim under way is gone")
			}
			e.WantLock(a)
			e.WantLock(b)
			if got := listLocks(e, db, driver.LockFilter{Project: e.Project}); len(got) != 2 {
				e.Errorf("the locks are %+v", got)
			}
		}},
	}
}

// listLocks returns the locks that db lists.
func listLocks(e *env, db *refdb.DB, f driver.LockFilter) []driver.LockInfo {
	e.Helper()
	var all []driver.LockInfo
	for l, err := range db.Locks(e.Context(), f) {
		e.Must(err)
		all = append(all, l)
	}
	return all
}

// A driver may return short or empty pages before the last one.
func pageRows() []row {
	return []row{
		{"short and empty pages of refs don't end a list", func(e *env) {
			all, shown := hiddenNames()
			e.Store(all)
			var got []string
			for ref, err := range e.OpenOn(&shortPages{Driver: e.DB.Open(e)}, refdb.Options{}).Refs(e.Context(), e.Project, "") {
				e.Must(err)
				got = append(got, ref.Name)
			}
			if !slices.Equal(got, shown) {
				e.Errorf("got %q, want %q", got, shown)
			}
		}},
		{"short and empty pages of projects don't end a list", func(e *env) {
			all, shown := hiddenNames()
			for _, name := range all {
				e.DB.InsertRef(e, e.Project+"/"+name, refA, v1)
			}
			var got []string
			for p, err := range e.OpenOn(&shortPages{Driver: e.DB.Open(e)}, refdb.Options{}).Projects().Summaries(e.Context()) {
				e.Must(err)
				if name, ok := strings.CutPrefix(p.Name, e.Project+"/"); ok {
					got = append(got, name)
				}
			}
			if !slices.Equal(got, shown) {
				e.Errorf("got %q, want %q", got, shown)
			}
		}},
		{"short and empty pages of locks don't end a list", func(e *env) {
			all, shown := hiddenNames()
			e.Acquire(e.A, all...)
			var got []string
			for _, l := range listLocks(e, e.OpenOn(&shortPages{Driver: e.DB.Open(e)}, refdb.Options{}), driver.LockFilter{Project: e.Project}) {
				got = append(got, l.Ref)
			}
			if !slices.Equal(got, shown) {
				e.Errorf("got %q, want %q", got, shown)
			}
		}},
		{"short and empty pages of intents don't end a list", func(e *env) {
			all, shown := hiddenNames()
			e.Prepare(e.A, suite.Creations(all)...)
			var got []string
			for _, i := range listIntents(e, e.OpenOn(&shortPages{Driver: e.DB.Open(e)}, refdb.Options{}), driver.IntentFilter{Project: e.Project}) {
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
	for i, name := range suite.ManyNames(12) {
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
type shortPages struct{ driver.Driver }

func isHidden(ref string) bool { return strings.HasSuffix(ref, hidden) }

func (d *shortPages) List(ctx context.Context, q driver.RefQuery) (driver.RefPage, error) {
	q.Limit = 1
	page, err := d.Driver.List(ctx, q)
	page.Refs = slices.DeleteFunc(page.Refs, func(r driver.Ref) bool { return isHidden(r.Name) })
	return page, err
}

func (d *shortPages) Summaries(ctx context.Context, q driver.SummaryQuery) (driver.SummaryPage, error) {
	q.Limit = 1
	page, err := d.Driver.Summaries(ctx, q)
	page.Summaries = slices.DeleteFunc(page.Summaries, func(p driver.ProjectSummary) bool { return isHidden(p.Name) })
	return page, err
}

func (d *shortPages) Locks(ctx context.Context, q driver.LockQuery) (driver.LockPage, error) {
	q.Limit = 1
	page, err := d.Driver.Locks(ctx, q)
	page.Locks = slices.DeleteFunc(page.Locks, func(l driver.LockInfo) bool { return isHidden(l.Ref) })
	return page, err
}

func (d *shortPages) Intents(ctx context.Context, q driver.IntentQuery) (driver.IntentPage, error) {
	q.Limit = 1
	page, err := d.Driver.Intents(ctx, q)
	page.Intents = slices.DeleteFunc(page.Intents, func(i driver.Intent) bool { return isHidden(i.Ref) })
	return page, err
}
