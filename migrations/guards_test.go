package migrations_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

const backup = "undo what changed it, or restore a backup"

// pgRestore does to a table what `pg_restore -t` does: definition and rows, without keys and triggers.
func pgRestore(table string) string {
	return fmt.Sprintf(`CREATE TABLE restored (LIKE %[1]s INCLUDING DEFAULTS); INSERT INTO restored SELECT * FROM %[1]s;
		DROP TABLE %[1]s CASCADE; ALTER TABLE restored RENAME TO %[1]s`, table)
}

// createAs does to a table what an administrator does who copies it.
func createAs(table string) string {
	return fmt.Sprintf(`CREATE TABLE copied AS SELECT * FROM %[1]s; DROP TABLE %[1]s; ALTER TABLE copied RENAME TO %[1]s`, table)
}

// A table that was restored alone takes writes that are wrong: no history has them, or a server that is not admitted does. Programs
// refuse, and what the refusal says to do repairs the table.
func TestATableRestoredAloneIsRefusedUntilItIsRepaired(t *testing.T) {
	const refs = `CREATE TABLE restored (project TEXT NOT NULL, ref TEXT NOT NULL, value TEXT NOT NULL, time INTEGER, op TEXT, PRIMARY KEY (project, ref)) STRICT, WITHOUT ROWID;
		INSERT INTO restored SELECT project, ref, value, time, op FROM refs; DROP TABLE refs; ALTER TABLE restored RENAME TO refs`
	for dialect, damages := range map[migrations.Dialect][]struct {
		name, sql string
		says      []string
		backup    bool // no advice but that
	}{
		migrations.Postgres: {
			{name: "refs", sql: pgRestore("refs"), says: []string{
				"refs has no primary key (project, ref)", "no trigger refdb_record_inserts on refs", "no trigger refdb_record_updates on refs",
				"no trigger refdb_record_deletes on refs", "no trigger refdb_require_admission on refs",
			}},
			{name: "locks", sql: pgRestore("locks"), says: []string{"locks has no primary key", "no trigger refdb_require_admission on locks"}},
			{name: "intents", sql: pgRestore("intents"), says: []string{"intents has no primary key", "no trigger refdb_require_witness_begins on intents"}},
			{name: "projects", sql: pgRestore("projects"), says: []string{"projects has no primary key", "no trigger refdb_require_admission on projects"}},
			{name: "packs", sql: pgRestore("packs"), says: []string{"packs has no primary key", "no trigger refdb_place_pack on packs"}},
			{name: "pack_parts", sql: pgRestore("pack_parts"), says: []string{"pack_parts has no primary key"}},
			{name: "admission", sql: pgRestore("admission"), says: []string{"admission has no primary key", "no trigger refdb_admit on admission"}},
			{name: "history", sql: pgRestore("history"), says: []string{"history has no primary key (project, ref, position)"}},
			{name: "a copy", sql: createAs("locks"), says: []string{"locks has no primary key", "no trigger refdb_require_admission on locks"}},
			{name: "no table", sql: `DROP TABLE audit`, says: []string{"there is no table audit"}},
			{name: "no refs", sql: `DROP TABLE refs`, says: []string{"there is no table refs"}, backup: true},
			{name: "triggers disabled", sql: `ALTER TABLE refs DISABLE TRIGGER ALL`, says: []string{"the trigger refdb_record_inserts on refs is disabled"}},
			{name: "triggers of a replica", sql: `ALTER TABLE locks ENABLE REPLICA TRIGGER refdb_require_admission`, says: []string{"the trigger refdb_require_admission on locks is disabled"}},
			{name: "functions", sql: `DROP FUNCTION refdb_require_admission CASCADE`, says: []string{"no trigger refdb_require_admission on pack_parts"}},
		},
		migrations.SQLite: {
			{name: "refs", sql: refs, says: []string{"no trigger history_replaced on refs", "no trigger history_renamed on refs"}},
			{name: "no triggers", sql: `DROP TRIGGER history_updated`, says: []string{"no trigger history_updated on refs"}},
			{name: "locks", sql: createAs("locks"), says: []string{"locks has no primary key"}, backup: true},
			{name: "projects", sql: createAs("projects"), says: []string{"projects has no primary key"}, backup: true},
			{name: "no table", sql: `DROP TABLE packs`, says: []string{"there is no table packs"}, backup: true},
		},
	} {
		for _, damage := range damages {
			t.Run(string(dialect)+": "+damage.name, func(t *testing.T) {
				t.Parallel()
				d := kind(t, dialect).New(t)
				open := d.Open(t)
				d.InsertRef(t, project, main, sha)
				d.Exec(t, damage.sql)

				err := open.(driver.SchemaChecker).CheckSchema(t.Context())
				again, openErr := drivers.Open(t.Context(), d.URL())
				if openErr == nil {
					again.Close()
				}
				for when, err := range map[string]error{"check": err, "open": openErr} {
					if !errors.Is(err, refdb.ErrSchema) || strings.Contains(err.Error(), "\n") {
						t.Fatalf("%s: %v", when, err)
					}
					for _, says := range damage.says {
						wantError(t, err, says)
					}
				}
				if damage.backup {
					wantError(t, err, backup)
					return
				}
				follow(t, d, err.Error())
				must(t, open.(driver.SchemaChecker).CheckSchema(t.Context()))
				if damage.name == "admission" { // a new table is another server
					_, err := open.Recover(t.Context(), driver.RecoverRequest{Epoch: "epoch", By: "me", Reason: "restored", Limit: 10})
					must(t, err)
				}
				before := count(t, d, "history")
				d.InsertRef(t, project, "refs/heads/next", sha)
				if n := count(t, d, "history"); n != before+1 {
					t.Errorf("the history had %d changes, and has %d after one more", before, n)
				}
				if n := count(t, d, "refs"); n != 2 {
					t.Errorf("%d refs are left", n)
				}
			})
		}
	}
	t.Parallel()
}

