package postgres_test

import (
	"fmt"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// Whatever the tables' size, an operation reads the rows that it was asked
// for, also by a plan made when they were empty, and known to be.
func TestOperationsReadNoMoreRowsThanTheyNeed(t *testing.T) {
	for _, row := range []struct {
		name string
		url  func(testing.TB, *dbtest.Database) string
	}{
		{"directly", func(_ testing.TB, db *dbtest.Database) string { return db.URL() }},
		{"through PgBouncer", func(tb testing.TB, db *dbtest.Database) string { return dbtest.PgBouncer(tb, db.URL()) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			c := session(t, db.URL())
			exec(t, c, `VACUUM ANALYZE`)
			d := open(t, with(t, row.url(t, db), "pool_max_conns", "1"))

			var operations, rows int
			once := func(refs ...string) {
				t.Helper()
				operations, rows = operations+12, rows+12*len(refs)
				for range 2 { // the second acquisition is refused
					_, _ = d.Acquire(t.Context(), request(refs...))
				}
				_ = d.Update(t.Context(), update(refs...)) // refused, too
				locks, err := d.Locks(t.Context(), refdb.LockQuery{LockFilter: refdb.LockFilter{Project: project, Ref: refs[0]}, Limit: 10})
				if err != nil || len(locks) != 1 {
					t.Fatal(locks, err)
				}
				a := refdb.Acquired{Token: locks[0].Token}
				if _, err := d.Beat(t.Context(), "site/1", held(a, refs...)); err != nil {
					t.Fatal(err)
				}
				tx := update(refs...)
				tx.Fence = &refdb.Fence{Refs: refs, Token: a.Token}
				if err := d.Update(t.Context(), tx); err != nil {
					t.Fatal(err)
				}
				if _, err := d.Release(t.Context(), held(a, refs...)); err != nil {
					t.Fatal(err)
				}
				a = acquire(t, d, refs...)
				for i := range tx.Updates {
					tx.Updates[i].Old, tx.Updates[i].New = v1, v2
				}
				tx.Fence.Token, tx.Release = a.Token, true
				if err := d.Update(t.Context(), tx); err != nil {
					t.Fatal(err)
				}
				if _, err := d.Get(t.Context(), project, refs); err != nil {
					t.Fatal(err)
				}
				if _, err := d.List(t.Context(), refdb.RefQuery{Project: project, Prefix: refs[0], Limit: 10}); err != nil {
					t.Fatal(err)
				}
				if _, err := d.Locks(t.Context(), refdb.LockQuery{AfterProject: project, AfterRef: "refs/heads/x", Limit: 10}); err != nil {
					t.Fatal(err)
				}
			}
			once("refs/heads/warm")
			once("refs/heads/warm1", "refs/heads/warm2")

			exec(t, c, `INSERT INTO locks (project, ref, heartbeat, token, owner)
				SELECT p, 'refs/tags/' || n, clock_timestamp(), clock_timestamp(), 'other' FROM generate_series(1, 5000) n, unnest($1::text[]) p`,
				[]string{"a", project, "z"})
			exec(t, c, `INSERT INTO refs (project, ref, value, time)
				SELECT p, 'refs/tags/' || n, 'x', clock_timestamp() FROM generate_series(1, 5000) n, unnest($1::text[]) p`,
				[]string{"a", project, "z"})
			const reads = `SELECT (SELECT sum(seq_tup_read)::bigint FROM pg_stat_user_tables WHERE relname IN ('refs', 'locks'))
				+ (SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname IN ('refs', 'locks'))`
			before := query[int64](t, c, reads)[0]

			operations, rows = 0, 0
			for i := range 3 {
				once(fmt.Sprintf("refs/heads/%d", i))
				once(some(fmt.Sprintf("refs/heads/%d/", i), 20)...)
			}
			d.Close()
			eventually(t, "the server's connections have ended", func() bool {
				exec(t, c, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
				return query[int64](t, c, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()`)[0] == 1
			})
			// A few look-ups for each row, dead versions of it, and pages of 10.
			if n := query[int64](t, c, reads)[0] - before; n > int64(3*rows+20*operations) {
				t.Errorf("%d operations on %d rows read %d", operations, rows, n)
			} else {
				t.Logf("%d operations on %d rows read %d", operations, rows, n)
			}
		})
	}
}
