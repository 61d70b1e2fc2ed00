package postgres_test

import (
	"errors"
	"testing"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// Another schema of the same database may contain tables of the same names, of another application
// or of another ref database.
func TestASchemaOfTheSearchPathHoldsTheTables(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	db.Exec(t, `CREATE SCHEMA other`)
	url := with(t, db.URL(), "search_path", "other")
	_, err := postgres.Open(t.Context(), url)
	wantLine(t, err, "refdbctl migrate up")
	if err := schema.Up(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	here, there := open(t, db.URL()), open(t, url)
	a := acquire(t, here, mainRef)
	release(t, there, acquire(t, there, mainRef), mainRef)
	release(t, here, a, mainRef)

	m, err := schema.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.To(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if _, err := here.Get(t.Context(), project, []string{mainRef}); err != nil {
		t.Error(err)
	}
}

func TestASchemaBehindTheFirstOfTheSearchPath(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	db.Exec(t, `CREATE SCHEMA other`)
	url := with(t, db.URL(), "search_path", "other,public")
	d := open(t, url)
	release(t, d, acquire(t, d, mainRef), mainRef)
	// A second set of tables in an earlier schema would hide the first.
	wantLine(t, schema.Up(t.Context(), url), `the schema is in "public"`)
}

func TestASearchPathThatNamesNoSchema(t *testing.T) {
	t.Parallel()
	url := with(t, dbtest.Postgres(t).URL(), "search_path", "nosuch")
	_, err := postgres.Open(t.Context(), url)
	_, migratorErr := postgres.Migrator(t.Context(), url)
	for _, err := range []error{err, migratorErr} {
		wantLine(t, err, "search_path nosuch")
		if errors.Is(err, driver.ErrSchema) || driver.ClassOf(err) != driver.Permanent {
			t.Errorf("%v is %s", err, driver.ClassOf(err))
		}
	}
}

func TestAnEarlierProgramsTableOfVersionsIsRead(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	db.Exec(t, `ALTER TABLE `+migrations.Table+` RENAME TO schema_migrations`)
	d := open(t, db.URL())
	release(t, d, acquire(t, d, mainRef), mainRef)
}
