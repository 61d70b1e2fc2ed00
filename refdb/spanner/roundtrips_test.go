package spanner_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

const (
	project = "proj"
	branch  = "refs/heads/main"

	v1 driver.Value = "1111111111111111111111111111111111111111"
	v2 driver.Value = "2222222222222222222222222222222222222222"

	owner = "site/1"
)

func request(nonce string, refs ...string) driver.AcquireRequest {
	return driver.AcquireRequest{Project: project, Refs: refs, Owner: owner, Nonce: nonce, StaleAfter: time.Hour}
}

func acquire(tb testing.TB, d driver.Driver, nonce string, refs ...string) driver.Acquired {
	tb.Helper()
	a, err := d.Acquire(tb.Context(), request(nonce, refs...))
	if err != nil {
		tb.Fatalf("acquire %v: %v", refs, err)
	}
	return a
}

// wait requests the lock on branch, which must be refused, and returns w with its place.
func wait(tb testing.TB, d driver.Driver, w driver.Waiter) driver.Waiter {
	tb.Helper()
	r := request("waits", branch)
	r.Waiter = w
	a, err := d.Acquire(tb.Context(), r)
	if !errors.Is(err, driver.ErrLocked) {
		tb.Fatalf("got %v, want to wait", err)
	}
	w.Place = a.Place
	return w
}

func move(ref string, old, new driver.Value) driver.Update {
	return driver.Update{Ref: ref, Old: old, New: new}
}

func update(tb testing.TB, d driver.Driver, id string, updates ...driver.Update) error {
	tb.Helper()
	return d.Update(tb.Context(), driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: id}, Updates: updates})
}

// fenced creates branch under the lock on it.
func fenced(tb testing.TB, d driver.Driver, id string, token driver.Token, release bool) error {
	tb.Helper()
	err := d.Update(tb.Context(), driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: id}, Updates: []driver.Update{move(branch, "", v1)},
		Fence: &driver.Fence{Refs: []string{branch}, Owner: owner, Token: token, Release: release}})
	return err
}

// lockIDs returns the IDs of the locks on refs that were acquired with the given token.
func lockIDs(token driver.Token, refs ...string) []driver.LockID {
	ids := make([]driver.LockID, len(refs))
	for i, ref := range refs {
		ids[i] = driver.LockID{Project: project, Ref: ref, Owner: owner, Token: token}
	}
	return ids
}

func releasing(token driver.Token, refs ...string) driver.ReleaseRequest {
	return driver.ReleaseRequest{Project: project, Refs: refs, Owner: owner, Token: token}
}

// release releases all of a lock, or ends the test.
func release(tb testing.TB, d driver.Driver, token driver.Token, refs ...string) {
	tb.Helper()
	if released, err := d.Release(tb.Context(), releasing(token, refs...)); err != nil || len(released.Missing) > 0 {
		tb.Fatalf("release %v: %+v, %v", refs, released, err)
	}
}

