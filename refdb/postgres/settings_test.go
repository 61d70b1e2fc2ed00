package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/internal/testserver"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/drivers/schema"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A leftover is a setting that another client has left behind.
type leftover struct {
	name, value string
	right       string // the value that the session began with
	refused     bool   // no transaction can correct it

	changesNothing bool
}

// leftovers are settings that the promises depend on.
var leftovers = []leftover{
	{"client_encoding", "LATIN1", "UTF8", true, false},
	{"session_replication_role", "replica", "origin", true, false},
	{"default_transaction_isolation", "serializable", "read committed", true, false},
	{"search_path", "staging", `"$user", public`, false, false},
	{"search_path", "", `"$user", public`, false, false},
	{"search_path", "shadow, pg_catalog", `"$user", public`, false, false},
	{"client_min_messages", "error", "notice", false, false},
	{"synchronous_commit", "off", "on", false, false},
	{"row_security", "on", "on", false, false},
	{"refdb.recovery", "on", "", false, false},
	{"lock_timeout", "0", "0", false, false},
}

// harmless are settings that have no effect.
var harmless = []leftover{
	{"datestyle", "German", "ISO, MDY", false, true},
	{"intervalstyle", "iso_8601", "postgres", false, true},
	{"timezone", "Asia/Kolkata", "UTC", false, true},
	{"bytea_output", "escape", "hex", false, true},
	{"extra_float_digits", "-15", "1", false, true},
	{"standard_conforming_strings", "off", "on", false, true},
	{"backslash_quote", "off", "safe_encoding", false, true},
	{"quote_all_identifiers", "on", "off", false, true},
	{"transform_null_equals", "on", "off", false, true},
	{"array_nulls", "off", "on", false, true},
	{"default_transaction_deferrable", "on", "off", false, true},
	{"check_function_bodies", "off", "on", false, true},
	{"enable_indexscan", "off", "on", false, true},
	{"enable_nestloop", "off", "on", false, true},
	{"plan_cache_mode", "force_custom_plan", "auto", false, true},
	{"refdb.op", "another", "", false, true},
	{"refdb.got", "A", "", false, true},
	{"refdb.unheld", "another", "", false, true},
}

// A reader is a request that only reads. Its result stays the same until something is written.
type reader struct {
	name string
	read func() (any, error)
}

func readers(t *testing.T, d *postgres.Driver) []reader {
	ctx := t.Context()
	return []reader{
		{"get", func() (any, error) { return d.Get(ctx, "kept", []string{mainRef}) }},
		{"list", func() (any, error) { return d.List(ctx, driver.RefQuery{Project: "kept", Limit: 10}) }},
		{"states", func() (any, error) { return d.States(ctx, "kept", []string{mainRef}) }},
		{"projects", func() (any, error) {
			return d.Projects(ctx, driver.ProjectQuery{Limit: 10})
		}},
		{"intents", func() (any, error) {
			page, err := d.Intents(ctx, driver.IntentQuery{IntentFilter: driver.IntentFilter{Project: "kept"}, Limit: 10})
			return len(page.Intents), err
		}},
		{"locks", func() (any, error) {
			page, err := d.Locks(ctx, driver.LockQuery{LockFilter: driver.LockFilter{Project: "kept"}, Limit: 10})
			return len(page.Locks), err
		}},
		{"log", func() (any, error) {
			page, err := d.Log(ctx, driver.LogRequest{Project: "kept", Ref: mainRef, Limit: 10})
			return page.Changes, err
		}},
		{"admission", func() (any, error) { return d.Admission(ctx) }},
		{"the schema", func() (any, error) { return nil, d.CheckSchema(ctx) }},
		{"look", func() (any, error) { return d.Look(ctx, "", nil) }},
	}
}

