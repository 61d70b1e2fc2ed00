package test

import (
	"errors"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestASiteThatWasLeftOutNeitherPreparesNorFinishesBeforeItHasReported(t *testing.T) {
	for name, open := range map[string]func(*testing.T) refdb.Driver{
		"memory":   func(*testing.T) refdb.Driver { return memory.New().Open() },
		"postgres": func(t *testing.T) refdb.Driver { return dbtest.Postgres(t).Open(t) },
		"spanner":  func(t *testing.T) refdb.Driver { return dbtest.Spanner(t).Open(t) },
		"sqlite":   func(t *testing.T) refdb.Driver { return dbtest.SQLite(t).Open(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			t.Cleanup(func() { d.Close() })
			a, err := d.Admission(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			report := func(away bool) {
				t.Helper()
				if _, err := d.Report(t.Context(), driver.Report{Witness: "b", Server: a.Server, Away: away}); err != nil {
					t.Fatal(err)
				}
			}
			prepare := func(ref string) (driver.PrepareRequest, driver.Prepared, error) {
				r := driver.PrepareRequest{Project: "p", Owner: "b/1", Nonce: ref, Updates: []refdb.Update{{Ref: ref, New: "1111111111111111111111111111111111111111"}}}
				p, err := d.Prepare(t.Context(), r)
				return r, p, err
			}
			report(false)
			r, p, err := prepare("refs/heads/a")
			if err != nil {
				t.Fatal(err)
			}
			report(true)
			finish := driver.FinishRequest{Project: "p", Origin: driver.Origin{ID: "a-1", Owner: "b/1"}, Token: p.Token, Done: r.Updates}
			if err := d.Finish(t.Context(), finish); !errors.Is(err, refdb.ErrNotAdmitted) {
				t.Errorf("finished: %v", err)
			}
			if _, _, err := prepare("refs/heads/b"); !errors.Is(err, refdb.ErrNotAdmitted) {
				t.Errorf("prepared: %v", err)
			}
			report(false)
			if err := d.Finish(t.Context(), finish); err != nil {
				t.Errorf("after its report: %v", err)
			}
			if _, _, err := prepare("refs/heads/b"); err != nil {
				t.Errorf("after its report: %v", err)
			}
		})
	}
}
