package refdbtest

import (
	"context"
	"slices"
	"strings"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// What a DB lists over a driver whose pages are short, or empty, before the last.
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
		{"short and empty pages of locks don't end a list", func(e *env) {
			all, shown := hiddenNames()
			e.acquire(e.a, all...)
			var got []string
			for _, l := range e.listed(e.openOn(&shortPages{Driver: e.db.Open(e)}, refdb.Options{}), refdb.LockFilter{Project: e.project}) {
				got = append(got, l.Ref)
			}
			if !slices.Equal(got, shown) {
				e.Errorf("got %q, want %q", got, shown)
			}
		}},
		{"short and empty pages of intents don't end a list", func(e *env) {
			all, shown := hiddenNames()
			var updates []refdb.Update
			for _, name := range all {
				updates = append(updates, move(name, "", v1))
			}
			e.prepare(e.a, updates...)
			var got []string
			for _, i := range e.intended(e.openOn(&shortPages{Driver: e.db.Open(e)}, refdb.Options{}), refdb.IntentFilter{Project: e.project}) {
				got = append(got, i.Ref)
			}
			if !slices.Equal(got, shown) {
				e.Errorf("got %q, want %q", got, shown)
			}
		}},
	}
}

const hidden = "hidden"

// hiddenNames returns names in order, and those of them that shortPages shows.
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

// shortPages reads one row at a time, and leaves it out if it is to be hidden:
// each page has one row, or none, and says where to go on.
type shortPages struct{ refdb.Driver }

func isHidden(ref string) bool { return strings.HasSuffix(ref, hidden) }

func (d *shortPages) List(ctx context.Context, q refdb.RefQuery) (refdb.RefPage, error) {
	q.Limit = 1
	page, err := d.Driver.List(ctx, q)
	page.Refs = slices.DeleteFunc(page.Refs, func(r refdb.Ref) bool { return isHidden(r.Name) })
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