// prepareForLeftovers creates a staging schema with the tables of another database, a schema with
// variants of the server's functions and operators, and a trigger that fails if a transaction that
// writes has a wrong setting.
func prepareForLeftovers(t *testing.T, url string) {
	t.Helper()
	c := session(t, url)
	for _, sql := range []string{
		`CREATE SCHEMA staging`, `CREATE SCHEMA shadow`,
		`CREATE FUNCTION shadow.current_setting(text) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'`,
		`CREATE FUNCTION shadow.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'`,
		`CREATE FUNCTION shadow.pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE sql AS 'SELECT'`,
		`CREATE FUNCTION shadow.pg_advisory_xact_lock_shared(bigint) RETURNS void LANGUAGE sql AS 'SELECT'`,
		`CREATE FUNCTION shadow.pg_try_advisory_xact_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
		`CREATE FUNCTION shadow.pg_try_advisory_xact_lock_shared(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
		`CREATE FUNCTION shadow.wrong(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
		`CREATE OPERATOR shadow.= (LEFTARG = text, RIGHTARG = text, FUNCTION = shadow.wrong)`,
		`CREATE FUNCTION public.watch() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
		BEGIN
			IF current_setting('client_min_messages') = 'error' OR current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
				OR current_setting('row_security') <> 'off' OR current_setting('refdb.recovery', true) = 'on' OR current_setting('client_encoding') <> 'UTF8'
				OR current_setting('session_replication_role') <> 'origin' OR current_setting('transaction_isolation') <> 'read committed'
				OR current_setting('lock_timeout') = '0' THEN
				RAISE EXCEPTION 'a setting is wrong' USING ERRCODE = '40000';
			END IF;
			RETURN NULL;
		END $$`,
	} {
		exec(t, c, sql)
	}
	for _, table := range []string{"refs", "locks", "intents"} {
		exec(t, c, `CREATE CONSTRAINT TRIGGER watch AFTER INSERT OR UPDATE OR DELETE ON `+table+`
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION watch()`)
	}
	staging := with(t, url, "search_path", "staging")
	if err := schema.Up(t.Context(), staging); err != nil {
		t.Fatal(err)
	}
	for at, v := range map[string]driver.Value{url: v1, staging: v2} {
		r := update(mainRef)
		r.Project, r.Updates = "kept", moves("", v, mainRef)
		if err := try(t.Context(), open(t, at), r); err != nil {
			t.Fatal(err)
		}
	}
}

// nothingStaged fails if the staging schema has more than the one ref that was put there.
func nothingStaged(t *testing.T, url string) {
	t.Helper()
	const rows = `SELECT (SELECT count(*) FROM staging.refs) + (SELECT count(*) FROM staging.locks) + (SELECT count(*) FROM staging.intents)`
	if n := query[int64](t, session(t, url), rows)[0]; n != 1 {
		t.Errorf("%d rows were written into the staging schema", n-1)
	}
}

// wantNamed fails unless err is permanent and names the wrong setting, its value, and its right
// value.
func wantNamed(t *testing.T, what string, err error, l leftover) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), l.name+" is "+l.value+", and has to be "+l.right) || driver.ClassOf(err) != driver.Permanent {
		t.Errorf("%s, %s: %s, %v", what, l.name, driver.ClassOf(err), err)
	}
}

// leaver returns a function that executes a statement in the session that the driver's next request
// gets: on the driver's own connection or, through a pooler, as another client.
func leaver(t *testing.T, path, address string, d *postgres.Driver) func(sql string) {
	t.Helper()
	if path == "directly" {
		return func(sql string) {
			t.Helper()
			if err := d.Leave(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := session(t, with(t, address, "default_query_exec_mode", "simple_protocol"))
	return func(sql string) {
		t.Helper()
		exec(t, c, sql)
	}
}

// Another client of a pooler leaves settings and temporary tables behind. A direct connection has
// no earlier client.
func TestALeftoverSettingIsCorrectedOrNamed(t *testing.T) {
	t.Parallel()
	for path, through := range paths {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && path == "directly" {
				t.Skip("left out by -short: the path on which no other client leaves a setting behind; make test-all runs it")
			}
			db := dbtest.Postgres(t)
			prepareForLeftovers(t, db.URL())
			pooled := path != "directly"
			address := through(t, db)
			d := open(t, with(t, address, "pool_max_conns", "1"))
			leave := leaver(t, path, address, d)
			all := writers(t, d)
			set := func(name, value string) {
				t.Helper()
				leave(fmt.Sprintf(`SELECT pg_catalog.set_config('%s', '%s', false)`, name, value))
			}
			var want []any
			for _, r := range readers(t, d) {
				answer, err := r.read()
				if err != nil {
					t.Fatalf("%s: %v", r.name, err)
				}
				want = append(want, answer)
			}
			for _, l := range append(append([]leftover(nil), leftovers...), harmless...) {
				if !pooled && l.name == "lock_timeout" {
					continue // a direct connection begins with this setting
				}
				if !pooled && l.name == "search_path" && l.value != "staging" {
					continue // a direct connection begins with this setting, and prepares statements outside transactions, which needs the tables
				}
				if pooled && strings.HasPrefix(l.name, "enable_") {
					continue // here such plans are compiled each time
				}
				refused := l.refused && !(pooled && l.name == "client_encoding") // PgBouncer sets it again for each client
				set(l.name, l.value)
				if pooled && l.name == "search_path" { // a program that opens the database now finds it, too
					another, err := postgres.Open(t.Context(), address)
					if err != nil {
						t.Errorf("open, %s = %q: %v", l.name, l.value, err)
					} else if found, err := another.Get(t.Context(), "kept", []string{mainRef}); err != nil || len(found) != 1 || found[0].Value != v1 {
						t.Errorf("opened, %s = %q: %v, %v", l.name, l.value, found, err)
					}
					if err == nil {
						another.Close()
					}
				}
				for i, r := range readers(t, d) {
					set(l.name, l.value)
					answer, err := r.read()
					switch {
					case refused && r.name == "look" && l.name == "default_transaction_isolation": // its transaction names the level
					case refused:
						wantNamed(t, r.name, err, l)
					case err != nil || !reflect.DeepEqual(answer, want[i]):
						t.Errorf("%s, %s = %q: %v, %v", r.name, l.name, l.value, answer, err)
					}
				}
				set(l.name, l.right)
				for _, w := range all {
					if strings.HasSuffix(w.name, "300") && w.name != "acquire 300" {
						continue // as with two refs
					}
					if l.changesNothing && !strings.HasSuffix(w.name, " 1") {
						continue
					}
					write := w.arrange()
					set(l.name, l.value)
					err := write()
					if !refused {
						if err != nil {
							t.Errorf("%s, %s = %q: %v", w.name, l.name, l.value, err)
						}
						set(l.name, l.right)
						continue
					}
					wantNamed(t, w.name, err, l)
					set(l.name, l.right)
					if err := write(); err != nil {
						t.Errorf("%s, then with %s = %s: %v", w.name, l.name, l.right, err)
					}
				}
			}
			nothingStaged(t, db.URL())
		})
	}
}

// A temporary table hides the table of the same name, unless the search_path names pg_temp.
func TestATemporaryTableHidesNothing(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	c := session(t, db.URL())
	url := dbtest.PgBouncer(t, db.URL())
	d := open(t, with(t, url, "pool_max_conns", "1"))
	tables := query[string](t, c, `SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`)
	for _, table := range tables {
		if err := d.Leave(t.Context(), `CREATE TEMPORARY TABLE `+table+` (LIKE public.`+table+`)`); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range writers(t, d) {
		if strings.HasSuffix(w.name, "300") {
			continue
		}
		if err := w.arrange()(); err != nil {
			t.Errorf("%s: %v", w.name, err)
		}
	}
	another := open(t, with(t, url, "pool_max_conns", "1"))
	release(t, another, acquire(t, another, mainRef), mainRef)
	if err := try(t.Context(), another, update(mainRef)); err != nil {
		t.Error(err)
	}
	for _, table := range tables {
		err := d.RoundTrip(t.Context(), func(rows pgx.Rows) error {
			for rows.Next() {
				t.Errorf("a temporary table holds rows: %s", table)
			}
			return rows.Err()
		}, `SELECT 1 FROM pg_temp.`+table+` LIMIT 1`)
		if err != nil {
			t.Error(err)
		}
	}
	if n := query[int64](t, c, `SELECT count(*) FROM history`)[0]; n == 0 {
		t.Error("the history has no change")
	}
}

// repairs matches the statements that an error recommends.
var repairs = regexp.MustCompile(`ALTER [A-Z ]+[^;,]* RESET [a-z_.]+|SELECT pg_reload_conf\(\)`)

// An administrator sets defaults: of the server, a database, a role, or a role in a database. A
// setting that transactions can't correct is named, and the error's advice works.
func TestADefaultIsCorrectedOrNamedWithItsRemedy(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: defaults of a server of its own; make test-all runs it")
	}
	server, err := testserver.StartPostgres(t.Context(), testserver.PostgresOptions{Durability: testserver.NoFsync})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	admin := session(t, server.URL("postgres"))
	exec(t, admin, `CREATE ROLE "a site" LOGIN SUPERUSER`)
	exec(t, admin, `CREATE DATABASE "a database"`)
	u, err := url.Parse(server.URL("a database"))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	u.User = url.User("a site")
	if q.Has("user") {
		q.Set("user", "a site")
	}
	u.RawQuery = q.Encode()
	direct := u.String()
	if err := schema.Up(t.Context(), direct); err != nil {
		t.Fatal(err)
	}
	prepareForLeftovers(t, direct)
	endSessions := func() {
		t.Helper()
		exec(t, admin, `SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'a site'`)
	}
	levels := map[string]string{
		"server": "ALTER SYSTEM", "role": `ALTER ROLE "a site"`, "all roles": "ALTER ROLE ALL",
		"database": `ALTER DATABASE "a database"`, "role in the database": `ALTER ROLE "a site" IN DATABASE "a database"`,
	}
	for path, address := range map[string]string{"directly": direct, "through PgBouncer": dbtest.PgBouncer(t, direct)} {
		d := open(t, address)
		for level, alter := range levels {
			for _, l := range leftovers {
				if level == "server" && l.name == "refdb.recovery" {
					continue // the server has no such parameter
				}
				refused := l.refused && (l.name == "session_replication_role" || path != "directly" && l.name != "client_encoding")
				what := fmt.Sprintf("%s, %s, %s = %q", path, level, l.name, l.value)
				value := `'` + l.value + `'`
				if l.name == "search_path" {
					value = strings.ReplaceAll(value, ", ", "', '")
				}
				exec(t, admin, alter+` SET `+l.name+` = `+value)
				exec(t, admin, `SELECT pg_reload_conf()`)
				endSessions()
				err := useAll(t, d)
				if !refused {
					if err != nil {
						t.Errorf("%s: %v", what, err)
					}
					exec(t, admin, alter+` RESET `+l.name)
					continue
				}
				wantNamed(t, what, err, l)
				if err == nil {
					exec(t, admin, alter+` RESET `+l.name)
					continue
				}
				if _, err := postgres.Open(t.Context(), address); err == nil {
					t.Errorf("%s: opened", what)
				} else {
					wantNamed(t, what+", open", err, l)
				}
				for _, sql := range repairs.FindAllString(err.Error(), -1) {
					exec(t, admin, sql)
				}
				if path != "directly" {
					endSessions() // RECONNECT
				}
				eventually(t, what+" is repaired", func() bool {
					err = useAll(t, d)
					return err == nil || level != "server" // the server reloads its configuration some time later
				})
				if err != nil {
					t.Errorf("%s, after its repair: %v", what, err)
				}
			}
		}
	}
	exec(t, admin, `SELECT pg_reload_conf()`)
	nothingStaged(t, direct)
}

// useAll writes, reads, locks and prepares.
func useAll(t *testing.T, d *postgres.Driver) error {
	ctx := t.Context()
	r := update(fmt.Sprintf("refs/heads/%d", time.Now().UnixNano()))
	refs := refNames(r.Updates)
	var failures []error
	failures = append(failures, try(ctx, d, r))
	found, err := d.Get(ctx, "kept", []string{mainRef})
	if err == nil && (len(found) != 1 || found[0].Value != v1) {
		err = fmt.Errorf("got %v", found)
	}
	failures = append(failures, err)
	a, err := d.Acquire(ctx, request(refs...))
	if err == nil {
		_, err = d.Release(ctx, ending(a.Token, refs...))
	}
	failures = append(failures, err)
	p, err := d.Prepare(ctx, intention(v1, v2, refs...))
	if err == nil {
		err = d.Finish(ctx, dropped(p.Token, refs...))
	}
	failures = append(failures, err)
	refused := 0
	for _, err := range failures {
		if err != nil {
			refused++
		}
	}
	if refused != 0 && refused != len(failures) {
		t.Errorf("some requests were refused, others not: %v", failures)
	}
	return errors.Join(failures...)
}

// Migrations use the schemas in which the tables were found, under the same settings.
func TestAMigrationReliesOnNoSettingOfItsSession(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	db.Exec(t, `CREATE SCHEMA staging`)
	if err := schema.Up(t.Context(), with(t, db.URL(), "search_path", "staging")); err != nil {
		t.Fatal(err)
	}
	url := dbtest.PgBouncer(t, db.URL())
	c := session(t, with(t, url, "default_query_exec_mode", "simple_protocol"))
	m, err := postgres.Migrator(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	latest, _, err := m.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, c, `SET search_path = staging`)
	exec(t, c, `CREATE TEMPORARY TABLE refdb_schema (LIKE public.refdb_schema)`)
	if version, _, err := m.Version(t.Context()); err != nil || version != latest {
		t.Errorf("version %d, %v", version, err)
	}
	if err := m.Down(t.Context(), 1); err != nil {
		t.Error(err)
	}
	c2 := session(t, db.URL())
	for schema, want := range map[string]int64{"public": int64(latest) - 1, "staging": int64(latest)} {
		if v := query[int64](t, c2, `SELECT version FROM `+schema+`.refdb_schema`)[0]; v != want {
			t.Errorf("%s has version %d, want %d", schema, v, want)
		}
	}
	again, err := postgres.Migrator(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if version, _, err := again.Version(t.Context()); err != nil || version != latest-1 {
		t.Errorf("opened now: version %d, %v", version, err)
	}
	exec(t, c, `SET session_replication_role = replica`)
	err = m.Up(t.Context())
	wantNamed(t, "migrate up", err, leftover{"session_replication_role", "replica", "origin", true, false})
	_, err = postgres.Migrator(t.Context(), url)
	wantNamed(t, "open", err, leftover{"session_replication_role", "replica", "origin", true, false})
	exec(t, c, `SET session_replication_role = origin`)
	if err := m.Up(t.Context()); err != nil {
		t.Error(err)
	}
}

// A role whose rows are filtered by policies gets an error: rows that it can't see are not taken
// for missing rows.
func TestRowsHiddenByAPolicyAreNotTreatedAsAbsent(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	if err := try(t.Context(), open(t, db.URL()), update(mainRef)); err != nil {
		t.Fatal(err)
	}
	c := session(t, db.URL())
	name := query[string](t, c, `SELECT 'filtered_' || current_database()`)[0]
	for _, sql := range []string{
		`CREATE ROLE ` + name + ` LOGIN PASSWORD 'secret'`, `GRANT SELECT ON ALL TABLES IN SCHEMA public TO ` + name,
	} {
		exec(t, c, sql)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		c, err := pgx.Connect(ctx, db.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(ctx)
		for _, sql := range []string{`DROP OWNED BY ` + name, `DROP ROLE ` + name} {
			if _, err := c.Exec(ctx, sql); err != nil {
				t.Error(err)
			}
		}
	})
	d := open(t, as(t, db.URL(), name, "secret"))
	exec(t, c, `ALTER TABLE refs ENABLE ROW LEVEL SECURITY`)
	if found, err := d.Get(t.Context(), project, []string{mainRef}); err == nil || driver.ClassOf(err) != driver.Permanent {
		t.Errorf("got %v, %v", found, err)
	}
}

// as returns an address with another user.
func as(tb testing.TB, address, user, password string) string {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}
