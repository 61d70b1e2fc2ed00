package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

const secret = "s3cr3t"

// openers calls the functions that take a URL, and returns their errors.
func openers(ctx context.Context, url string) map[string]error {
	d, err := postgres.Open(ctx, url)
	if err == nil {
		d.Close()
	}
	m, merr := postgres.Migrator(ctx, url)
	if merr == nil {
		m.Close()
	}
	return map[string]error{"Open": err, "Migrator": merr}
}

// wantLine checks that err is one line that contains says but not the password.
func wantLine(t *testing.T, err error, says string) {
	t.Helper()
	switch {
	case err == nil:
		t.Error("no error")
	case strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), says):
		t.Errorf("%q is not one line that says %q", err, says)
	case strings.Contains(fmt.Sprintf("%v %+v %q", err, err, err), secret):
		t.Errorf("%q shows the password", err)
	}
}

func TestAnInvalidURLIsRefusedWithoutShowingThePassword(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"":                                    "postgres://",
		"host=x password=" + secret:           "postgres://",
		"sqlite:x":                            "postgres://",
		"postgresql+x://u:" + secret:          "postgres://",
		"postgres://u:" + secret + "%":        "expected",
		"postgres://u:" + secret + "@[::1/db": "expected",
		"postgres://u:" + secret + "@host:port/db":                           "expected",
		"postgres://u:a/" + secret + "@host/db":                              "expected",
		"postgres://u:" + secret + "@host/db?sslmode=maybe":                  "sslmode",
		"postgres://u:" + secret + "@host/db?pool_max_conns=0":               "pool_max_conns",
		"postgres://u:" + secret + "@host/db?default_query_exec_mode=x":      "default_query_exec_mode",
		"postgres://u:" + secret + "@host/db?target_session_attrs=x":         "target_session_attrs",
		"postgres://u@host/db?password=" + secret + "&connect_timeout=x":     "connect_timeout",
		"postgres://u:1?pool_max_conns=" + secret + "@host/db?sslmode=maybe": "sslmode",
		// Everything after the first @ would be taken for the host, or the database.
		"postgres://u:p@" + secret + "@host/db":                                               "%40",
		"postgres://u:p@" + secret + "@host,other/db":                                         "%40",
		"postgres://u:p@" + secret + "/x@host/db":                                             "%40",
		"postgres://u:12/" + secret + "@host/db":                                              "%40",
		"postgres://u:p@other," + secret + "@host/db":                                         "%40",
		"postgres:///db?host=p%40" + secret:                                                   "%40",
		"postgres://u:" + secret + "@host/db?default_transaction_isolation=" + "serializable": "read committed",
	} {
		for name, err := range openers(t.Context(), url) {
			t.Run(name+" "+strings.ReplaceAll(url, "/", "|"), func(t *testing.T) {
				wantLine(t, err, says)
				if !errors.Is(err, driver.ErrInvalid) {
					t.Errorf("got %v, want ErrInvalid", err)
				}
			})
		}
	}
}

func TestARefusedLoginIsReportedInOneLine(t *testing.T) {
	for _, row := range []struct {
		code  string
		class driver.Class
		says  string
	}{
		{"28P01", driver.Permanent, "refused the user or the password"},
		{"28000", driver.Permanent, "check pg_hba.conf"},
		{"3D000", driver.Permanent, "no such database"},
		{"53300", driver.Retryable, "database unavailable"},
		{"57P03", driver.Retryable, "database unavailable"},
		{"", driver.Retryable, "database unavailable"}, // the server closes the connection
	} {
		t.Run("code "+row.code, func(t *testing.T) {
			t.Parallel()
			var answer pgproto3.BackendMessage
			if row.code != "" {
				answer = &pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: row.code, Message: "no"}
			}
			address, _ := fakeServer(t, answer)
			url := "postgres://u:" + secret + "@" + address + "/db?sslmode=disable"
			for name, err := range openers(t.Context(), url) {
				wantLine(t, err, row.says)
				if driver.ClassOf(err) != row.class {
					t.Errorf("%s: %v is %s, want %s", name, err, driver.ClassOf(err), row.class)
				}
			}
		})
	}
}

