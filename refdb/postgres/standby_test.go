package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// withoutStandby makes the server's commits wait for a standby that never connects, until the test
// ends. The setting is the whole server's: no other test may run meanwhile, so its callers are not
// parallel. The returned session doesn't wait.
func withoutStandby(t *testing.T, db *dbtest.Database) *pgx.Conn {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // for the cleanup, too
	c, err := pgx.Connect(ctx, db.URL())
	if err != nil {
		t.Fatal(err)
	}
	probe, err := pgx.Connect(ctx, db.URL())
	if err != nil {
		t.Fatal(err)
	}
	set := func(names string) {
		for _, sql := range []string{`SET synchronous_commit = local`, `ALTER SYSTEM SET synchronous_standby_names = ` + names, `SELECT pg_reload_conf()`} {
			if _, err := c.Exec(ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The server's other processes apply the setting at different times, so commits are made until
	// one waits.
	probed := make(chan struct{})
	t.Cleanup(func() {
		set(`''`)
		<-probed
		c.Close(ctx)
	})
	set(`'nobody'`)
	go func() {
		defer close(probed)
		defer probe.Close(ctx)
		for t.Context().Err() == nil {
			// The outcome does not matter.
			_, _ = probe.Exec(t.Context(), `INSERT INTO refs (project, ref, value) VALUES ('probe', gen_random_uuid()::text, '')`)
		}
	}()
	eventually(t, "a commit waits", func() bool {
		return query[int64](t, c, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)[0] > 0
	})
	return c
}

func newDB(t *testing.T, db *dbtest.Database) *refdb.DB {
	t.Helper()
	d, err := refdb.New(open(t, db.URL()), refdb.Options{Site: "us"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// If the request was cancelled, the server would give up its wait, and changes that the standby
// lacks would become visible.
func TestACommitThatWaitsForItsStandbyIsNotCancelled(t *testing.T) {
	db := dbtest.Postgres(t)
	d := newDB(t, db)
	c := withoutStandby(t, db)
	ctx, cancel := context.WithCancel(t.Context())
	updated := make(chan error, 1)
	go func() { updated <- d.Update(ctx, project, []driver.Update{{Ref: mainRef, New: v1}}) }()
	eventually(t, "the update waits", func() bool {
		return query[int64](t, c, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'refdb'`)[0] > 0
	})
	cancel()
	if err := <-updated; !errors.Is(err, driver.ErrOutcomeUnknown) {
		t.Errorf("the update is not confirmed: %v", err)
	}
	if v, err := d.Get(t.Context(), project, mainRef); err != nil || v != driver.Unknown {
		t.Errorf("read a change that the standby lacks: %q, %v", v, err)
	}
}

// An administrator may stop the wait. Then the change is visible, and reading it must not count as
// a confirmation.
func TestAnUnconfirmedCommitIsNotReportedAsDone(t *testing.T) {
	for _, row := range []struct{ stop, level string }{
		{"pg_cancel_backend", "notice"}, {"pg_terminate_backend", "notice"}, {"pg_cancel_backend", "error"},
	} {
		stop := row.stop
		t.Run(stop+", client_min_messages = "+row.level, func(t *testing.T) {
			db := dbtest.Postgres(t)
			setDefault(t, db, `client_min_messages = `+row.level)
			d := newDB(t, db)
			c := withoutStandby(t, db)
			updated, locked := make(chan error, 1), make(chan error, 1)
			go func() { updated <- d.Update(t.Context(), project, []driver.Update{{Ref: mainRef, New: v1}}) }()
			go func() {
				_, err := d.TryLock(t.Context(), project, otherRef)
				locked <- err
			}()
			eventually(t, "both have their answers", func() bool {
				exec(t, c, `SELECT `+stop+`(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
				return len(updated) == 1 && len(locked) == 1
			})
			if err := <-updated; !errors.Is(err, driver.ErrUnconfirmed) {
				t.Errorf("the update: %v", err)
			}
			if err := <-locked; !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("the lock: %v", err)
			}
			if v, err := d.Get(t.Context(), project, mainRef); err != nil || v != v1 {
				t.Errorf("the update is not visible: %q, %v", v, err)
			}
		})
	}
}

// Ending such a session makes changes visible that the standby lacks, so a doctor must not advise
// it.
func TestTheDiagnosisDistinguishesWaitingCommitsFromForgottenTransactions(t *testing.T) {
	db := dbtest.Postgres(t)
	c := withoutStandby(t, db)
	var waiting int
	if err := c.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&waiting); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the commit is found", func() bool {
		var holder string
		var seconds float64
		var awaitsStandby bool
		err := c.QueryRow(t.Context(), postgres.HoldingSQL).Scan(&holder, &seconds, &awaitsStandby)
		return err == nil && strings.HasPrefix(holder, fmt.Sprintf("process %d ", waiting)) && awaitsStandby
	})
}
