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
	const repeat = "refdbctl migrate force 0"
	changes := map[migrations.Dialect][]struct{ sql, says, advice string }{
		migrations.Postgres: {
			{`DROP INDEX locks_owner`, "there is no index locks_owner on locks (owner)", repeat},
			{`ALTER TABLE locks DROP COLUMN nonce`, "there is no column locks.nonce", repeat},
			{`ALTER TABLE intents DROP COLUMN reason`, "there is no column intents.reason", "backup"},
			{`DROP TABLE intents`, "there is no table intents", repeat},
			{`DROP TABLE audit`, "there is no table audit", repeat},
			{`DROP INDEX projects_revision`, "there is no index projects_revision on projects (revision)", repeat},
			{`ALTER TABLE refs DROP CONSTRAINT refs_pkey`, "the primary key of refs is () instead of (project, ref)", "backup"},
			{`ALTER TABLE refs ALTER COLUMN ref TYPE text COLLATE "default"`, "the column refs.ref is text instead of", "backup"},
			{`ALTER TABLE locks ADD COLUMN a int NOT NULL`, "the column locks.a is not refdb's, and needs a value", "backup"},
		},
		migrations.SQLite: {
			{`ALTER TABLE intents DROP COLUMN reason`, "there is no column intents.reason", "backup"},
			{`DROP INDEX projects_revision`, "there is no index projects_revision on projects (revision)", "backup"},
			{`DROP INDEX history_latest`, "there is no index history_latest on history (latest, position)", "backup"},
			{`DROP TRIGGER history_updated`, "there is no trigger history_updated on refs", "backup"},
			{`DROP TABLE refs; CREATE TABLE refs (project TEXT, ref TEXT, value TEXT, time INTEGER, op TEXT)`, "the primary key of refs is ()", "backup"},
		},
		migrations.Spanner: {
			{`DROP INDEX project_time`, "there is no index project_time on refs (project, time)", repeat},
			{`ALTER TABLE locks DROP COLUMN nonce`, "there is no column locks.nonce", repeat},
			{`ALTER TABLE intents DROP COLUMN reason`, "there is no column intents.reason", "backup"},
			{`DROP TABLE intents`, "there is no table intents", repeat},
			{`DROP TABLE audit`, "there is no table audit", repeat},
			{`DROP INDEX projects_revision`, "there is no index projects_revision on projects (revision)", repeat},
		},
	}
	for _, kind := range dbtest.All() {
		rows := changes[kind.Dialect]
		if testing.Short() && kind.Dialect == migrations.Spanner { // an emulator takes long to change tables
			rows = rows[1:3]
		}
		for _, c := range rows {
			t.Run(string(kind.Dialect)+": "+c.says, func(t *testing.T) {
				t.Parallel()
				db := kind.New(t)
				w := &world{Database: db, env: map[string]string{"REFDB_URL": db.URL()}}
				if d := decode[doctorJSON](t, w.run(t, "doctor", "-o", "json").out); d.status("tables") != checkOK {
					t.Errorf("before: %+v", d)
				}
				db.Exec(t, c.sql)
				r := w.run(t, "doctor", "-o", "json")
				d := decode[doctorJSON](t, r.out)
				if r.code != exit.Failed || d.status("tables") != checkFail ||
					!strings.Contains(d.detail("tables"), c.says) || !strings.Contains(d.detail("tables"), c.advice) {
					t.Errorf("status %d, %+v", r.code, d)
				}
				if c.advice != repeat {
					return
				}
				// The advice helps.
				w.do(t, "migrate", "force", "0", "--yes")
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