func names(n int) []string {
	refs := make([]string, n)
	for i := range refs {
		refs[i] = fmt.Sprintf("refs/heads/%05d", i)
	}
	return refs
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// An operation that writes is one query, which begins the transaction, and the Commit. An operation
// that reads is one request.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	const query, commit, read = "ExecuteStreamingSql", "Commit", "StreamingRead"
	many := names(1000)
	var a driver.Acquired
	var p driver.Prepared
	var waiter driver.Waiter
	ctx := t.Context()
	for _, row := range []struct {
		name  string
		setup func(testing.TB, *dbtest.Database, *spanner.Driver)
		do    func(testing.TB, *spanner.Driver) error
		want  []string
	}{
		{
			name: "acquiring a free ref",
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Acquire(ctx, request("n", branch))
				return err
			},
			want: []string{query, commit},
		}, {
			name: "acquiring a thousand free refs",
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Acquire(ctx, request("n", many...))
				return err
			},
			want: []string{query, commit},
		}, {
			name:  "being refused",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) { acquire(tb, d, "other", branch) },
			do: func(tb testing.TB, d *spanner.Driver) error {
				if _, err := d.Acquire(ctx, request("n", branch)); err == nil {
					tb.Error("acquired a locked ref")
				}
				return nil
			},
			want: []string{query, commit},
		}, {
			name: "being refused, with a place in the queue",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) {
				acquire(tb, d, "other", branch)
				waiter = wait(tb, d, driver.Waiter{ID: "w", Turn: time.Minute})
			},
			do: func(tb testing.TB, d *spanner.Driver) error {
				wait(tb, d, waiter)
				return nil
			},
			want: []string{query, commit},
		}, {
			name: "releasing a lock with a waiter",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) {
				a = acquire(tb, d, "n", branch)
				wait(tb, d, driver.Waiter{ID: "w", Channel: "c", Turn: time.Minute})
			},
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Release(ctx, releasing(a.Token, branch))
				return err
			},
			want: []string{query, commit},
		}, {
			name: "acquiring a reservation",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) {
				a = acquire(tb, d, "n", branch)
				waiter = wait(tb, d, driver.Waiter{ID: "w", Channel: "c", Turn: 20 * time.Second})
				release(tb, d, a.Token, branch)
			},
			do: func(tb testing.TB, d *spanner.Driver) error {
				r := request("n2", branch)
				r.Waiter = waiter
				_, err := d.Acquire(ctx, r)
				return err
			},
			want: []string{query, commit, commit}, // the last Commit deletes the marker
		}, {
			name: "acquiring a reservation for nobody",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) {
				a = acquire(tb, d, "n", branch)
				wait(tb, d, driver.Waiter{ID: "w", Turn: 20 * time.Second})
				release(tb, d, a.Token, branch)
			},
			do: func(tb testing.TB, d *spanner.Driver) error {
				acquire(tb, d, "n2", branch)
				return nil
			},
			want: []string{query, commit, commit}, // the last Commit deletes the marker
		}, {
			name: "reclaiming a stale lock",
			setup: func(tb testing.TB, db *dbtest.Database, _ *spanner.Driver) {
				db.InsertLock(tb, driver.LockInfo{Project: project, Ref: branch, Owner: "gerrit", Age: time.Minute})
			},
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Acquire(ctx, request("n", branch))
				return err
			},
			want: []string{query, commit, commit}, // the last Commit deletes the marker
		}, {
			name: "an update that creates",
			do:   func(tb testing.TB, d *spanner.Driver) error { return update(tb, d, "u", move(branch, "", v1)) },
			want: []string{query, commit},
		}, {
			name:  "an update under a lock",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) { a = acquire(tb, d, "n", branch) },
			do:    func(tb testing.TB, d *spanner.Driver) error { return fenced(tb, d, "u", a.Token, false) },
			want:  []string{query, commit},
		}, {
			name:  "an update that releases",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) { a = acquire(tb, d, "n", branch) },
			do:    func(tb testing.TB, d *spanner.Driver) error { return fenced(tb, d, "u", a.Token, true) },
			want:  []string{query, commit},
		}, {
			name:  "a beat of a thousand locks",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) { a = acquire(tb, d, "n", many...) },
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Beat(ctx, lockIDs(a.Token, many...))
				return err
			},
			want: []string{query, commit},
		}, {
			name:  "a release",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) { a = acquire(tb, d, "n", branch) },
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Release(ctx, releasing(a.Token, branch))
				return err
			},
			want: []string{query, commit},
		}, {
			name:  "a purge over projects",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) { a = acquire(tb, d, "n", branch) },
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Purge(ctx, []driver.StandingLock{{LockID: lockIDs(a.Token, branch)[0]}, {LockID: driver.LockID{Project: "other", Ref: branch}}})
				return err
			},
			want: []string{query, commit},
		}, {
			name:  "abandoning a thousand locks",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) { acquire(tb, d, "n", many...) },
			do: func(_ testing.TB, d *spanner.Driver) error {
				return d.Abandon(ctx, driver.AbandonRequest{Project: project, Refs: many, Owner: owner, Nonce: "n"})
			},
			want: []string{query, commit},
		}, {
			name: "preparing a thousand refs",
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Prepare(ctx, preparing("n", many...))
				return err
			},
			want: []string{query, commit},
		}, {
			name:  "finishing a thousand refs",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) { p = prepare(tb, d, "n", many...) },
			do:    func(_ testing.TB, d *spanner.Driver) error { return d.Finish(ctx, finishing(p, many...)) },
			want:  []string{query, commit},
		}, {
			name:  "dropping a thousand intents",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) { p = prepare(tb, d, "n", many...) },
			do:    func(_ testing.TB, d *spanner.Driver) error { return d.Finish(ctx, dropping(p, many...)) },
			want:  []string{query, commit},
		}, {
			name: "revoking a thousand intents",
			do:   func(_ testing.TB, d *spanner.Driver) error { return d.Revoke(ctx, preparing("n", many...)) },
			want: []string{query, commit},
		}, {
			name:  "resolving an intent",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) { p = prepare(tb, d, "n", branch) },
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Resolve(ctx, driver.ResolveRequest{Intents: lockIDs(p.Token, branch),
					Decision: driver.TakeNew, Origin: driver.Origin{By: "me"}, Reason: "why"})
				return err
			},
			want: []string{query, commit},
		}, {
			name: "forgetting an intent",
			do: func(_ testing.TB, d *spanner.Driver) error {
				return d.Forget(ctx, lockIDs(1, branch))
			},
			want: []string{query, commit},
		}, {
			name: "listing intents",
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Intents(ctx, driver.IntentQuery{Limit: 10})
				return err
			},
			want: []string{query},
		}, {
			name: "reading the states of a thousand refs",
			do:   func(_ testing.TB, d *spanner.Driver) error { _, err := d.States(ctx, project, many); return err },
			want: []string{query},
		}, {
			name: "removing a project",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) {
				must(tb, update(tb, d, "u", move(branch, "", v1)))
			},
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Remove(ctx, driver.RemoveRequest{Project: project, Limit: 10})
				return err
			},
			want: []string{query, commit},
		}, {
			name: "purging tombstones where there are none",
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.PurgeTombstones(ctx, driver.TombstoneRequest{Project: project, Limit: 10})
				return err
			},
			want: []string{query},
		}, {
			name: "getting a thousand refs",
			do:   func(_ testing.TB, d *spanner.Driver) error { _, err := d.Get(ctx, project, many); return err },
			want: []string{read},
		}, {
			name: "listing refs",
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.List(ctx, driver.RefQuery{Project: project, Prefix: "refs/", Limit: 10})
				return err
			},
			want: []string{query},
		}, {
			name: "listing locks",
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Locks(ctx, driver.LockQuery{Limit: 10})
				return err
			},
			want: []string{query},
		}, {
			name: "reading changes of all projects",
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Changes(ctx, driver.ChangesRequest{Limit: 10})
				return err
			},
			want: []string{query},
		}, {
			name: "reading a log",
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Log(ctx, driver.LogRequest{Project: project, Limit: 10})
				return err
			},
			want: []string{query},
		}, {
			name: "listing refs of the past",
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Past(ctx, driver.PastRequest{RefQuery: driver.RefQuery{Project: project, Limit: 10}})
				return err
			},
			want: []string{query},
		}, {
			name: "finding the newest change",
			do:   func(_ testing.TB, d *spanner.Driver) error { _, _, err := d.Newest(ctx); return err },
			want: []string{query},
		}, {
			name: "finding the tip of a project",
			do:   func(_ testing.TB, d *spanner.Driver) error { _, err := d.Tip(ctx, project); return err },
			want: []string{query},
		}, {
			name: "finding the position at a time",
			do:   func(_ testing.TB, d *spanner.Driver) error { _, _, err := d.PositionAt(ctx, time.Now()); return err },
			want: []string{query},
		}, {
			name: "pruning the history",
			setup: func(tb testing.TB, _ *dbtest.Database, d *spanner.Driver) {
				must(tb, update(tb, d, "u", move(branch, "", v1)))
			},
			do: func(_ testing.TB, d *spanner.Driver) error {
				_, err := d.Prune(ctx, driver.PruneRequest{Upto: math.MaxInt64, Limit: 10})
				return err
			},
			want: []string{query, query, commit},
		}, {
			name: "reading the time",
			do:   func(_ testing.TB, d *spanner.Driver) error { _, err := d.Now(ctx); return err },
			want: []string{query},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			db := dbtest.Spanner(t)
			w := &wire{}
			d := openWire(t, db, w)
			if row.setup != nil {
				row.setup(t, db, d)
			}
			w.take()
			must(t, row.do(t, d))
			must(t, d.Close()) // waits for the background work
			wantCalls(t, row.name, w.take(), row.want...)
		})
	}
}
