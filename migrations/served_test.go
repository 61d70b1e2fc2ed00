package migrations_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// record writes the version of the database, and the oldest that programs must know.
func record(t *testing.T, d *dbtest.Database, version, oldest uint) {
	t.Helper()
	d.Exec(t, "DELETE FROM "+migrations.Table+" WHERE true")
	d.Exec(t, fmt.Sprintf("INSERT INTO %s (version, dirty, oldest) VALUES (%d, false, %d)", migrations.Table, version, oldest))
}

func TestAProgramNoticesThatTheSchemaWasMigratedUnderIt(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		driver, err := drivers.Open(t.Context(), d.URL())
		must(t, err)
		db, err := refdb.New(driver, refdb.Options{})
		must(t, err)
		defer db.Close()
		put := func() error { _, err := db.Put(t.Context(), project, main, sha); return err }
		latest := migrations.Latest(k.Dialect)
		soon := func(fits bool) {
			t.Helper()
			for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
				err := put()
				switch {
				case fits && err == nil, !fits && errors.Is(err, refdb.ErrSchema):
					return
				case err != nil && !errors.Is(err, refdb.ErrSchema):
					t.Fatal(err)
				case time.Now().After(deadline):
					t.Fatalf("fits is %t, and still: %v", fits, err)
				}
			}
		}
		must(t, put())
		record(t, d, latest+1, latest+1)
		soon(false)
		record(t, d, latest+1, latest)
		soon(true)
		record(t, d, latest, latest)
		must(t, put())
	})
}

func TestAMigrationRecordsWhatProgramsMustKnow(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		if n := count(t, d, fmt.Sprintf("%s WHERE oldest = %d", migrations.Table, migrations.OldestProgram(int(migrations.Latest(k.Dialect))))); n != 1 {
			t.Errorf("%d rows say so", n)
		}
	})
}
