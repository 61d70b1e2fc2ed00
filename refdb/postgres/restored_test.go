package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// put moves mainRef, and returns the change's position.
func put(t *testing.T, d *postgres.Driver, old, new driver.Value) driver.Position {
	t.Helper()
	r := driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: rand.Text(), Owner: owner}, Updates: moves(old, new, mainRef)}
	if err := d.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	page, err := d.Log(t.Context(), driver.LogRequest{Project: project, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(page.Changes, func(c driver.Change) bool { return c.Op == r.Origin.ID })
	if i != 0 {
		t.Errorf("%.4s -> %.4s is number %d of the log, newest first: %+v", old, new, i, page.Changes)
	}
	return page.Changes[i].Position
}

// report reports as site b that nothing is missing.
func report(t *testing.T, d *postgres.Driver, r driver.Report) driver.Admission {
	t.Helper()
	a, err := d.Admission(t.Context())
	if err == nil {
		r.Server = a.Server
		a, err = d.Report(t.Context(), r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func admit(t *testing.T, d *postgres.Driver) {
	t.Helper()
	if a := report(t, d, driver.Report{Witness: "b"}); !a.Admitted {
		t.Fatalf("not admitted: %+v", a)
	}
}

// halt reports as site b that a change is missing.
func halt(t *testing.T, d *postgres.Driver, missing driver.Known) {
	t.Helper()
	if a := report(t, d, driver.Report{Witness: "b", Missing: []driver.Known{missing}}); !a.Halted {
		t.Fatalf("not halted: %+v", a)
	}
}

func recoverAll(t *testing.T, d *postgres.Driver) {
	t.Helper()
	for {
		answer, err := d.Recover(t.Context(), driver.RecoverRequest{By: "alice", Reason: "restored", Epoch: rand.Text(), Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if answer.Done {
			return
		}
	}
}

// shift returns how far positions are ahead of transaction IDs.
func shift(t *testing.T, db *dbtest.Database) int64 {
	t.Helper()
	return query[int64](t, session(t, db.URL()), `SELECT shift FROM history_state`)[0]
}

// reads returns the values of mainRef that a reader gets, up to the last one.
func reads(t *testing.T, d *postgres.Driver, after driver.Cursor, last driver.Value) (values []driver.Value, cursor driver.Cursor) {
	t.Helper()
	db, err := refdb.New(d, refdb.Options{Site: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for page, err := range db.Changes(ctx, refdb.ChangeQuery{After: after}) {
		if err != nil {
			t.Errorf("after %s: %v", values, err)
			break
		}
		for _, c := range page.Changes {
			if c.Ref == mainRef {
				values = append(values, c.New)
			}
		}
		if slices.Contains(values, last) {
			return values, page.Cursor
		}
	}
	return values, driver.Cursor{}
}

// usePack stores a pack, and makes an intent use it that ends without a change. It returns the
// pack's position.
func usePack(t *testing.T, d *postgres.Driver, id string, use func(driver.PrepareRequest)) driver.Position {
	t.Helper()
	storePack(t, d, id, 1)
	use(using("refs/heads/"+id, id))
	packs, _ := usedPacks(t, d)
	if i := slices.IndexFunc(packs, func(p driver.Pack) bool { return p.ID == id }); i < 0 || i != len(packs)-1 {
		t.Fatalf("pack %s is number %d of %+v", id, i, packs)
	}
	return packs[len(packs)-1].Position
}

// prepares uses packs the way this program does.
func prepares(t *testing.T, d *postgres.Driver) func(driver.PrepareRequest) {
	return func(r driver.PrepareRequest) {
		t.Helper()
		if _, err := d.Prepare(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

// storeBase stores a base pack with the given position.
func storeBase(t *testing.T, d *postgres.Driver, id string, at driver.Position) error {
	t.Helper()
	p := partOf(id, 0, 1)
	p.Pack.Full, p.Pack.Position = true, at
	return d.StorePart(t.Context(), p)
}

// A failover lost the state from which a site made the base.
func TestABaseOfAFuturePositionIsRefused(t *testing.T) {
	t.Parallel()
	d := open(t, dbtest.Postgres(t).URL())
	usePack(t, d, "p", prepares(t, d))
	_, upto := usedPacks(t, d)
	if err := storeBase(t, d, "base", upto+1_000_000); err == nil || !strings.Contains(err.Error(), "went back in time") {
		t.Errorf("it was stored: %v", err)
	}
	if packs, _ := usedPacks(t, d); len(packs) != 1 || packs[0].ID != "p" {
		t.Errorf("used are %+v", packs)
	}
	if err := storeBase(t, d, "base", upto); err != nil {
		t.Error(err)
	}
}

const (
	v3 driver.Value = "3333333333333333333333333333333333333333"
	v4 driver.Value = "4444444444444444444444444444444444444444"
)

// gone is a change of another ref, which is missing from the database.
func gone(op string) driver.Known {
	return driver.Known{Project: project, Ref: "refs/heads/gone", Op: op, New: v1, Owner: owner, At: time.Now()}
}

// admissions are the ways in which a server is admitted after a restore.
var admissions = map[string]func(*testing.T, *postgres.Driver){
	"after a comparison that finds nothing lost": admit,
	"after a recovery": func(t *testing.T, d *postgres.Driver) {
		halt(t, d, gone(rand.Text()))
		recoverAll(t, d)
	},
}

// The server on which a dump is restored has smaller IDs. Readers, bases and marks of the old
// server have positions that it reached after its last change. Later changes come last, even after
// a second restore.
func TestChangesAfterARestoreAreOrderedLast(t *testing.T) {
	t.Parallel()
	for name, admits := range admissions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.OlderPostgres(t)
			d := open(t, db.URL())
			admit(t, d)
			put(t, d, "", v1)
			put(t, d, v1, v2)
			usePack(t, d, "p", prepares(t, d))
			_, cursor := reads(t, d, driver.Cursor{}, v2)
			for n := range 2 {
				dbtest.BeginTransactions(t, db, 5000)
				old, err := d.HistoryState(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				db = dbtest.RestoreIntoYounger(t, db)
				if n == 1 {
					exec(t, session(t, db.URL()), `UPDATE history_state SET cluster = 1`) // the cluster is the same one
				}
				d = open(t, db.URL())
				admits(t, d)
				cursor = comesLast(t, d, []driver.Value{v1, v2, v3, v4}[:3+n], cursor, old.Upto)
			}
		})
	}
}

// comesLast moves the ref to the last one of values, and uses a pack. cursor is after the earlier
// values, and upto is the position that the database's previous server had reached.
func comesLast(t *testing.T, d *postgres.Driver, values []driver.Value, cursor driver.Cursor, upto driver.Position) driver.Cursor {
	t.Helper()
	value, before := values[len(values)-1], values[len(values)-2]
	if at := put(t, d, before, value); at <= upto {
		t.Errorf("the change is at %d, but the database had reached %d", at, upto)
	}
	id := "pack-" + string(value[:4])
	if at := usePack(t, d, id, prepares(t, d)); at <= upto {
		t.Errorf("the pack is at %d, but the database had reached %d", at, upto)
	}
	// A site may have needed a long time to make the base, from the data of the old server.
	if err := storeBase(t, d, "base-"+string(value[:4]), upto); err != nil {
		t.Error(err)
	}
	if packs, _ := usedPacks(t, d); packs[len(packs)-1].ID != id {
		t.Errorf("a base of the earlier state replaces a later pack: %+v", packs)
	}
	if got, _ := reads(t, d, driver.Cursor{}, value); !slices.Equal(got, values) {
		t.Errorf("a reader from the beginning gets %s, want %s", got, values)
	}
	got, cursor := reads(t, d, cursor, value)
	if !slices.Equal(got, []driver.Value{value}) {
		t.Errorf("a reader that had read all before gets %s, want %s", got, value)
	}
	state, err := d.HistoryState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	past, err := d.Past(t.Context(), driver.PastRequest{RefQuery: driver.RefQuery{Project: project, Prefix: mainRef, Limit: 10}, At: state.Upto})
	if err != nil || len(past.Refs) != 1 || past.Refs[0].Value != value {
		t.Errorf("at %d, which is the present, the ref is %+v, %v", state.Upto, past.Refs, err)
	}
	if past, err = d.Past(t.Context(), driver.PastRequest{RefQuery: driver.RefQuery{Project: project, Prefix: mainRef, Limit: 10}, At: upto}); err != nil || len(past.Refs) != 1 || past.Refs[0].Value != before {
		t.Errorf("at %d, which was before the restore, the ref was %+v, %v", upto, past.Refs, err)
	}
	return cursor
}

// restored returns a database that was made on an older server, with two changes, and restored on a
// younger one, which no site has compared.
func restored(t *testing.T) *dbtest.Database {
	t.Helper()
	db := dbtest.OlderPostgres(t)
	d := open(t, db.URL())
	admit(t, d)
	put(t, d, "", v1)
	put(t, d, v1, v2)
	return dbtest.RestoreIntoYounger(t, db)
}

// The transaction's ID is smaller than the ID of the one that admits the server.
func TestATransactionFromBeforeTheAdmissionIsOrderedAfterRestoredChanges(t *testing.T) {
	t.Parallel()
	db := restored(t)
	early := session(t, db.URL())
	exec(t, early, `BEGIN`)
	exec(t, early, `SELECT pg_current_xact_id()`)
	dbtest.BeginTransactions(t, db, 1000)
	admit(t, open(t, db.URL()))
	exec(t, early, `INSERT INTO refs (project, ref, value) VALUES ('q', 'early', '')`)
	exec(t, early, `COMMIT`)
	if got := query[string](t, early, `SELECT ref FROM history ORDER BY position DESC LIMIT 1`); got[0] != "early" {
		t.Errorf("the newest change is of %s", got)
	}
}

// Otherwise sites would take the refs for missing.
func TestStatesAreNotReadWhileADumpIsBeingRestored(t *testing.T) {
	t.Parallel()
	for name, missing := range map[string][]string{
		"without rows":     {`DROP TRIGGER refdb_admit ON admission`, `DELETE FROM admission`, `DELETE FROM refs`},
		"without triggers": {`DROP TRIGGER refdb_admit ON admission`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			d := open(t, db.URL())
			admit(t, d)
			put(t, d, "", v1)
			for _, sql := range missing {
				exec(t, session(t, db.URL()), sql)
			}
			if states, err := d.States(t.Context(), project, []string{mainRef}); !errors.Is(err, driver.ErrNotAdmitted) || len(states) > 0 {
				t.Errorf("got %+v, %v", states, err)
			}
		})
	}
}

// A writer that has read the shift of positions, or the origin of tokens, has a lock on the table
// that it writes.
func TestPositionsAreRaisedOnceAllWritersHaveEnded(t *testing.T) {
	t.Parallel()
	for name, admits := range admissions {
		for _, table := range []string{"history", "packs", "locks"} {
			t.Run(name+", of "+table, func(t *testing.T) {
				t.Parallel()
				if testing.Short() && table != "history" {
					t.Skip("left out by -short: writers of tables without a position in each row; make test-all runs it")
				}
				db := restored(t)
				d := open(t, db.URL())
				writer, look := session(t, db.URL()), session(t, db.URL())
				exec(t, writer, `BEGIN`)
				exec(t, writer, `LOCK TABLE `+table+` IN ROW EXCLUSIVE MODE`)
				done := make(chan struct{})
				go func() { defer close(done); admits(t, d) }()
				eventually(t, "the admission waits for the writer", func() bool {
					return query[int64](t, look, waitersForTable, table)[0] > 0
				})
				if shift(t, db) != 0 {
					t.Error("positions were raised beside a writer")
				}
				exec(t, writer, `COMMIT`)
				<-done
				if shift(t, db) == 0 {
					t.Error("positions were not raised")
				}
			})
		}
	}
}

func TestTwoRecoveriesAtOnceRaisePositionsOnce(t *testing.T) {
	t.Parallel()
	db := restored(t)
	halt(t, open(t, db.URL()), gone("gone"))
	var both sync.WaitGroup
	for range 2 {
		d := open(t, db.URL())
		both.Go(func() { recoverAll(t, d) })
	}
	both.Wait()
	if got := shift(t, db); got == 0 || got >= 2_000_000_000_000 {
		t.Errorf("positions are %d ahead", got)
	}
}

// The server differs from the previous one, but the cluster is the same.
func TestARestartDoesNotRaisePositions(t *testing.T) {
	t.Parallel()
	for name, admits := range admissions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			d := open(t, db.URL())
			admit(t, d)
			put(t, d, "", v1)
			usePack(t, d, "p", prepares(t, d))
			db.Restart(t)
			admits(t, d)
			put(t, d, v1, v2)
			if got := shift(t, db); got != 0 {
				t.Errorf("positions are %d ahead", got)
			}
		})
	}
}

// migrateTo migrates the schema to a version.
func migrateTo(t *testing.T, db *dbtest.Database, version uint) {
	t.Helper()
	m, err := postgres.Migrator(t.Context(), db.URL())
	if err == nil {
		err = m.To(t.Context(), version)
		// On a busy machine, writers may keep a table locked for longer than a migration step waits
		// for it.
		for end := time.Now().Add(patience); err != nil && strings.Contains(err.Error(), "another transaction has locked a table") && time.Now().Before(end); {
			err = m.To(t.Context(), version)
		}
		err = errors.Join(err, m.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestAMigrationUnderLoadDoesNotRaisePositions(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	migrateTo(t, db, 11)
	const writers = 4
	var working sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	wrote := make([]atomic.Int64, writers)
	for i := range writers {
		d := open(t, db.URL())
		working.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				r := update(fmt.Sprintf("refs/heads/%d-%d", i, n))
				if err := d.Update(ctx, r); err == nil {
					wrote[i].Add(1)
				} else if ctx.Err() == nil && driver.ClassOf(err) != driver.Retryable {
					t.Error(err)
				}
			}
		})
	}
	more := func() {
		for i := range wrote {
			so := wrote[i].Load()
			eventually(t, "all write", func() bool { return wrote[i].Load() > so+3 })
		}
	}
	for range 3 {
		more()
		migrateTo(t, db, 12)
		more()
		if got := shift(t, db); got != 0 {
			t.Fatalf("positions are %d ahead", got)
		}
		migrateTo(t, db, 11)
	}
	cancel()
	working.Wait()
}

// Under version 10, positions went back with the restore.
func TestAMigrationRaisesPositionsThatWentBack(t *testing.T) {
	t.Parallel()
	for name, admits := range map[string]func(*testing.T, *postgres.Driver){
		"a server that was admitted before":  admit,
		"a server that no site has compared": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.OlderPostgres(t)
			migrateTo(t, db, 10)
			// This program no longer supports that version, but a newer one that claims to support
			// it.
			db.Exec(t, `UPDATE refdb_schema SET version = 99, oldest = 10`)
			d := open(t, db.URL())
			admit(t, d)
			put(t, d, "", v1)
			usePack(t, d, "p", prepares(t, d))
			db = dbtest.RestoreIntoYounger(t, db)
			if d = open(t, db.URL()); admits != nil {
				admits(t, d)
			}
			db.Exec(t, `UPDATE refdb_schema SET version = 10`)
			migrateTo(t, db, 11)
			if d = open(t, db.URL()); admits == nil {
				admit(t, d)
			}
			put(t, d, v1, v2)
			usePack(t, d, "q", prepares(t, d))
		})
	}
}

// PostgreSQL ends an autovacuum only for a lock request that has waited for deadlock_timeout, one
// second. A request waits for half of that.
func TestARecoveryWaitsForAutovacuum(t *testing.T) {
	t.Parallel()
	db := restored(t)
	d := open(t, db.URL())
	halt(t, d, gone("gone"))
	c := session(t, db.URL())
	// A vacuum of the table of locks that takes long: a page every 100 ms.
	exec(t, c, `ALTER TABLE locks SET (autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_insert_threshold = 0,
		autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1)`)
	exec(t, c, `SET session_replication_role = replica`) // nothing is written before the recovery
	exec(t, c, `INSERT INTO locks (project, ref, heartbeat, token, owner) SELECT 'p', i::text, now(), now(), repeat('o', 1000) FROM generate_series(1, 20000) AS i`)
	exec(t, c, `UPDATE locks SET heartbeat = now()`)
	eventually(t, "autovacuum works on the table of locks", func() bool {
		return query[int64](t, c, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'autovacuum: VACUUM%locks%'`)[0] > 0
	})
	recoverAll(t, d)
}

// Tokens are ahead of the clock, as they are for a while after a restore: the token reached is then
// seldom recorded, and tokens have grown by each transaction since.
func TestTokensAfterARestoreAreLargerThanAllEarlierOnes(t *testing.T) {
	t.Parallel()
	for name, admits := range admissions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.OlderPostgres(t)
			d := open(t, db.URL())
			admit(t, d)
			exec(t, session(t, db.URL()), `UPDATE token_origin SET (origin, reached) = (now() + interval '1 hour', now() + interval '1 hour')`)
			before := acquire(t, d, mainRef).Token
			d = open(t, dbtest.RestoreIntoYounger(t, db).URL())
			admits(t, d)
			if after := acquire(t, d, otherRef).Token; after <= before {
				t.Errorf("token %d after %d", after, before)
			}
		})
	}
}

// Whatever the writer writes: it reads the shift of positions after it has locked the table.
func TestAWriterThatWaitedForARaiseWritesAboveIt(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, table, write, position string }{
		{"inserts a ref", "history", `INSERT INTO refs (project, ref, value) VALUES ('q', 'new', 'x')`, `SELECT max(position) FROM history`},
		{"updates a ref", "history", `UPDATE refs SET value = 'x' WHERE project = 'q'`, `SELECT max(position) FROM history`},
		{"deletes a ref", "history", `DELETE FROM refs WHERE project = 'q'`, `SELECT max(position) FROM history`},
		{"uses a pack", "packs", `UPDATE packs SET position = pg_current_xact_id()::text::bigint WHERE id = 'p' AND position IS NULL`, `SELECT max(position) FROM packs`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			storePack(t, open(t, db.URL()), "p", 1)
			raise, writer, look := session(t, db.URL()), session(t, db.URL()), session(t, db.URL())
			exec(t, writer, `INSERT INTO refs (project, ref, value) VALUES ('q', 'old', '')`)
			exec(t, raise, `BEGIN`)
			exec(t, raise, `LOCK TABLE history, packs IN SHARE ROW EXCLUSIVE MODE`)
			done := make(chan error, 1)
			go func() { done <- errorOf(writer.Exec(t.Context(), row.write)) }()
			eventually(t, "the writer waits", func() bool {
				return query[int64](t, look, waitersForTable, row.table)[0] > 0
			})
			const ahead = 1 << 40
			exec(t, raise, `UPDATE history_state SET shift = $1`, int64(ahead))
			exec(t, raise, `COMMIT`)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if at := query[int64](t, look, row.position)[0]; at < ahead {
				t.Errorf("its position is %d, below %d", at, ahead)
			}
		})
	}
}

// A site's role may write the admission, but neither the shift of positions nor the tables that are
// locked while the shift is raised.
func TestASiteAdmitsAServerAndRaisesPositionsWithoutPrivilegesOfItsOwn(t *testing.T) {
	t.Parallel()
	db := restored(t)
	owner := session(t, db.URL())
	role := strings.ToLower("site_" + rand.Text()[:12])
	exec(t, owner, `CREATE ROLE `+role+` LOGIN`)
	t.Cleanup(func() {
		c, err := pgx.Connect(context.Background(), db.URL())
		if err == nil {
			_, err = c.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
			err = errors.Join(err, c.Close(context.Background()))
		}
		if err != nil {
			t.Error(err)
		}
	})
	exec(t, owner, `GRANT SELECT ON ALL TABLES IN SCHEMA public TO `+role)
	exec(t, owner, `GRANT UPDATE ON admission TO `+role)
	exec(t, owner, `GRANT INSERT, UPDATE ON witnesses, lost TO `+role)
	u, err := url.Parse(db.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	d, err := postgres.Open(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	admit(t, d)
	if shift(t, db) == 0 {
		t.Error("positions were not raised")
	}
	site := session(t, u.String())
	if _, err := site.Exec(t.Context(), `SELECT refdb_raise_positions()`); err == nil {
		t.Error("the role may raise positions by itself")
	}
}

// Then only positions that are ahead of the server's IDs show that the tables were copied from
// elsewhere.
func TestAServerWithoutAClusterIdentity(t *testing.T) {
	t.Parallel()
	db := restored(t)
	owner := session(t, db.URL())
	exec(t, owner, `CREATE OR REPLACE FUNCTION refdb_cluster() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT 0::bigint'`)
	exec(t, owner, `UPDATE history_state SET cluster = 0`)
	d := open(t, db.URL())
	admit(t, d)
	put(t, d, v2, v3)

	db = dbtest.Postgres(t)
	owner = session(t, db.URL())
	exec(t, owner, `REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC`) // in this database only
	exec(t, owner, `SET ROLE pg_read_all_data`)                                  // any role but a superuser
	if got := query[int64](t, owner, `SELECT refdb_cluster()`)[0]; got != 0 {
		t.Errorf("the cluster's number is %d", got)
	}
}

// pg_restore creates triggers last: sites that find the tables before that admit no server.
func TestAReportBeforeTheTriggersAreRestoredAdmitsNoServer(t *testing.T) {
	t.Parallel()
	db := restored(t)
	d := open(t, db.URL())
	c := session(t, db.URL())
	exec(t, c, `DROP TRIGGER refdb_admit ON admission`)
	report(t, d, driver.Report{Witness: "b"})
	if err := try(t.Context(), d, update("refs/heads/early")); !errors.Is(err, driver.ErrNotAdmitted) {
		t.Errorf("the report was written: %v", err)
	}
	exec(t, c, `CREATE TRIGGER refdb_admit BEFORE UPDATE OF server ON admission FOR EACH ROW WHEN (NEW.server <> OLD.server) EXECUTE FUNCTION refdb_admit()`)
	if a, err := d.Admission(t.Context()); err != nil || a.Admitted {
		t.Errorf("admitted: %+v, %v", a, err)
	}
	admit(t, d)
	put(t, d, v2, v3)
}
