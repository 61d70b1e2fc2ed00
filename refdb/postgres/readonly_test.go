package postgres_test

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A primary with a leftover default_transaction_read_only is not taken for a standby.
func TestALeftoverSettingIsNotReportedAsAStandby(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	db.Exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	const reset = "reset default_transaction_read_only"
	_, err := postgres.Open(t.Context(), db.URL())
	wantLine(t, err, reset)
	if strings.Contains(err.Error(), "target_session_attrs") {
		t.Errorf("%v", err)
	}
	_, err = postgres.Open(t.Context(), with(t, db.URL(), "target_session_attrs", "read-write"))
	wantLine(t, err, reset)
	if !strings.Contains(err.Error(), "no server in the database URL accepts writes") || driver.ClassOf(err) != driver.Retryable {
		t.Errorf("%s: %v", driver.ClassOf(err), err)
	}
	// The advice works.
	db.Exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET default_transaction_read_only', current_database()); END $$`)
	if again, err := postgres.Open(t.Context(), db.URL()); err != nil {
		t.Error(err)
	} else {
		again.Close()
	}
}

func TestAParameterThatOnlyLibpqKnowsIsRefusedByItsName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"hostaddr", "keepalives_idle", "gssencmode", "tcp_user_timeout"} {
		for _, err := range openers(t.Context(), "postgres://u:"+secret+"@localhost/db?"+name+"=1") {
			wantLine(t, err, "the libpq parameter "+name+" is not supported")
		}
	}
}