var advised = regexp.MustCompile("`([^`]+)`")

// follow does what a message says.
func follow(t *testing.T, d *dbtest.Database, message string) {
	t.Helper()
	m := migrator(t, d)
	steps := advised.FindAllStringSubmatch(message, -1)
	if len(steps) == 0 {
		t.Fatalf("no advice: %s", message)
	}
	for _, step := range steps {
		command, isMigrate := strings.CutPrefix(step[1], "refdbctl migrate ")
		version, isForce := strings.CutPrefix(command, "force ")
		switch {
		case !isMigrate:
			d.Exec(t, step[1])
		case isForce:
			n, err := strconv.ParseUint(version, 10, 32)
			must(t, err)
			must(t, m.Force(t.Context(), uint(n)))
		default:
			must(t, m.Up(t.Context()))
		}
	}
}

// The list of triggers has all that the migrations make: none can be lost unseen.
func TestEveryTriggerIsMissed(t *testing.T) {
	t.Parallel()
	for dialect, q := range map[migrations.Dialect]struct{ all, drop string }{
		migrations.Postgres: {`SELECT tgname || ' ON ' || tgrelid::regclass FROM pg_trigger WHERE NOT tgisinternal`, "DROP TRIGGER %s"},
		migrations.SQLite:   {`SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name <> 'new_change'`, "DROP TRIGGER %s"},
	} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			d := kind(t, dialect).New(t)
			open := d.Open(t)
			all := texts(t, d, q.all)
			if len(all) < 5 {
				t.Fatalf("triggers %q", all)
			}
			for i, trigger := range all {
				d.Exec(t, fmt.Sprintf(q.drop, trigger))
				err := open.(driver.SchemaChecker).CheckSchema(t.Context())
				if err == nil || strings.Count(err.Error(), "there is no trigger") != i+1 {
					t.Errorf("without %s: %v", trigger, err)
				}
			}
		})
	}
}

// A running program stops within seconds, and goes on by itself.
func TestARunningProgramStopsWhileTriggersAreDisabled(t *testing.T) {
	t.Parallel()
	d := kind(t, migrations.Postgres).New(t)
	db, err := refdb.New(d.Open(t), refdb.Options{})
	must(t, err)
	defer db.Close()
	put := func() error { _, err := db.Put(t.Context(), project, main, sha); return err }
	soon := func(fits bool) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
			err := put()
			if fits == !errors.Is(err, refdb.ErrSchema) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("fits is %t, and still: %v", fits, err)
			}
		}
	}
	must(t, put())
	d.Exec(t, `ALTER TABLE refs DISABLE TRIGGER ALL`)
	soon(false)
	n := count(t, d, "history")
	if err := put(); !errors.Is(err, refdb.ErrSchema) {
		t.Errorf("put: %v", err)
	}
	d.Exec(t, `ALTER TABLE refs ENABLE TRIGGER ALL`)
	soon(true)
	if got := count(t, d, "history"); got != n+1 {
		t.Errorf("the history had %d changes, and has %d after one more", n, got)
	}
}
