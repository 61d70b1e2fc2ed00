package spanner_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/spanner"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestAnInvalidDatabaseNameIsRefusedInOneLine(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"",
		"spanner://",
		"projects/p/instances/i/databases/d",
		"postgres://user:secret@host/db",
		"spanner://projects/p/instances/i",
		"spanner://projects/p/instances//databases/d",
		"spanner://projects/p/instances/i/databases/d/",
		"spanner://projects/p/instances/i/databases/d?x-clean-statements=true",
		"spanner://user:secret@projects/p/instances/i/databases/d",
		"spanner://projects/p/instances/i/databases/d\n",
	} {
		_, err := spanner.Open(t.Context(), url)
		_, migratorErr := spanner.Migrator(t.Context(), url)
		for _, err := range []error{err, migratorErr} {
			if !errors.Is(err, driver.ErrInvalid) || strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
				t.Errorf("%q: %v", url, err)
			}
		}
	}
}

func TestSchemaIsCheckedAtOpen(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, says string
		sql        []string // statements after the first version of the schema
	}{
		{"an older schema names the command to run", "refdbctl migrate up", nil},
		{"an incomplete schema names the command to run", "refdbctl migrate force", []string{
			"UPDATE refdb_schema SET Dirty = true WHERE true"}},
		{"a newer schema asks for a newer program", "upgrade the program", []string{
			"DELETE FROM refdb_schema WHERE true", "INSERT INTO refdb_schema (Version, Dirty, Oldest) VALUES (99, false, 98)"}},
		{"a table without a version names the command to run", "refdbctl migrate up", []string{
			"DELETE FROM refdb_schema WHERE true"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db := spannerKind(t).Empty(t)
			m, err := spanner.Migrator(t.Context(), db.URL())
			must(t, err)
			defer m.Close()
			must(t, m.To(t.Context(), 1))
			for _, sql := range row.sql {
				db.Exec(t, sql)
			}
			wantNoSchema(t, db.URL(), row.says)
		})
	}
	t.Run("a missing schema names the command to run", func(t *testing.T) {
		t.Parallel()
		wantNoSchema(t, dbtest.SpannerEmpty(t), "refdbctl migrate up")
	})
}

func wantNoSchema(tb testing.TB, url, says string) {
	tb.Helper()
	_, err := spanner.Open(tb.Context(), url)
	if !errors.Is(err, driver.ErrSchema) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
		tb.Error(err)
	}
}

func TestDatabaseThatIsMissingIsPermanent(t *testing.T) {
	t.Parallel()
	url := dbtest.Spanner(t).URL()
	for _, missing := range []string{url + "x", strings.Replace(url, "/instances/", "/instances/x", 1)} {
		_, err := spanner.Open(t.Context(), missing)
		if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrSchema) || !strings.Contains(err.Error(), "no such database") {
			t.Errorf("open: %v", err)
		}
	}
}

// unreachable returns an address on which no server listens.
func unreachable(tb testing.TB) string {
	tb.Helper()
	port, err := testserver.FreePort()
	must(tb, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// silent returns an address that accepts connections and never answers.
func silent(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(tb, err)
	tb.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func TestServerThatDoesNotAnswerIsUnavailableInTime(t *testing.T) {
	t.Parallel()
	const url = "spanner://projects/p/instances/i/databases/d"
	var all []func()
	for name, address := range map[string]string{"refused": unreachable(t), "silent": silent(t)} {
		all = append(all, func() {
			_, err := spanner.Open(t.Context(), url, spanner.Emulator(address))
			if !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
		}, func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := spanner.Open(ctx, url, spanner.Emulator(address)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	race(all...)
}

func TestEmulatorOptionPrevailsOverTheEnvironment(t *testing.T) {
	db := dbtest.Spanner(t)
	d := db.Open(t).(*spanner.Driver)
	address := emulatorOf(t, d)
	t.Setenv("SPANNER_EMULATOR_HOST", unreachable(t))
	explicit, err := spanner.Open(t.Context(), db.URL(), spanner.Emulator(address))
	must(t, err)
	defer explicit.Close()
	acquire(t, explicit, "n", branch)
	m, err := spanner.Migrator(t.Context(), db.URL(), spanner.Emulator(address))
	must(t, err)
	defer m.Close()
	if _, dirty, err := m.Version(t.Context()); dirty || err != nil {
		t.Errorf("the migrator says %v, %v", dirty, err)
	}
}

// emulatorOf returns the address of the emulator that d uses.
func emulatorOf(tb testing.TB, d *spanner.Driver) string {
	tb.Helper()
	found, err := d.Diagnose(tb.Context())
	must(tb, err)
	_, after, ok := strings.Cut(found[0].Detail, "emulator at ")
	address, _, _ := strings.Cut(after, ": ")
	if !ok || found[0].Name != "server" {
		tb.Fatalf("no server in %+v", found)
	}
	return address
}

func TestDiagnosis(t *testing.T) {
	t.Parallel()
	t.Run("of an intact database finds no fault", func(t *testing.T) {
		t.Parallel()
		found, err := dbtest.Spanner(t).Open(t).(driver.Diagnoser).Diagnose(t.Context())
		must(t, err)
		var names []string
		for _, f := range found {
			names = append(names, f.Name)
			if !f.OK || f.Detail == "" {
				t.Errorf("%+v", f)
			}
		}
		if got, want := strings.Join(names, ", "), "server, database_dialect, version_retention_period, tables, allow_commit_timestamp, privileges"; got != want {
			t.Errorf("the checks are %s, want %s", got, want)
		}
	})
	t.Run("names the missing parts", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Spanner(t)
		d := db.Open(t)
		db.Exec(t, "DROP INDEX project_time")
		db.Exec(t, "ALTER TABLE refs DROP COLUMN op")
		db.Exec(t, "ALTER TABLE locks ALTER COLUMN token SET OPTIONS (allow_commit_timestamp=false)")
		db.Exec(t, "ALTER TABLE intents DROP COLUMN reason")
		found, err := d.(driver.Diagnoser).Diagnose(t.Context())
		must(t, err)
		wrong := map[string]string{
			"tables":                 "there is no column refs.op, there is no index project_time on refs (project, time), there is no column intents.reason: undo",
			"allow_commit_timestamp": "locks.token",
		}
		for _, f := range found {
			if want, bad := wrong[f.Name]; f.OK == bad || !strings.Contains(f.Detail, want) {
				t.Errorf("%+v", f)
			}
		}
	})
}

func TestCloseEndsInFlightRequestsAndLeavesNothing(t *testing.T) {
	db := dbtest.Spanner(t)
	before := goleak.IgnoreCurrent()
	w := &wire{}
	d := openWire(t, db, w)
	acquire(t, d, "n", branch)
	asked := make(chan struct{})
	w.set(func(w *wire) {
		w.sent = func(ctx context.Context, _ string, _ any) error {
			close(asked)
			<-ctx.Done()
			return ctx.Err()
		}
	})
	ended := make(chan error)
	go func() {
		_, err := d.Acquire(t.Context(), request("n2", "HEAD"))
		ended <- err
	}()
	<-asked
	closed := make(chan error)
	go func() { closed <- d.Close() }()
	if err := <-ended; !errors.Is(err, driver.ErrClosed) {
		t.Errorf("acquire: %v", err)
	}
	must(t, <-closed)
	if _, err := d.Now(t.Context()); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("now: %v", err)
	}
	if left := dbtest.Leaks(before); left != nil {
		t.Error(left)
	}
}
