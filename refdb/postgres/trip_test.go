package postgres_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// names returns n refs.
func names(n int) []string { return some("refs/heads/", n) }

// some returns n refs that start with prefix, sorted.
func some(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%05d", prefix, i)
	}
	return all
}

// Every operation is one round trip once its statements are prepared; the
// count is exact, so that one trip more is a failure.
func TestOperationsTakeOneRoundTrip(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	w := newWire(t, db.URL())
	d := open(t, w.url)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	for _, n := range []int{1, 2, 200, 1000} {
		refs := names(n)
		project := fmt.Sprint("project-", n)
		r := request(refs...)
		r.Project = project
		var a refdb.Acquired
		held := func() []refdb.Held {
			var all []refdb.Held
			for _, ref := range refs {
				all = append(all, refdb.Held{Project: project, Ref: ref, Token: a.Token})
			}
			return all
		}
		change := func(old, new refdb.Value) refdb.Transaction {
			tx := refdb.Transaction{Project: project, ID: "id"}
			for _, ref := range refs {
				tx.Updates = append(tx.Updates, refdb.Update{Ref: ref, Old: old, New: new})
			}
			return tx
		}
		fenced := func(old, new refdb.Value, release bool) refdb.Transaction {
			tx := change(old, new)
			tx.Fence, tx.Release = &refdb.Fence{Refs: refs, Token: a.Token}, release
			return tx
		}
		intent := intention(v1, v2, refs...)
		prepare := func(old, new refdb.Value) {
			t.Helper()
			intent = intention(old, new, refs...)
			intent.Project = project
			var err error
			a, err = d.Acquire(ctx, intent)
			must(err)
		}
		finish := func(old, new refdb.Value) refdb.Transaction {
			tx := fenced(old, new, true)
			tx.Fence.Intents = true
			return tx
		}
		named := func() []refdb.Intent {
			var all []refdb.Intent
			for _, ref := range refs {
				all = append(all, refdb.Intent{Project: project, Ref: ref, Token: a.Token})
			}
			return all
		}
		refused := func(_ any, err error) {
			t.Helper()
			if err == nil {
				t.Fatal("not refused")
			}
		}
		steps := []struct {
			name string
			do   func()
		}{
			{"an uncontended acquisition", func() {
				var err error
				a, err = d.Acquire(ctx, r)
				must(err)
			}},
			{"a refused acquisition", func() { other := r; other.Nonce = "other"; refused(d.Acquire(ctx, other)) }},
			{"an adopting acquisition", func() { _, err := d.Acquire(ctx, r); must(err) }},
			{"a beat", func() {
				results, err := d.Beat(ctx, r.Owner, held())
				must(err)
				if slices.ContainsFunc(results, func(r refdb.BeatResult) bool { return r != refdb.Beaten }) {
					t.Fatal(results)
				}
			}},
			{"a refused update", func() { refused(nil, d.Update(ctx, change("", v1))) }},
			{"a fenced update", func() { must(d.Update(ctx, fenced("", v1, false))) }},
			{"a mismatch", func() { refused(nil, d.Update(ctx, fenced(v2, v1, false))) }},
			{"an update that releases", func() { must(d.Update(ctx, fenced(v1, v2, true))) }},
			{"a lost fence", func() { refused(nil, d.Update(ctx, fenced(v1, v2, true))) }},
			{"an update", func() { must(d.Update(ctx, change(v2, v1))) }},
			{"another acquisition", func() {
				var err error
				a, err = d.Acquire(ctx, r)
				must(err)
			}},
			{"a release", func() {
				gone, err := d.Release(ctx, held())
				must(err)
				if slices.Contains(gone, false) {
					t.Fatal(gone)
				}
			}},
			{"a read", func() { _, err := d.Get(ctx, project, refs); must(err) }},
			{"a page of refs", func() {
				_, err := d.List(ctx, refdb.RefQuery{Project: project, Limit: 10})
				must(err)
			}},
			{"a page of locks", func() { _, err := d.Locks(ctx, refdb.LockQuery{Limit: 10}); must(err) }},
			{"a refused preparation", func() {
				r := intention(v1, v2, refs...)
				r.Project, r.Intents[0].Old = project, v2
				refused(d.Acquire(ctx, r))
			}},
			{"a preparation", func() { prepare(v1, v2) }},
			{"a preparation that is adopted", func() { _, err := d.Acquire(ctx, intent); must(err) }},
			{"a look at refs and locks", func() { _, err := d.States(ctx, project, refs); must(err) }},
			{"an end of intents", func() { must(d.Update(ctx, finish(v1, v2))) }},
			{"another preparation", func() { prepare(v2, v1) }},
			{"an end of dropped intents", func() {
				rows := held()
				for i := range rows {
					rows[i].Intent = true
				}
				gone, err := d.Release(ctx, rows)
				must(err)
				if slices.Contains(gone, false) {
					t.Fatal(gone)
				}
			}},
			{"one more preparation", func() { prepare(v2, v1) }},
			{"a page of intents", func() {
				_, err := d.Intents(ctx, refdb.IntentQuery{Limit: 10})
				must(err)
			}},
			{"a resolution", func() {
				ended, err := d.Resolve(ctx, refdb.ResolveRequest{Intents: named(), Decision: refdb.TakeNew, By: "by", Reason: "reason"})
				must(err)
				if slices.Contains(ended, false) {
					t.Fatal(ended)
				}
			}},
			{"forgetting", func() { must(d.Forget(ctx, named())) }},
			{"the time", func() { _, err := d.Now(ctx); must(err) }},
			{"a removal", func() {
				removed, err := d.Remove(ctx, refdb.RemoveRequest{Project: project, Limit: n})
				must(err)
				if removed != n {
					t.Fatalf("removed %d of %d refs", removed, n)
				}
			}},
		}
		for _, s := range steps { // prepares the statements
			s.do()
		}
		for _, s := range steps {
			if trips := w.count(s.do); trips != 1 {
				t.Errorf("%s of %d refs took %d round trips, want 1", s.name, n, trips)
			}
		}
	}
}
