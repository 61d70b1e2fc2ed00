package migrations_test

import (
	"fmt"
	"testing"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// record writes the version of the database, and the oldest that programs must know.
func record(t *testing.T, d *dbtest.Database, version, oldest uint) {
	t.Helper()
	d.Exec(t, "DELETE FROM "+migrations.Table+" WHERE true")
	d.Exec(t, fmt.Sprintf("INSERT INTO %s (version, dirty, oldest) VALUES (%d, false, %d)", migrations.Table, version, oldest))
}

func TestAMigrationRecordsWhatProgramsMustKnow(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		if n := count(t, d, fmt.Sprintf("%s WHERE oldest = %d", migrations.Table, migrations.OldestProgram(int(migrations.Latest(k.Dialect))))); n != 1 {
			t.Errorf("%d rows say so", n)
		}
	})
}
