package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// names returns n refs.
func names(n int) []string { return some("refs/heads/", n) }

// some returns n sorted refs with the given prefix.
func some(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%05d", prefix, i)
	}
	return all
}

// Every operation takes one round trip once its statements are prepared. The count is exact, so one
// more round trip fails the test.
func TestOperationsTakeOneRoundTrip(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	w := newWire(t, db.URL())
	d := open(t, w.url)
	d.BePatient()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	sizes := []int{1, 2, 200}
	if !testing.Short() {
		sizes = append(sizes, 1000)
	}
	for _, n := range sizes {
		refs := names(n)
		project := fmt.Sprint("project-", n)
		r := request(refs...)
		r.Project = project
		var token driver.Token
		take := func() {
			t.Helper()
			a, err := d.Acquire(ctx, r)
			must(err)
			token = a.Token
		}
		locks := func() []driver.LockID {
			all := ids(token, refs...)
			for i := range all {
				all[i].Project = project
			}
			return all
		}
		change := func(old, new driver.Value, f *driver.Fence) error {
			return try(ctx, d, driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: "id"}, Updates: moves(old, new, refs...), Fence: f})
		}
		var intent driver.PrepareRequest
		prepare := func(old, new driver.Value) {
			t.Helper()
			intent = intention(old, new, refs...)
			intent.Project = project
			p, err := d.Prepare(ctx, intent)
			must(err)
			token = p.Token
		}
		finish := func(f driver.FinishRequest) {
			t.Helper()
			f.Project = project
			must(d.Finish(ctx, f))
		}
		refused := func(err error) {
			t.Helper()
			if err == nil {
				t.Fatal("not refused")
			}
		}
		// Both waiters have a ticket. Neither has a channel: a notification would take a round
		// trip, some time later.
		waiting := driver.Waiter{ID: "1", Place: driver.Place{Ticket: time.UnixMicro(1)}}
		next := driver.Waiter{ID: "2", Turn: time.Minute, Place: driver.Place{Ticket: time.UnixMicro(2)}}
		takeAs := func(w driver.Waiter) {
			t.Helper()
			r := r
			r.Waiter = w
			a, err := d.Acquire(ctx, r)
			must(err)
			token = a.Token
		}
		end := func(next driver.Waiter) {
			t.Helper()
			e := ending(token, refs...)
			e.Project, e.Next = project, next
			released, err := d.Release(ctx, e)
			must(err)
			if released.Missing != nil {
				t.Fatal(released)
			}
		}
		steps := []struct {
			name string
			do   func()
		}{
			{"an uncontended acquisition", take},
			{"a refused acquisition", func() { other := r; other.Nonce = "other"; _, err := d.Acquire(ctx, other); refused(err) }},
			{"a refused acquisition that waits", func() {
				other := r
				other.Nonce, other.Waiter = "other", waiting
				_, err := d.Acquire(ctx, other)
				refused(err)
			}},
			{"an adopting acquisition", func() { _, err := d.Acquire(ctx, r); must(err) }},
			{"a beat", func() {
				results, err := d.Beat(ctx, locks())
				must(err)
				if slices.ContainsFunc(results, func(r driver.BeatResult) bool { return r != driver.BeatRenewed }) {
					t.Fatal(results)
				}
			}},
			{"a refused update", func() { refused(change("", v1, nil)) }},
			{"a fenced update", func() { must(change("", v1, fence(token, refs...))) }},
			{"a mismatch", func() { refused(change(v2, v1, fence(token, refs...))) }},
			{"an update that releases", func() {
				f := releasing(token, refs...)
				f.Next = next
				must(change(v1, v2, f))
			}},
			{"a lost fence", func() { refused(change(v1, v2, releasing(token, refs...))) }},
			{"an acquisition of a reservation", func() { takeAs(next) }},
			{"a release to the next waiter", func() { end(next) }},
			{"another acquisition of a reservation", func() { takeAs(next) }},
			{"a release to the first waiter", func() { end(driver.Waiter{}) }},
			{"an update past reservations for nobody", func() { must(change(v2, v2, nil)) }},
			{"an acquisition by that waiter", func() { takeAs(waiting) }},
			{"a release", func() { end(driver.Waiter{}) }},
			{"an update", func() { must(change(v2, v1, nil)) }},
			{"an acquisition to be purged", take},
			{"a purge", func() {
				var all []driver.StandingLock
				for _, l := range locks() {
					all = append(all, driver.StandingLock{LockID: l})
				}
				purged, err := d.Purge(ctx, all)
				must(err)
				if slices.Contains(purged, false) {
					t.Fatal(purged)
				}
			}},
			{"an acquisition to be abandoned", take},
			{"an abandonment", func() {
				must(d.Abandon(ctx, driver.AbandonRequest{Project: project, Refs: refs, Owner: r.Owner, Nonce: r.Nonce}))
			}},
			{"a read", func() { _, err := d.Get(ctx, project, refs); must(err) }},
			{"a page of refs", func() {
				_, err := d.List(ctx, driver.RefQuery{Project: project, Limit: 10})
				must(err)
			}},
			{"a page of locks", func() { _, err := d.Locks(ctx, driver.LockQuery{Limit: 10}); must(err) }},
			{"the tip of a project", func() { _, err := d.Tip(ctx, project); must(err) }},
			{"a refused preparation", func() {
				r := intention(v1, v2, refs...)
				r.Project, r.Updates[0].Old = project, v2
				_, err := d.Prepare(ctx, r)
				refused(err)
			}},
			{"a preparation", func() { prepare(v1, v2) }},
			{"a preparation that is adopted", func() { _, err := d.Prepare(ctx, intent); must(err) }},
			{"a read of refs and locks", func() { _, err := d.States(ctx, project, refs); must(err) }},
			{"an end of intents", func() { finish(done(token, v1, v2, refs...)) }},
			{"another preparation", func() { prepare(v2, v1) }},
			{"an end of dropped intents", func() { finish(dropped(token, refs...)) }},
			{"a preparation to be revoked", func() { prepare(v2, v1) }},
			{"a revocation", func() { must(d.Revoke(ctx, intent)) }},
			{"one more preparation", func() { prepare(v2, v1) }},
			{"a page of intents", func() {
				_, err := d.Intents(ctx, driver.IntentQuery{Limit: 10})
				must(err)
			}},
			{"a resolution", func() {
				ended, err := d.Resolve(ctx, driver.ResolveRequest{Intents: locks(), Decision: driver.TakeNew, Origin: driver.Origin{By: "by"}, Reason: "reason"})
				must(err)
				if slices.Contains(ended, false) {
					t.Fatal(ended)
				}
			}},
			{"forgetting", func() { must(d.Forget(ctx, locks())) }},
			{"the time", func() { _, err := d.Now(ctx); must(err) }},
			{"a removal", func() {
				removed, err := d.Remove(ctx, driver.RemoveRequest{Project: project, Limit: n})
				must(err)
				if removed != n {
					t.Fatalf("removed %d of %d refs", removed, n)
				}
			}},
			{"an update that creates", func() { must(change("", v1, nil)) }},
			{"another removal", func() { _, err := d.Remove(ctx, driver.RemoveRequest{Project: project, Limit: n}); must(err) }},
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
