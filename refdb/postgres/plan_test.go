package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// Whatever the size of the tables, an operation reads only the rows that it needs, even with a plan
// made when the tables were known to be empty.
func TestOperationsReadNoMoreRowsThanTheyNeed(t *testing.T) {
	for _, row := range []struct {
		name   string
		url    func(testing.TB, *dbtest.Database) string
		shared bool // requests share batches
		long   bool
	}{
		{"directly", func(_ testing.TB, db *dbtest.Database) string { return db.URL() }, false, false},
		{"in shared batches", func(_ testing.TB, db *dbtest.Database) string { return db.URL() }, true, true},
		{"through PgBouncer", func(tb testing.TB, db *dbtest.Database) string { return dbtest.PgBouncer(tb, db.URL()) }, false, true},
		{"in shared batches through PgBouncer", func(tb testing.TB, db *dbtest.Database) string { return dbtest.PgBouncer(tb, db.URL()) }, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && row.long {
				t.Skip("left out by -short: batches and PgBouncer, one without the other; make test-all runs it")
			}
			db := dbtest.Postgres(t)
			c := session(t, db.URL())
			exec(t, c, `VACUUM ANALYZE`)
			d := open(t, with(t, row.url(t, db), "pool_max_conns", "1"))
			if row.shared {
				d.ShareAll()
			}

			var operations, rows int
			once := func(refs ...string) {
				t.Helper()
				operations, rows = operations+15, rows+15*len(refs)
				for range 2 { // the second acquisition is refused
					_, _ = d.Acquire(t.Context(), request(refs...))
				}
				_ = try(t.Context(), d, update(refs...)) // refused as well
				locks, err := d.Locks(t.Context(), driver.LockQuery{LockFilter: driver.LockFilter{Project: project, Ref: refs[0]}, Limit: 10})
				if err != nil || len(locks.Locks) != 1 {
					t.Fatal(locks, err)
				}
				token := locks.Locks[0].Token
				if _, err := d.Beat(t.Context(), ids(token, refs...)); err != nil {
					t.Fatal(err)
				}
				r := update(refs...)
				r.Fence = fence(token, refs...)
				if err := try(t.Context(), d, r); err != nil {
					t.Fatal(err)
				}
				release(t, d, driver.Acquired{Token: token}, refs...)
				again := request(refs...)
				a, err := d.Acquire(t.Context(), again)
				if err != nil {
					t.Fatal(err)
				}
				again.Nonce, again.Waiter = "other", driver.Waiter{ID: "1"}
				if _, err := d.Acquire(t.Context(), again); !errors.Is(err, driver.ErrLocked) { // and is enqueued
					t.Fatal(err)
				}
				r.Updates, r.Fence = moves(v1, v2, refs...), releasing(a.Token, refs...)
				if err := try(t.Context(), d, r); err != nil {
					t.Fatal(err)
				}
				r.Updates, r.Fence = moves(v2, v1, refs...), nil
				if err := try(t.Context(), d, r); err != nil {
					t.Fatal(err)
				}
				if err := d.Abandon(t.Context(), driver.AbandonRequest{Project: project, Refs: refs, Owner: owner, Nonce: "none"}); err != nil {
					t.Fatal(err)
				}
				if _, err := d.Get(t.Context(), project, refs); err != nil {
					t.Fatal(err)
				}
				if _, err := d.List(t.Context(), driver.RefQuery{Project: project, Prefix: refs[0], Limit: 10}); err != nil {
					t.Fatal(err)
				}
				after := driver.LockCursor{Project: project, Ref: "refs/heads/x"}
				if _, err := d.Locks(t.Context(), driver.LockQuery{After: after, Limit: 10}); err != nil {
					t.Fatal(err)
				}
			}
			// intend makes two preparations: one is finished, the other resolved.
			intend := func(refs ...string) {
				t.Helper()
				operations, rows = operations+9, rows+9*len(refs)
				prepare := func(old, new driver.Value) driver.Token {
					t.Helper()
					r := intention(old, new, refs...)
					if _, err := d.Prepare(t.Context(), r); err != nil {
						t.Fatal(err)
					}
					p, err := d.Prepare(t.Context(), r) // adopted
					if err != nil {
						t.Fatal(err)
					}
					if states, err := d.States(t.Context(), project, refs); err != nil || len(states) != len(refs) {
						t.Fatal(states, err)
					}
					return p.Token
				}
				if err := d.Finish(t.Context(), done(prepare("", v1), "", v1, refs...)); err != nil {
					t.Fatal(err)
				}
				intents := ids(prepare(v1, v2), refs...)
				ended, err := d.Resolve(t.Context(), driver.ResolveRequest{Intents: intents, Decision: driver.TakeNew})
				if err != nil || slices.Contains(ended, false) {
					t.Fatal(ended, err)
				}
				if err := d.Forget(t.Context(), intents); err != nil {
					t.Fatal(err)
				}
			}
			once("refs/heads/warm")
			once("refs/heads/warm1", "refs/heads/warm2")
			intend("refs/heads/warm3")
			intend("refs/heads/warm4", "refs/heads/warm5")

			exec(t, c, `INSERT INTO locks (project, ref, heartbeat, token, owner)
				SELECT p, 'refs/tags/' || n, clock_timestamp(), clock_timestamp(), 'other' FROM generate_series(1, 5000) n, unnest($1::text[]) p`,
				[]string{"a", project, "z"})
			exec(t, c, `INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time)
				SELECT p, 'refs/tags/' || n, clock_timestamp(), 'other', 'agent', '', 'x', clock_timestamp() FROM generate_series(1, 5000) n, unnest($1::text[]) p`,
				[]string{"a", project, "z"})
			exec(t, c, `INSERT INTO refs (project, ref, value, time)
				SELECT p, 'refs/tags/' || n, 'x', clock_timestamp() FROM generate_series(1, 5000) n, unnest($1::text[]) p`,
				[]string{"a", project, "z"})
			const reads = `SELECT (SELECT sum(seq_tup_read)::bigint FROM pg_stat_user_tables WHERE relname IN ('refs', 'locks', 'intents'))
				+ (SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname IN ('refs', 'locks', 'intents'))`
			before := query[int64](t, c, reads)[0]

			operations, rows = 0, 0
			for i := range 3 {
				once(fmt.Sprintf("refs/heads/%d", i))
				once(some(fmt.Sprintf("refs/heads/%d/", i), 20)...)
				intend(fmt.Sprintf("refs/intended/%d", i)) // created, so names above and below are looked up
				intend(some(fmt.Sprintf("refs/intended/many%d/", i), 20)...)
			}
			d.Close()
			eventually(t, "the server's connections have ended", func() bool {
				exec(t, c, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
				return query[int64](t, c, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()`)[0] == 1
			})
			// A few look-ups for each row, dead row versions, and pages of 10 rows.
			if n := query[int64](t, c, reads)[0] - before; n > int64(3*rows+20*operations) {
				t.Errorf("%d operations on %d rows read %d", operations, rows, n)
			} else {
				t.Logf("%d operations on %d rows read %d", operations, rows, n)
			}
		})
	}
}
