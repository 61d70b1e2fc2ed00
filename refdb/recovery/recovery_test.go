package recovery_test

import (
	"context"
	"errors"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/memory"
)

// A replaced driver is one whose server is not admitted.
type replaced struct {
	driver.Driver
	reports int
}

func (d *replaced) Admission(ctx context.Context) (driver.Admission, error) {
	a, err := d.Driver.Admission(ctx)
	a.Server, a.Admitted = "another", false
	return a, err
}

func (d *replaced) Report(ctx context.Context, r driver.Report) (driver.Admission, error) {
	d.reports++
	return d.Driver.Report(ctx, r)
}

// witnesses registers witnesses that are waited for, each of which has compared the server.
func witnesses(t *testing.T, d driver.Driver, names ...string) {
	t.Helper()
	for _, name := range names {
		looked, err := d.Look(t.Context(), name, nil)
		if err == nil {
			_, err = d.Report(t.Context(), driver.Report{Witness: name, Owner: name + "/1", Server: looked.Server})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func open(t *testing.T, d driver.Driver) *refdb.DB {
	t.Helper()
	db, err := refdb.New(d, refdb.Options{Site: "eu-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func away(t *testing.T, db *refdb.DB) map[string]bool {
	t.Helper()
	a, err := db.Recovery().Admission(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	away := map[string]bool{}
	for _, w := range a.Witnesses {
		away[w.Name] = w.Away
	}
	return away
}

func TestAWitnessThatLeftForGoodIsNotAwaited(t *testing.T) {
	d := memory.New().Open()
	witnesses(t, d, "site-v", "site-w")
	db := open(t, d)
	for _, name := range []string{"site-w", "site-w", "a site that never was"} {
		if err := db.Recovery().LeaveFor(t.Context(), name); err != nil {
			t.Errorf("for %s: %v", name, err)
		}
	}
	if got := away(t, db); len(got) != 2 || got["site-v"] || !got["site-w"] {
		t.Errorf("away are %v, want site-w alone", got)
	}
}

func TestAWitnessOfAServerThatIsNotAdmittedIsStillAwaited(t *testing.T) {
	d := &replaced{Driver: memory.New().Open()}
	witnesses(t, d.Driver, "site-w")
	db := open(t, d)
	if err := db.Recovery().LeaveFor(t.Context(), "site-w"); !errors.Is(err, driver.ErrNotAdmitted) {
		t.Errorf("got %v, want ErrNotAdmitted", err)
	}
	if got := away(t, db); d.reports != 0 || got["site-w"] {
		t.Errorf("%d reports, away are %v: want nothing recorded", d.reports, got)
	}
}
