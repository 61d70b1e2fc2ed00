package migrations_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// Programs are upgraded before the schema. On version 11 sites report as before, no site testifies, and there is no policy.
func TestSitesReportBeforeTheSchemaHasTestimonies(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		m := migrator(t, d)
		must(t, m.To(t.Context(), 11))
		open := d.Open(t)
		prepare := func(ref string) error {
			prepared, err := open.Prepare(t.Context(), driver.PrepareRequest{
				Project: project, Updates: []driver.Update{{Ref: "refs/heads/" + ref, New: sha}}, Owner: "us/1", Nonce: ref, Agent: "agent",
			})
			if err != nil {
				return err
			}
			return open.Finish(t.Context(), driver.FinishRequest{
				Project: project, Origin: driver.Origin{ID: ref, Owner: "us/1"}, Token: prepared.Token, Dropped: []string{"refs/heads/" + ref},
			})
		}
		a, err := open.Admission(t.Context())
		must(t, err)
		report := func(r driver.Report) driver.Admission {
			t.Helper()
			r.Server = a.Server
			after, err := open.Report(t.Context(), r)
			must(t, err)
			return after
		}
		closing := driver.Report{Witness: "eu", Closes: []string{"us"}, Policy: driver.PolicyMark{Policy: driver.Wait, Since: time.Now()}}
		report(driver.Report{Witness: "us"})
		for _, a := range []driver.Admission{a, report(closing)} {
			if !a.Admitted || a.Policy != (driver.PolicyMark{Policy: driver.Wait}) || slices.ContainsFunc(a.Witnesses, driver.Witness.Barred) {
				t.Errorf("%+v", a)
			}
		}
		must(t, prepare("a"))
		report(driver.Report{Witness: "us", Away: true})
		if err := prepare("b"); !errors.Is(err, driver.ErrNotAdmitted) {
			t.Errorf("a site that is away prepares: %v", err)
		}
		report(driver.Report{Witness: "us"})
		if _, err := open.SetPolicy(t.Context(), driver.Synchronous); !errors.Is(err, driver.ErrSchema) || !strings.Contains(err.Error(), "migrate up") {
			t.Errorf("a policy is set: %v", err)
		}

		must(t, m.Up(t.Context()))
		if c, ok := open.(driver.SchemaChecker); ok {
			must(t, c.CheckSchema(t.Context()))
		}
		us := func(a driver.Admission) driver.Witness { return a.Witnesses[1] }
		if a := report(closing); !us(a).Closing() || a.Policy.Since.IsZero() {
			t.Errorf("%+v", a)
		}
		if err := prepare("c"); !errors.Is(err, driver.ErrNotAdmitted) {
			t.Errorf("a site about which another one is about to testify prepares: %v", err)
		}
		must(t, m.Down(t.Context(), 1))
		wantVersion(t, m, 11)
		must(t, m.Up(t.Context()))
		if a, err := open.Admission(t.Context()); err != nil || us(a).Barred() || us(a).Server != a.Server || !a.Policy.Since.IsZero() {
			t.Errorf("after down and up: %+v, %v", a, err)
		}
	})
}

// Steps are repeated to repair a database.
func TestTheStepForTestimoniesCanBeRepeated(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		open := d.Open(t)
		a, err := open.SetPolicy(t.Context(), driver.Synchronous)
		must(t, err)
		for _, r := range []driver.Report{{Witness: "us"}, {Witness: "eu", Closes: []string{"us"}}} {
			r.Server = a.Server
			a, err = open.Report(t.Context(), r)
			must(t, err)
		}
		m := migrator(t, d)
		must(t, m.Force(t.Context(), 11))
		must(t, m.Up(t.Context()))
		again, err := open.Admission(t.Context())
		if err != nil || again.Policy != a.Policy || !slices.Equal(again.Witnesses, a.Witnesses) || !again.Admitted {
			t.Errorf("before %+v, then %+v, %v", a, again, err)
		}
	})
}

// What a site may write: columns of tables that it had rights on, and one more.
func TestTheStepForTestimoniesNeedsNoGrants(t *testing.T) {
	t.Parallel()
	d := kind(t, migrations.Postgres).New(t)
	const role = `refdb_test "speaks"`
	d.Exec(t, `CREATE ROLE `+quoted(role))
	t.Cleanup(func() {
		d.Exec(t, `DROP OWNED BY `+quoted(role))
		d.Exec(t, `DROP ROLE `+quoted(role))
	})
	m := migrator(t, d)
	must(t, m.To(t.Context(), 8))
	d.Exec(t, `GRANT SELECT, INSERT, UPDATE, DELETE ON refs TO `+quoted(role))
	for range 2 {
		must(t, m.Up(t.Context()))
		if n := count(t, d, `(SELECT 1 WHERE has_column_privilege('`+role+`', 'witnesses', 'word', 'UPDATE') AND has_column_privilege('`+role+`', 'admission', 'policy', 'UPDATE')) AS all_of_them`); n != 1 {
			t.Error("it may not write words and policies")
		}
		must(t, m.Down(t.Context(), 1))
	}
}
