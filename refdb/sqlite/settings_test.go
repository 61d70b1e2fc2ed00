package sqlite_test

import (
	"database/sql"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A PRAGMA and a temporary table belong to one connection, and the settings that the file stores
// can't change while it is open.
func TestSettingsOfAnotherConnectionHaveNoEffect(t *testing.T) {
	path := migrated(t)
	d := openAgain(t, "sqlite:"+path)
	update(t, d, refA, "", v1)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, s := range []string{
		`PRAGMA synchronous = off`, `PRAGMA recursive_triggers = on`, `PRAGMA foreign_keys = on`, `PRAGMA trusted_schema = off`, `PRAGMA ignore_check_constraints = on`,
		`PRAGMA encoding = 'UTF-16le'`, `PRAGMA reverse_unordered_selects = on`,
		`CREATE TEMPORARY TABLE refs (x)`, `CREATE TEMPORARY TABLE history (x)`,
	} {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	var mode string
	if err := db.QueryRowContext(t.Context(), `PRAGMA journal_mode = delete`).Scan(&mode); err == nil && mode != "wal" {
		t.Errorf("the journal's mode became %s while the file was open", mode)
	}
	two := driver.UpdateRequest{Origin: driver.Origin{ID: "two"}, Updates: []driver.Update{{Ref: refA, Old: v1, New: v2}}}
	if err := change(t.Context(), d, two); err != nil {
		t.Fatal(err)
	}
	if got, want := said(t, d), "a ->"+string(v1)+" op, a "+string(v1)+">"+string(v2)+" two"; got != want {
		t.Errorf("the history has %q, want %q", got, want)
	}
	diagnoses, err := d.Diagnose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range diagnoses {
		switch f.Name {
		case "journal_mode", "synchronous", "tables", "quick_check":
			if !f.OK {
				t.Errorf("%s: %s", f.Name, f.Detail)
			}
		}
	}
}
