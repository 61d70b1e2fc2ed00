package refdbtest

import (
	"fmt"
	"slices"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// Whoever reads a listing page after page, by Next, meets every row once.
func cursorRows() []row {
	sizes := []int{1, 2, 3, 1000}
	return []row{
		{"refs are listed by Next, each once, on pages of any size", func(e *env) {
			names := manyNames(7)
			e.store(names)
			for _, size := range sizes {
				if got := e.names(refdb.RefQuery{Limit: size}); !slices.Equal(got, names) {
					e.Errorf("pages of %d: got %q", size, got)
				}
			}
		}},
		{"locks are listed by Next, each once, on pages of any size, over projects", func(e *env) {
			var want []refdb.LockCursor
			for _, project := range []string{"", "-", "/b"} {
				r := e.request(process{e.a.Driver, e.project}, manyNames(4)...)
				r.Project += project
				l, err := e.send(e.a, r)
				e.must(err)
				for _, id := range l.ids() {
					want = append(want, refdb.LockCursor{Project: id.Project, Ref: id.Ref})
				}
			}
			for _, size := range sizes {
				var got []refdb.LockCursor
				for _, l := range e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Owner: e.project}, Limit: size}) {
					got = append(got, placeOf(l))
				}
				if !slices.Equal(got, want) {
					e.Errorf("pages of %d: got %v, want %v", size, got, want)
				}
			}
		}},
		{"markers are listed by Next, each once, on pages of any size", func(e *env) {
			var want []string
			for i := range 4 {
				m := marker(e.project, refdb.Token(i+1))
				e.db.InsertLock(e, refdb.LockInfo{Project: m, Ref: refA, Owner: e.project})
				want = append(want, m)
			}
			for _, size := range sizes {
				var got []string
				for _, l := range e.locks(refdb.LockQuery{Markers: true, LockFilter: refdb.LockFilter{Owner: e.project}, Limit: size}) {
					got = append(got, l.Project)
				}
				if !slices.Equal(got, want) {
					e.Errorf("pages of %d: got %q, want %q", size, got, want)
				}
			}
		}},
		{"intents are listed by Next, each once, on pages of any size, those of one ref too", func(e *env) {
			var want []refdb.IntentCursor
			for _, ref := range []string{refA, refB} {
				for i := range 3 {
					l := e.prepare(e.a, move(ref, "", refdb.Value(fmt.Sprint(i))))
					e.resolve(e.b, refdb.KeepOld, l.ids()...)
					want = append(want, refdb.IntentCursor{Project: l.Project, Ref: ref, Token: l.Token})
				}
			}
			for _, size := range sizes {
				var got []refdb.IntentCursor
				for _, i := range e.intents(refdb.IntentQuery{IntentFilter: refdb.IntentFilter{Project: e.project, Decided: true}, Limit: size}) {
					got = append(got, cursorOf(i))
				}
				if !slices.Equal(got, want) {
					e.Errorf("pages of %d: got %v, want %v", size, got, want)
				}
			}
		}},
		{"a listing of nothing has an end", func(e *env) {
			refs, err := e.a.List(e.Context(), refdb.RefQuery{Project: e.project, Limit: 1})
			e.must(err)
			locks, err := e.a.Locks(e.Context(), refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}, Limit: 1})
			e.must(err)
			intents, err := e.a.Intents(e.Context(), refdb.IntentQuery{IntentFilter: refdb.IntentFilter{Project: e.project}, Limit: 1})
			e.must(err)
			if len(refs.Refs)+len(locks.Locks)+len(intents.Intents) != 0 {
				e.Errorf("got %v, %v and %v", refs, locks, intents)
			}
			e.names(refdb.RefQuery{Limit: 1})
			e.locks(refdb.LockQuery{LockFilter: refdb.LockFilter{Project: e.project}, Limit: 1})
			e.pending()
		}},
	}
}
