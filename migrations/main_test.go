package migrations_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// childVariable makes the test binary a process that migrates one database:
// its value is a dialect and an address.
const childVariable = "MIGRATIONS_TEST_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childVariable); job != "" {
		if err := child(job); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dbtest.Main(m)
}

func child(job string) error {
	dialect, url, _ := strings.Cut(job, " ")
	k, err := find(migrations.Dialect(dialect))
	if err != nil {
		return err
	}
	m, err := k.Migrator(context.Background(), url)
	if err != nil {
		return err
	}
	defer m.Close()
	return m.Up(context.Background())
}

func find(d migrations.Dialect) (dbtest.Kind, error) {
	for _, k := range dbtest.All() {
		if k.Dialect == d {
			return k, nil
		}
	}
	return dbtest.Kind{}, fmt.Errorf("no dialect %q", d)
}

func kind(t *testing.T, d migrations.Dialect) dbtest.Kind {
	t.Helper()
	k, err := find(d)
	must(t, err)
	return k
}

// inProcess returns a command that migrates the database in a process of its own.
func inProcess(t *testing.T, d *dbtest.Database) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s", childVariable, d.Kind().Dialect, d.URL()))
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
	m, err := d.Kind().Migrator(t.Context(), d.URL())
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
