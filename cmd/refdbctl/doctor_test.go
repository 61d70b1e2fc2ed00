package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

type doctorJSON struct {
	OK     *bool
	Checks []struct{ Check, Status, Detail string }
}

func (d doctorJSON) status(name string) string {
	for _, c := range d.Checks {
		if c.Check == name {
			return c.Status
		}
	}
	return ""
}

func TestDoctorFindsNothingWrong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := decode[doctorJSON](t, w.do(t, "doctor", "-o", "json"))
	if d.OK == nil || !*d.OK {
		t.Errorf("%+v", d)
	}
	for _, name := range []string{"connect", "schema", "latency", "clock", "stale locks", "orphaned markers"} {
		if d.status(name) != checkOK {
			t.Errorf("%s: %q in %+v", name, d.status(name), d)
		}
	}
	table := w.do(t, "doctor")
	if strings.Count(table, "\n") != len(d.Checks)+1 {
		t.Errorf("not a line for each check:\n%s", table)
	}
}

func TestDoctorCountsStaleLocksAndOrphansWithoutFailing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.InsertLock(t, refdb.LockInfo{Project: "p", Ref: mainRef, Owner: "o", Age: time.Hour})
	w.InsertLock(t, refdb.LockInfo{Project: "RECLAIM_p_2020-01-01T00:00:00.000000000Z", Ref: mainRef, Owner: "o"})
	d := decode[doctorJSON](t, w.do(t, "doctor", "-o", "json"))
	if d.status("stale locks") != checkNote || d.status("orphaned markers") != checkNote || !*d.OK {
		t.Errorf("%+v", d)
	}
}

func TestDoctorWithoutASchema(t *testing.T) {
	t.Parallel()
	w := &world{env: map[string]string{"REFDB_URL": dbtest.SQLiteEmpty(t)}}
	r := w.run(t, "doctor", "-o", "json")
	r.is(t, exit.Failed, "1 check failed")
	d := decode[doctorJSON](t, r.out)
	if *d.OK || d.status("schema") != checkFail || !strings.Contains(r.out, "refdbctl migrate up") {
		t.Errorf("%+v", d)
	}
}

// faulty is a driver whose clock differs by skew, whose Now fails with err, and which has
// one setting.
type faulty struct {
	refdb.Driver
	skew    time.Duration
	err     error
	setting driver.Diagnosis
}

func (a faulty) Now(ctx context.Context) (time.Time, error) {
	now, err := a.Driver.Now(ctx)
	return now.Add(a.skew), errors.Join(err, a.err)
}

func (a faulty) Diagnose(context.Context) ([]driver.Diagnosis, error) {
	return []driver.Diagnosis{a.setting}, nil
}

func TestDoctorsFindings(t *testing.T) {
	t.Parallel()
	fine := driver.Diagnosis{Name: "fsync", OK: true, Detail: "on"}
	for _, c := range []struct {
		name          string
		faulty        faulty
		code          int
		check, status string
	}{
		{"a clock that differs is only noted", faulty{skew: time.Hour, setting: fine}, exit.OK, "clock", checkNote},
		{"a wrong setting fails", faulty{setting: driver.Diagnosis{Name: "fsync", Detail: "off"}}, exit.Failed, "fsync", checkFail},
		{"a good one does not", faulty{setting: fine}, exit.OK, "fsync", checkOK},
		{"a database that does not answer fails", faulty{err: errors.New("gone"), setting: fine}, exit.Failed, "latency", checkFail},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.wrap = func(d refdb.Driver) refdb.Driver { c.faulty.Driver = d; return c.faulty }
			r := w.run(t, "doctor", "-o", "json")
			if d := decode[doctorJSON](t, r.out); r.code != c.code || d.status(c.check) != c.status || *d.OK != (c.code == exit.OK) {
				t.Errorf("status %d: %s", r.code, r.out)
			}
		})
	}
}

func TestDoctorNamesASchemaBesideThisProgramsOwn(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		change string
		says   string
	}{
		{`UPDATE refdb_schema SET version = 11`, "refdbctl migrate up"},
		{`UPDATE refdb_schema SET version = 99`, "upgrade the program"},
	} {
		w := newWorld(t)
		w.Exec(t, row.change)
		if got := w.do(t, "doctor"); !strings.Contains(got, "note    schema") || !strings.Contains(got, row.says) {
			t.Errorf("after %s:\n%s", row.change, got)
		}
	}
}
