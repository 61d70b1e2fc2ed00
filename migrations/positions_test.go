package migrations_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// What an operator is advised to do about missing tables and triggers changes nothing where nothing is missing.
func TestStepsThatAreRepeatedKeepWhatIsThere(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		from, again := uint(0), "admission, history_state, epochs, token_origin"
		switch k.Dialect {
		case migrations.Spanner:
			again = "admission, history_state, epochs"
		case migrations.SQLite:
			from, again = 10, "admission, history_state, epochs, token_mark"
		}
		d := k.New(t)
		driver := d.Open(t)
		d.InsertRef(t, project, main, sha)
		before, err := driver.HistoryState(t.Context())
		must(t, err)
		shape := ddl(t, d)
		m := migrator(t, d)
		must(t, m.Force(t.Context(), from))
		must(t, m.Up(t.Context()))
		wantRefs(t, d, []string{main})
		after, err := driver.HistoryState(t.Context())
		must(t, err)
		if after.Pruned != before.Pruned || after.Upto < before.Upto || !after.Admitted || len(after.Epochs) != 1 || after.Epochs[0].ID != before.Epochs[0].ID {
			t.Errorf("the history was %+v, and is %+v", before, after)
		}
		for _, table := range strings.Split(again, ", ") {
			if n := count(t, d, table); n != 1 {
				t.Errorf("%s has %d rows", table, n)
			}
		}
		if got := ddl(t, d); !slices.Equal(got, shape) {
			t.Errorf("there was\n%q\nand there is\n%q", shape, got)
		}
	})
}

// A row of history_state that was lost is made again, and promises none of the changes that may have been pruned.
func TestALostStateOfTheHistoryIsMadeAgainAboveAllChanges(t *testing.T) {
	t.Parallel()
	d := kind(t, migrations.Postgres).New(t)
	d.InsertRef(t, project, main, sha)
	d.Exec(t, `INSERT INTO epochs SELECT 1, 'earlier', now(), '', ''`)
	d.Exec(t, `UPDATE history SET position = position + 1000000`) // as at a server that had begun more transactions
	d.Exec(t, `DELETE FROM history_state`)
	m := migrator(t, d)
	must(t, m.Force(t.Context(), 0))
	must(t, m.Up(t.Context()))
	if n := count(t, d, `history_state WHERE pruned = (SELECT max(position) + 1 FROM history)`); n != 1 {
		t.Error("pruned is not above all changes")
	}
	d.InsertRef(t, project, "refs/heads/next", sha)
	if n := count(t, d, `history AS h WHERE ref = 'refs/heads/next' AND position > (SELECT max(position) FROM history WHERE ref <> h.ref)`); n != 1 {
		t.Error("the next change is not the last")
	}
}

// Version 10 has no shift, so that its positions would go back.
func TestDownIsRefusedAfterTheDatabaseMovedToAYoungerServer(t *testing.T) {
	t.Parallel()
	d := kind(t, migrations.Postgres).New(t)
	d.Exec(t, `UPDATE history_state SET shift = 7`)
	m := migrator(t, d)
	must(t, m.To(t.Context(), 11))
	wantError(t, m.Down(t.Context(), 1), "version 10 would let them go back")
	wantVersion(t, m, 11)
	d.Exec(t, `UPDATE history_state SET shift = 0`)
	must(t, m.Down(t.Context(), 1))
	wantVersion(t, m, 10)
	d.InsertRef(t, project, main, sha)
	if n := count(t, d, "history"); n != 1 {
		t.Errorf("%d changes were recorded", n)
	}
}

// A schema has any name, and is not the first that the server knows.
func TestASchemaOfAnyNameIsMigrated(t *testing.T) {
	t.Parallel()
	d := kind(t, migrations.Postgres).Empty(t)
	const name = `The "refs", 'sites' & more`
	d.Exec(t, `CREATE SCHEMA `+quoted(name))
	d.Exec(t, `CREATE TABLE history (another int)`) // in public
	u, err := url.Parse(d.URL())
	must(t, err)
	q := u.Query()
	q.Set("search_path", quoted(name)+`, public`)
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	m, err := schema.Open(t.Context(), u.String())
	must(t, err)
	defer m.Close()
	work := func(ref string) {
		t.Helper()
		driver, err := drivers.Open(t.Context(), u.String())
		must(t, err)
		db, err := refdb.New(driver, refdb.Options{})
		must(t, err)
		defer db.Close()
		_, err = db.Put(t.Context(), project, ref, sha)
		must(t, err)
	}
	must(t, m.Up(t.Context()))
	work("refs/heads/a")
	must(t, m.Down(t.Context(), 1))
	work("refs/heads/b")
	must(t, m.Force(t.Context(), 0))
	must(t, m.Up(t.Context()))
	work("refs/heads/c")
	if n := count(t, d, quoted(name)+`.history`); n != 3 {
		t.Errorf("%d changes were recorded", n)
	}
	if n := count(t, d, `public.history`); n != 0 {
		t.Errorf("%d rows in another table", n)
	}
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// The trigger writes the history, so that its writers need not.
func TestTheStepForPositionsTakesGrantsAndItsReverseGivesThemBack(t *testing.T) {
	t.Parallel()
	d := kind(t, migrations.Postgres).New(t)
	const role = `refdb_test "granted"`
	d.Exec(t, `CREATE ROLE `+quoted(role))
	t.Cleanup(func() {
		d.Exec(t, `DROP OWNED BY `+quoted(role))
		d.Exec(t, `DROP ROLE `+quoted(role))
	})
	m := migrator(t, d)
	must(t, m.To(t.Context(), 10))
	grants := func() []string {
		t.Helper()
		return texts(t, d, `SELECT table_name || ': ' || privilege_type FROM information_schema.table_privileges WHERE grantee = '`+role+`' AND table_name IN ('history', 'audit')
			UNION ALL SELECT table_name || '.' || column_name || ': ' || privilege_type FROM information_schema.column_privileges
			WHERE grantee = '`+role+`' AND table_name = 'audit' AND privilege_type = 'UPDATE' AND NOT has_table_privilege(grantee, 'audit', 'UPDATE') ORDER BY 1`)
	}
	d.Exec(t, `GRANT SELECT, INSERT, UPDATE, DELETE ON refs TO `+quoted(role))
	d.Exec(t, `GRANT SELECT, INSERT ON history TO `+quoted(role))
	d.Exec(t, `GRANT SELECT, INSERT, UPDATE ON audit TO `+quoted(role))
	old := []string{"audit: INSERT", "audit: SELECT", "audit: UPDATE", "history: INSERT", "history: SELECT"}
	latest := []string{"audit.ended: UPDATE", "audit.outcome: UPDATE", "audit: INSERT", "audit: SELECT", "history: SELECT"}
	for range 2 {
		must(t, m.Up(t.Context()))
		if got := grants(); !slices.Equal(got, latest) {
			t.Errorf("after up %q, want %q", got, latest)
		}
		must(t, m.Force(t.Context(), 0))
		must(t, m.Up(t.Context()))
		if got := grants(); !slices.Equal(got, latest) {
			t.Errorf("after all steps again %q, want %q", got, latest)
		}
		must(t, m.To(t.Context(), 10))
		if got := grants(); !slices.Equal(slices.DeleteFunc(got, func(g string) bool { return strings.HasPrefix(g, "audit.") }), old) {
			t.Errorf("after down %q, want %q", got, old)
		}
	}
}
