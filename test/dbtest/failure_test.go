package dbtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A verdict is a test that has failed or not, whatever it did, and keeps what it logs.
type verdict struct {
	testing.TB
	failed bool
	log    strings.Builder
}

func (v *verdict) Failed() bool { return v.failed }

func (v *verdict) Logf(format string, args ...any) { fmt.Fprintf(&v.log, format+"\n", args...) }

func TestATestThatFailsShowsWhatItsServerPrintedAndTheLoadOfTheMachine(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		// End with the tests that they are given to.
		failed, passed := verdict{failed: true}, verdict{}
		other := k.New(t)
		t.Run("a test", func(t *testing.T) {
			failed.TB, passed.TB = t, t
			raise(t, k.New(&failed), "own")
			raise(t, other, "other")
			k.New(&passed)
		})
		got := failed.log.String()
		if !strings.Contains(got, " processors\n") {
			t.Errorf("the load of the machine is missing: %s", got)
		}
		if k.Dialect == migrations.Postgres && dbtest.OwnPostgres() {
			if !strings.Contains(got, "the message own\n") || !strings.Contains(got, "\tsecond line\n") {
				t.Errorf("the message of the test's own database is missing: %s", got)
			}
			if strings.Contains(got, "the message other") {
				t.Errorf("there is a message of another database: %s", got)
			}
		}
		if passed.log.Len() > 0 {
			t.Errorf("a test that passed logs %s", passed.log.String())
		}
	})
}

// raise has a PostgreSQL server log a message of two lines about a database.
func raise(t *testing.T, d *dbtest.Database, message string) {
	t.Helper()
	if d.Kind().Dialect == migrations.Postgres {
		d.Exec(t, `DO $$ BEGIN RAISE LOG E'the message `+message+`\nsecond line'; END $$`)
	}
}
