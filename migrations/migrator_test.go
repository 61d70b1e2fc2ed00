package migrations_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestProcessesThatMigrateAtOnceAllSucceed(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		for round := range 2 {
			d := k.Empty(t)
			cmds := make([]*exec.Cmd, 3)
			outputs := make([]bytes.Buffer, len(cmds))
			for i := range cmds {
				cmds[i] = inProcess(t, d)
				cmds[i].Stderr = &outputs[i]
				must(t, cmds[i].Start())
			}
			for i, cmd := range cmds {
				if err := cmd.Wait(); err != nil {
					t.Errorf("round %d, process %d: %v: %s", round, i, err, outputs[i].String())
				}
			}
			wantVersion(t, migrator(t, d), migrations.Latest(k.Dialect))
			wantRefs(t, d, nil)
		}
	})
}

// A step that fails rolls back the steps before it too, and leaves no dirty mark.
func TestAFailedMigrationLeavesNothingBehind(t *testing.T) {
	obstacles := map[migrations.Dialect]string{
		migrations.Postgres: `CREATE TYPE token_marks AS ENUM ()`, // a table's row type has its name
		migrations.SQLite:   `CREATE TABLE other (x); CREATE INDEX token_mark ON other (x)`,
	}
	each(t, func(t *testing.T, k dbtest.Kind) {
		obstacle, ok := obstacles[k.Dialect]
		if !ok {
			return // Spanner has no transactions for schemas: its steps can be repeated instead
		}
		d := k.Empty(t)
		d.Exec(t, obstacle)
		m := migrator(t, d)
		err := m.Up(t.Context())
		wantError(t, err, "migrate to version 2: ")
		wantVersion(t, m, 0)
		d.Exec(t, `CREATE TABLE refs (x int)`) // it does not exist
	})
}

// A step needs a table for itself for a moment. While it waited for the table, the
// requests queued behind it would wait too, heartbeats among them.
func TestAStepDoesNotWaitLongForATable(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	m := migrator(t, d)
	must(t, m.To(t.Context(), 1))
	c, err := pgx.Connect(t.Context(), d.URL())
	must(t, err)
	defer c.Close(context.WithoutCancel(t.Context()))
	tx, err := c.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM locks`)
	must(t, err)

	wantError(t, m.Up(t.Context()), "another transaction has locked a table")
	wantVersion(t, m, 1)
	must(t, tx.Rollback(t.Context()))
	must(t, m.Up(t.Context()))
	wantVersion(t, m, migrations.Latest(migrations.Postgres))
}

func TestMigrationsWorkThroughATransactionPooler(t *testing.T) {
	t.Parallel()
	through := dbtest.PgBouncer(t, dbtest.PostgresEmpty(t))
	m, err := schema.Open(t.Context(), through)
	must(t, err)
	defer m.Close()
	must(t, m.Up(t.Context()))
	must(t, m.Down(t.Context(), 1))
	must(t, m.Up(t.Context()))
	wantVersion(t, m, migrations.Latest(migrations.Postgres))
}

func TestASchemaNewerThanTheProgramIsLeftAlone(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		setVersion(t, d, 99, false)
		m := migrator(t, d)
		for name, move := range map[string]func() error{
			"up":   func() error { return m.Up(t.Context()) },
			"down": func() error { return m.Down(t.Context(), 1) },
			"to":   func() error { return m.To(t.Context(), 1) },
		} {
			t.Run(name, func(t *testing.T) { wantError(t, move(), "upgrade the program") })
		}
		wantVersion(t, m, 99)
		if _, err := drivers.Open(t.Context(), d.URL()); err == nil {
			t.Error("a driver opened it")
		}
	})
}

func TestADirtySchemaIsForcedAndRepeated(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		setVersion(t, d, 2, true)
		m := migrator(t, d)
		if version, dirty, err := m.Version(t.Context()); err != nil || !dirty || version != 2 {
			t.Errorf("version %d, dirty %t, %v", version, dirty, err)
		}
		// On Spanner Up would first wait for a process that might be running.
		if k.Dialect != migrations.Spanner {
			wantError(t, m.Up(t.Context()), "refdbctl migrate force")
		}
		if k.Dialect == migrations.SQLite {
			// SQLite has no IF NOT EXISTS for columns. It needs none: a step is done or not.
			must(t, m.Force(t.Context(), migrations.Latest(k.Dialect)))
		} else {
			must(t, m.Force(t.Context(), 1))
		}
		must(t, m.Up(t.Context()))
		wantVersion(t, m, migrations.Latest(k.Dialect))
		wantRefs(t, d, nil)
	})
}

func TestAnEndedContextStopsBeforeTheFirstStep(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		m := migrator(t, k.Empty(t))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Up(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("up: %v", err)
		}
		wantVersion(t, m, 0)
	})
}

func setVersion(t *testing.T, d *dbtest.Database, version int, dirty bool) {
	t.Helper()
	d.Exec(t, "DELETE FROM "+migrations.Table+" WHERE true")
	d.Exec(t, fmt.Sprintf("INSERT INTO %s (version, dirty) VALUES (%d, %t)", migrations.Table, version, dirty))
}

func wantError(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("error %v, want one with %q", err, part)
	}
}
