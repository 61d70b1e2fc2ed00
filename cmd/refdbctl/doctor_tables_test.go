package main

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestDoctorFindsTablesThatWereChanged(t *testing.T) {
	t.Parallel()
	const (
		repeat   = "refdbctl migrate force 0"
		triggers = "refdbctl migrate force 10"
	)
	// Where writes would be wrong no program opens the database, and the check is that of the schema.
	const guarded = true
	changes := map[migrations.Dialect][]struct {
		sql, says, advice string
		guarded           bool
	}{
		migrations.Postgres: {
			{`DROP INDEX locks_owner`, "there is no index locks_owner on locks (owner)", repeat, false},
			{`ALTER TABLE locks DROP COLUMN nonce`, "there is no column locks.nonce", repeat, false},
			{`ALTER TABLE intents DROP COLUMN reason`, "there is no column intents.reason", "backup", false},
			{`DROP TABLE intents`, "there is no table intents", repeat, guarded},
			{`DROP TABLE audit`, "there is no table audit", repeat, guarded},
			{`DROP INDEX projects_revision`, "there is no index projects_revision on projects (revision)", repeat, false},
			{`ALTER TABLE refs DROP CONSTRAINT refs_pkey`, "refs has no primary key (project, ref)", "`ALTER TABLE refs ADD PRIMARY KEY (project, ref)`", guarded},
			{`ALTER TABLE refs ALTER COLUMN ref TYPE text COLLATE "default"`, "the column refs.ref is text instead of", "backup", false},
			{`ALTER TABLE locks ADD COLUMN a int NOT NULL`, "the column locks.a is not refdb's, and needs a value", "backup", false},
			{`ALTER TABLE refs DISABLE TRIGGER ALL`, "the trigger refdb_record_inserts on refs is disabled", repeat, guarded},
			{`DROP FUNCTION refdb_position`, "there is no function refdb_position", repeat, false},
			{`DROP FUNCTION refdb_started`, "there is no function refdb_started", repeat, false},
			{`DELETE FROM admission`, "the row of admission is missing", repeat, false},
			{`DELETE FROM history_state`, "the row of history_state is missing", repeat, false},
			{`DELETE FROM epochs`, "the row of epochs is missing", repeat, false},
			{`DELETE FROM token_origin`, "the row of token_origin is missing", repeat, false},
		},
		migrations.SQLite: {
			{`ALTER TABLE intents DROP COLUMN reason`, "there is no column intents.reason", "backup", false},
			{`DROP INDEX projects_revision`, "there is no index projects_revision on projects (revision)", "backup", false},
			{`DROP INDEX history_latest`, "there is no index history_latest on history (latest, position)", "backup", false},
			{`DROP TRIGGER history_updated`, "there is no trigger history_updated on refs", triggers, guarded},
			{`DROP TABLE refs; CREATE TABLE refs (project TEXT, ref TEXT, value TEXT, time INTEGER, op TEXT)`, "refs has no primary key", "backup", guarded},
			{`DELETE FROM history_state`, "the row of history_state is missing", "backup", false},
			{`DELETE FROM token_mark`, "the row of token_mark is missing", "backup", false},
		},
		migrations.Spanner: {
			{`DROP INDEX project_time`, "there is no index project_time on refs (project, time)", repeat, false},
			{`ALTER TABLE locks DROP COLUMN nonce`, "there is no column locks.nonce", repeat, false},
			{`ALTER TABLE intents DROP COLUMN reason`, "there is no column intents.reason", "backup", false},
			{`DROP TABLE intents`, "there is no table intents", repeat, false},
			{`DROP TABLE audit`, "there is no table audit", repeat, false},
			{`DROP INDEX projects_revision`, "there is no index projects_revision on projects (revision)", repeat, false},
		},
	}
	for _, kind := range dbtest.All() {
		rows := changes[kind.Dialect]
		if testing.Short() && kind.Dialect == migrations.Spanner { // an emulator takes long to change tables
			rows = rows[1:3]
		}
		for i, c := range rows {
			t.Run(string(kind.Dialect)+": "+c.says, func(t *testing.T) {
				if testing.Short() && kind.Dialect != migrations.Spanner && i%3 > 0 {
					t.Skip("left out by -short: two of three changes; make test-all runs them")
				}
				t.Parallel()
				db := kind.New(t)
				w := &world{Database: db, env: map[string]string{"REFDB_URL": db.URL()}}
				if d := decode[doctorJSON](t, w.run(t, "doctor", "-o", "json").out); d.status("tables") != checkOK {
					t.Errorf("before: %+v", d)
				}
				db.Exec(t, c.sql)
				r := w.run(t, "doctor", "-o", "json")
				d := decode[doctorJSON](t, r.out)
				check := "tables"
				if c.guarded {
					check = "schema"
				}
				if r.code != exit.Failed || d.status(check) != checkFail ||
					!strings.Contains(d.detail(check), c.says) || !strings.Contains(d.detail(check), c.advice) {
					t.Errorf("status %d, %+v", r.code, d)
				}
				// The advice helps.
				switch c.advice {
				case repeat:
					w.do(t, "migrate", "force", "0", "--yes")
				case triggers:
					w.do(t, "migrate", "force", "10", "--yes")
				default:
					return
				}
				w.do(t, "migrate", "up")
				if d := decode[doctorJSON](t, w.run(t, "doctor", "-o", "json").out); d.status("tables") != checkOK {
					t.Errorf("afterwards: %+v", d)
				}
			})
		}
	}
}

// In the middle of an upgrade programs of the new version work with the schema before: its tables are what they should be.
func TestDoctorComparesTheTablesWithTheVersionThatTheDatabaseHas(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.All() {
		t.Run(string(kind.Dialect), func(t *testing.T) {
			t.Parallel()
			db := kind.New(t)
			w := &world{Database: db, env: map[string]string{"REFDB_URL": db.URL()}}
			w.do(t, "migrate", "down", "--yes")
			r := w.run(t, "doctor", "-o", "json")
			d := decode[doctorJSON](t, r.out)
			if d.status("tables") != checkOK || d.status("schema") != checkNote {
				t.Errorf("tables: %s; schema: %s", d.detail("tables"), d.detail("schema"))
			}
			db.Exec(t, `DROP INDEX projects_revision`)
			if d := decode[doctorJSON](t, w.run(t, "doctor", "-o", "json").out); d.status("tables") != checkFail {
				t.Errorf("without an index: %s", d.detail("tables"))
			}
		})
	}
}
