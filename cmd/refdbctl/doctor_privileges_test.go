package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/cli"
	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func (d doctorJSON) detail(name string) string {
	for _, c := range d.Checks {
		if c.Check == name {
			return c.Detail
		}
	}
	return ""
}

func TestDoctorFindsThatARoleCanOnlyLook(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	const role = "refdbctl_test_looks"
	db.Exec(t, `CREATE ROLE `+role)
	t.Cleanup(func() {
		db.Exec(t, `DROP OWNED BY `+role)
		db.Exec(t, `DROP ROLE `+role)
	})
	db.Exec(t, `GRANT SELECT ON ALL TABLES IN SCHEMA public TO `+role)
	url := db.URL() + "?"
	if strings.Contains(db.URL(), "?") {
		url = db.URL() + "&"
	}
	w := &world{env: map[string]string{"REFDB_URL": url + "options=-crole%3D" + role}}
	w.do(t, "locks", "list")
	r := w.run(t, "doctor", "-o", "json")
	d := decode[doctorJSON](t, r.out)
	if r.code != exit.Failed || d.status("privileges") != checkFail ||
		!strings.Contains(d.detail("privileges"), "GRANT INSERT, UPDATE, DELETE ON locks TO "+role) ||
		!strings.Contains(d.detail("privileges"), "GRANT UPDATE ON token_origin TO "+role) {
		t.Errorf("%+v", d)
	}
	owner := &world{env: map[string]string{"REFDB_URL": db.URL()}}
	if d := decode[doctorJSON](t, owner.run(t, "doctor", "-o", "json").out); d.status("privileges") != checkOK {
		t.Errorf("the owner: %+v", d)
	}
}

func TestDoctorWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open(t) // so that the log is not written back
	w.do(t, "locks", "list")
	files := func() (all []byte) {
		path := strings.TrimPrefix(w.URL(), "sqlite:")
		for _, name := range []string{path, path + "-wal"} {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, text...)
		}
		return all
	}
	before := files()
	if d := decode[doctorJSON](t, w.do(t, "doctor", "-o", "json")); d.detail("write") != "possible: wrote a row, and rolled it back" {
		t.Errorf("write: %q", d.detail("write"))
	}
	if !bytes.Equal(before, files()) {
		t.Error("the files changed")
	}
}

func TestDoctorNotesAnEmulator(t *testing.T) {
	t.Parallel()
	w := &world{env: map[string]string{"REFDB_URL": dbtest.Spanner(t).URL(), cli.EmulatorVariable: os.Getenv(cli.EmulatorVariable)}}
	if w.env[cli.EmulatorVariable] == "" {
		t.Fatal("the emulator is not named in the environment")
	}
	d := decode[doctorJSON](t, w.do(t, "doctor", "-o", "json"))
	if d.status("server") != checkNote || !strings.Contains(d.detail("server"), "emulator") {
		t.Errorf("%+v", d)
	}
}
