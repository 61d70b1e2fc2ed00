package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// childVariable makes the test binary a process that migrates one database:
// its value is the database's URL.
const childVariable = "MIGRATIONS_TEST_CHILD"

func TestMain(m *testing.M) {
	if url := os.Getenv(childVariable); url != "" {
		if err := migrate(context.Background(), url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dbtest.Main(m)
}

// migrate is [schema.Up], as patient as a test.
func migrate(ctx context.Context, url string) error {
	m, err := schema.Open(ctx, url)
	if err != nil {
		return err
	}
	m.BePatient()
	return errors.Join(m.Up(ctx), m.Close())
}

func kind(t *testing.T, d migrations.Dialect) dbtest.Kind {
	t.Helper()
	for _, k := range dbtest.All() {
		if k.Dialect == d {
			return k
		}
	}
	t.Fatalf("no dialect %q", d)
	panic("not reached")
}

// inProcess returns a command that migrates the database in a process of its own.
func inProcess(t *testing.T, d *dbtest.Database) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), childVariable+"="+d.URL())
	return cmd
}

// each runs a test on a database of every kind.
func each(t *testing.T, f func(t *testing.T, k dbtest.Kind)) {
	t.Parallel()
	for _, k := range dbtest.All() {
		t.Run(string(k.Dialect), func(t *testing.T) {
			t.Parallel()
			f(t, k)
		})
	}
}

func migrator(t *testing.T, d *dbtest.Database) *migrations.Migrator {
	t.Helper()
	m, err := schema.Open(t.Context(), d.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close the migrator: %v", err)
		}
	})
	return m
}

func wantVersion(t *testing.T, m *migrations.Migrator, want uint) {
	t.Helper()
	got, dirty, err := m.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got != want || dirty {
		t.Errorf("version %d, dirty %t; want %d, clean", got, dirty, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