func TestAMissingServerIsUnavailable(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent := ln.Addr().String() // accepts connections, but sends nothing
	defer ln.Close()
	gone := fakeGone(t)
	for name, url := range map[string]string{
		"refused":                "postgres://u:" + secret + "@" + gone + "/db",
		"several, all refused":   "postgres://u:" + secret + "@" + gone + "," + gone + "/db?target_session_attrs=read-write",
		"no such name":           "postgres://u:" + secret + "@no-such-host.invalid/db",
		"no socket":              "postgres://u:" + secret + "@/db?host=/no/such/directory",
		"silent, within timeout": "postgres://u:" + secret + "@" + silent + "/db?sslmode=disable&connect_timeout=1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, err := range openers(t.Context(), url) {
				wantLine(t, err, "database unavailable")
				if !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	t.Run("silent, within the context", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		for _, err := range openers(ctx, "postgres://u:"+secret+"@"+silent+"/db?sslmode=disable") {
			wantLine(t, err, "open the database")
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// fakeGone returns an address on which no server listens.
func fakeGone(t *testing.T) string {
	t.Helper()
	port, err := testserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func TestADatabaseThatCannotKeepTheGuaranteesIsRefused(t *testing.T) {
	direct := func(_ testing.TB, address string) string { return address }
	for _, row := range []struct {
		name, setting string
		through       func(tb testing.TB, address string) string
		says          string
	}{
		// Without a pooler, the connections set their isolation level themselves.
		{"stricter isolation", `default_transaction_isolation = 'serializable'`, dbtest.PgBouncer, "read committed"},
		{"read-only", `default_transaction_read_only = on`, direct, "reset default_transaction_read_only"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			setDefault(t, db, row.setting)
			d, err := postgres.Open(t.Context(), row.through(t, db.URL()))
			if err == nil {
				d.Close()
			}
			wantLine(t, err, row.says)
		})
	}
}

// hide replaces one of the server's functions with one that does nothing.
func hide(t *testing.T, db *dbtest.Database, function string) {
	t.Helper()
	returns, value := "void", ""
	if strings.HasPrefix(function, "pg_try") {
		returns, value = "boolean", "true"
	}
	db.Exec(t, fmt.Sprintf(`ALTER FUNCTION pg_catalog.%[1]s(bigint) RENAME TO hidden_%[1]s`, function))
	db.Exec(t, fmt.Sprintf(`CREATE FUNCTION pg_catalog.%s(bigint) RETURNS %s LANGUAGE sql AS 'SELECT %s'`, function, returns, value))
}

// setDefault sets a default for later sessions of the database.
func setDefault(t *testing.T, db *dbtest.Database, setting string) {
	t.Helper()
	c := session(t, db.URL())
	name := query[string](t, c, `SELECT quote_ident(current_database())`)[0]
	exec(t, c, `ALTER DATABASE `+name+` SET `+setting)
}

// A server may report an advisory lock without taking it, as CockroachDB does.
func TestAServerThatKeepsNoAdvisoryLocksIsRefused(t *testing.T) {
	t.Parallel()
	for _, function := range []string{
		"pg_advisory_xact_lock", "pg_advisory_xact_lock_shared", "pg_try_advisory_xact_lock", "pg_try_advisory_xact_lock_shared",
	} {
		t.Run(function, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			hide(t, db, function)
			for way, url := range map[string]string{"directly": db.URL(), "through PgBouncer": dbtest.PgBouncer(t, db.URL())} {
				for name, err := range openers(t.Context(), url) {
					wantLine(t, err, "advisory locks")
					if driver.ClassOf(err) != driver.Permanent {
						t.Errorf("%s, %s: %v is %s", name, way, err, driver.ClassOf(err))
					}
				}
			}
		})
	}
}

// isolation returns the isolation level of the transactions of a driver's requests.
func isolation(t *testing.T, d *postgres.Driver) (level string) {
	t.Helper()
	err := d.RoundTrip(t.Context(), func(rows pgx.Rows) error {
		rows.Next()
		return rows.Scan(&level)
	}, `SELECT current_setting('transaction_isolation')`)
	if err != nil {
		t.Fatal(err)
	}
	return level
}

// The setting is the whole server's: no other test may run meanwhile.
func TestTheServersDefaultIsolationMayChangeUnderRunningConnections(t *testing.T) {
	db := dbtest.Postgres(t)
	c := session(t, db.URL())
	d := onlyOne(t, db.URL())
	for _, d := range []*postgres.Driver{d, onlyOne(t, with(t, db.URL(), "options", "-cdefault_transaction_isolation=serializable"))} {
		if level := isolation(t, d); level != "read committed" {
			t.Fatal(level)
		}
	}
	set := func(what, want string) {
		exec(t, c, what)
		exec(t, c, `SELECT pg_reload_conf()`)
		eventually(t, "the server has read its configuration", func() bool {
			return query[string](t, c, `SELECT current_setting('default_transaction_isolation')`)[0] == want
		})
	}
	defer set(`ALTER SYSTEM RESET default_transaction_isolation`, "read committed")
	set(`ALTER SYSTEM SET default_transaction_isolation = 'repeatable read'`, "repeatable read")
	for range 20 {
		if level := isolation(t, d); level != "read committed" {
			t.Fatalf("a request runs under %s", level)
		}
	}
	a := acquire(t, d, mainRef)
	release(t, d, a, mainRef)
}

func TestNewConnectionsAreCheckedToo(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	c := session(t, db.URL())
	setDefault(t, db, `default_transaction_isolation = 'repeatable read'`)
	terminate(t, c, `true`)
	if level := isolation(t, d); level != "read committed" {
		t.Errorf("a new connection's requests run under %s", level)
	}
	hide(t, db, "pg_advisory_xact_lock")
	terminate(t, c, `true`)
	eventually(t, "the connection has ended", func() bool {
		return query[int64](t, c, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'refdb' AND datname = current_database()`)[0] == 0
	})
	err := try(t.Context(), d, update(mainRef))
	wantLine(t, err, "advisory locks")
	if driver.ClassOf(err) != driver.Permanent {
		t.Errorf("%v is %s", err, driver.ClassOf(err))
	}
}

func TestAnUnsupportedSchemasErrorNamesTheCommand(t *testing.T) {
	for _, row := range []struct{ name, change, says string }{
		{"no table", `DROP TABLE refdb_schema`, "refdbctl migrate up"},
		{"no row", `DELETE FROM refdb_schema`, "refdbctl migrate up"},
		{"nothing migrated", `UPDATE refdb_schema SET version = -1`, "refdbctl migrate up"},
		{"older", `UPDATE refdb_schema SET version = 1`, "refdbctl migrate up"},
		{"newer", `UPDATE refdb_schema SET version = 99, oldest = 98`, "upgrade the program"},
		{"interrupted", `UPDATE refdb_schema SET dirty = true`, "interrupted"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			db.Exec(t, row.change)
			d, err := postgres.Open(t.Context(), db.URL())
			if err == nil {
				d.Close()
			}
			wantLine(t, err, row.says)
			if !errors.Is(err, driver.ErrSchema) {
				t.Errorf("got %v, want ErrSchema", err)
			}
		})
	}
}

// Programs are upgraded before the schema, and may meet a newer schema that they support.
func TestACompatibleSchemaVersionIsServed(t *testing.T) {
	for name, change := range map[string]string{
		"the one before": `UPDATE refdb_schema SET version = 11`,
		"a newer one":    `UPDATE refdb_schema SET version = 99`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			db.Exec(t, change)
			if _, err := open(t, db.URL()).Acquire(t.Context(), request(mainRef)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSessionsCarryTheProgramsNameUnlessTheURLGivesOne(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	c := session(t, db.URL())
	for url, want := range map[string]string{db.URL(): "refdb", with(t, db.URL(), "application_name", "mine"): "mine"} {
		d := open(t, url)
		if _, err := d.Now(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := query[int64](t, c, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()`, want)[0]; n < 1 {
			t.Errorf("%d sessions are named %s", n, want)
		}
		d.Close()
	}
}

func TestTheTestServerIsHealthyExceptForItsSpeed(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	name := query[string](t, session(t, db.URL()), `SELECT current_database()::text`)[0]
	all, err := open(t, db.URL()).Diagnose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if strings.Contains(d.Detail, "\n") || d.Detail == "" {
			t.Errorf("%q is not one line", d.Detail)
		}
		if !d.OK && d.Name == "history" && !strings.Contains(d.Detail, " in database "+name+" ") {
			continue // a transaction of another test
		}
		// The tests may run on a server that need not survive a crash.
		if !d.OK && d.Name != "fsync" && d.Name != "full_page_writes" && d.Name != "synchronous_commit" && d.Name != "connections" {
			t.Errorf("%s: %s", d.Name, d.Detail)
		}
	}
}
