package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

const (
	noPrivilege = "42501"
	notAdmitted = "RDB01"
	anotherSite = "RDB02"
)

// connect returns a separate connection.
func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// count returns the number that a query returns.
func count(t *testing.T, c *pgx.Conn, sql string, args ...any) (n int) {
	t.Helper()
	if err := c.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// A site's role may do what the protocol needs. A shell of the database gives it no further rights.
func TestASitesRoleCannotRewriteRecords(t *testing.T) {
	t.Parallel()
	const move = `INSERT INTO public.refs (project, ref, value) VALUES ('p', 'refs/heads/evil', repeat('b', 40))`
	recorded := `SELECT count(*) FROM public.history WHERE new = repeat('b', 40)`
	for name, c := range map[string]struct {
		restarted bool // the server is not admitted
		run       []string
		code      string // of the last statement's error
		changes   int    // in the history afterwards
	}{
		"a recovery is declared":       {true, []string{`SET refdb.recovery = 'on'`, move}, notAdmitted, 0},
		"a change is recorded by hand": {false, []string{`INSERT INTO history (project, ref, position, old, new, time) VALUES ('p', 'r', 1, '', repeat('b', 40), now())`}, noPrivilege, 0},
		"a change is deleted":          {false, []string{`DELETE FROM history`}, noPrivilege, 0},
		"the audit log is rewritten":   {false, []string{`UPDATE audit SET who = 'x', reason = 'y'`}, noPrivilege, 0},
		"a lost change is decided":     {false, []string{`UPDATE lost SET fate = 'dropped'`}, noPrivilege, 0},
		"an intent changes its owner":  {false, []string{`UPDATE intents SET owner = 'us/1'`}, noPrivilege, 0},
		"the mapping is changed":       {false, []string{`INSERT INTO site_roles VALUES ('x', 'y')`}, noPrivilege, 0},
		"positions are raised":         {false, []string{`SELECT refdb_raise_positions()`}, noPrivilege, 0},
		"the owner's trigger is put on another table": {false, []string{
			`CREATE TEMP TABLE mine (LIKE public.refs)`,
			`CREATE TRIGGER t AFTER INSERT ON mine REFERENCING NEW TABLE AS new_refs FOR EACH STATEMENT EXECUTE FUNCTION public.refdb_record_inserts()`,
		}, noPrivilege, 0},
		"a temporary table hides the history": {false, []string{
			`CREATE TEMP TABLE history (LIKE public.history)`, `SET search_path = pg_temp, public`, move}, "", 1},
		"a temporary table hides the admission": {true, []string{
			`CREATE TEMP TABLE admission AS SELECT 1 AS id, refdb_server() AS server`, `SET search_path = pg_temp, public`, move}, notAdmitted, 0},
		"functions hide the server's own": {true, []string{
			`CREATE FUNCTION mine.pg_walfile_name(pg_lsn) RETURNS text LANGUAGE sql AS 'SELECT ''another'''`,
			`CREATE FUNCTION mine."left"(text, int) RETURNS text LANGUAGE sql AS 'SELECT ''another'''`,
			`CREATE FUNCTION mine.textcat(text, text) RETURNS text LANGUAGE sql AS 'SELECT ''another'''`,
			`CREATE OPERATOR mine.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = mine.textcat)`,
			`SET search_path = mine, pg_catalog, public`, move}, notAdmitted, 0},
		"an operator hides equality": {true, []string{
			`CREATE FUNCTION mine.same(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'`,
			`CREATE OPERATOR mine.= (LEFTARG = text, RIGHTARG = text, FUNCTION = mine.same)`,
			`SET search_path = mine, pg_catalog, public`, move}, notAdmitted, 0},
		"a function hides the start of the server": {true, []string{
			`CREATE FUNCTION mine.pg_postmaster_start_time() RETURNS timestamptz LANGUAGE sql AS 'SELECT timestamptz ''2020-01-01 00:00 UTC'''`,
			`SET search_path = mine, pg_catalog, public`,
			`UPDATE public.refs SET value = repeat('b', 40)`}, notAdmitted, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			role, address := db.Role(t, "refdb_site")
			db.Exec(t, `CREATE SCHEMA mine AUTHORIZATION `+role)
			db.InsertRef(t, "p", "refs/heads/main", v1)
			if c.restarted {
				db.Restart(t)
				if name == "a function hides the start of the server" {
					db.Exec(t, `UPDATE admission SET server = left(refdb_server(), 8) || '-1577836800.000000-' || 'admission'::regclass::oid::text`)
				}
			}
			conn := connect(t, address)
			for i, sql := range c.run {
				_, err := conn.Exec(t.Context(), sql)
				want := ""
				if i == len(c.run)-1 {
					want = c.code
				}
				if got := sqlState(err); got != want || (err != nil) != (want != "") {
					t.Fatalf("%s: %v, want the code %q", sql, err, want)
				}
			}
			if got := count(t, connect(t, db.URL()), recorded); got != c.changes {
				t.Errorf("%d changes are recorded, want %d", got, c.changes)
			}
		})
	}
}

// register registers sites as live, and returns the server.
func register(t *testing.T, d *postgres.Driver, sites ...string) (server string) {
	t.Helper()
	a, err := d.Admission(t.Context())
	for _, site := range sites {
		if err == nil {
			a, err = d.Report(t.Context(), driver.Report{Witness: site, Owner: site + "/1", Server: a.Server})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return a.Server
}

// A mapped is a role that speaks for the site eu, beside the site us.
type mapped struct {
	own, other *postgres.Driver // of the role; of a superuser, for us
	sql        *pgx.Conn        // of the role
	server     string
	prepared   map[string]driver.PrepareRequest // a pending intent of each site
	tokens     map[string]driver.Token
}

func newMapped(t *testing.T) (*dbtest.Database, mapped) {
	db := dbtest.Postgres(t)
	role, address := db.Role(t, "refdb_site")
	db.Exec(t, `INSERT INTO site_roles (role, site) VALUES ('`+role+`', 'eu')`)
	m := mapped{own: open(t, address), other: open(t, db.URL()), sql: connect(t, address),
		prepared: map[string]driver.PrepareRequest{}, tokens: map[string]driver.Token{}}
	m.server = register(t, m.other, "eu", "us")
	for _, site := range []string{"eu", "us"} {
		r := intentOf(site, "refs/heads/"+site)
		p, err := m.other.Prepare(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		m.prepared[site], m.tokens[site] = r, p.Token
	}
	return db, m
}

func intentOf(site, ref string) driver.PrepareRequest {
	r := intention("", v1, ref)
	r.Owner = site + "/1"
	return r
}

func (m mapped) id(site string) []driver.LockID {
	id := ids(m.tokens[site], "refs/heads/"+site)[0]
	id.Owner = site + "/1"
	return []driver.LockID{id}
}

func TestAMappedRoleActsOnlyForItsSite(t *testing.T) {
	t.Parallel()
	exec := func(sql string) func(context.Context, mapped, string) error {
		return func(ctx context.Context, m mapped, _ string) error { _, err := m.sql.Exec(ctx, sql); return err }
	}
	decide := func(ctx context.Context, m mapped, site string) error {
		ended, err := m.own.Resolve(ctx, driver.ResolveRequest{Origin: driver.Origin{ID: rand.Text(), Owner: "eu/1", By: "alice"}, Intents: m.id(site), Decision: driver.KeepOld, Reason: "test"})
		if err == nil && !ended[0] {
			err = errors.New("nothing was decided")
		}
		return err
	}
	leave := func(ctx context.Context, m mapped, site string) error {
		_, err := m.own.Report(ctx, driver.Report{Witness: site, Owner: "eu/1", Server: m.server, Away: true})
		return err
	}
	const silent = `UPDATE witnesses SET seen = seen - interval '6 minutes' WHERE name = 'us'`
	const away = `UPDATE witnesses SET away = true WHERE name = 'us'`
	// The site's daemon holds the lock on the site's name.
	const present = `INSERT INTO locks (project, ref, owner, token, heartbeat, stale_after) VALUES ('refdb/sites', 'refs/sites/us', 'us/1', now(), now(), 600000000)`
	const deaf = present + `; UPDATE locks SET heartbeat = heartbeat - interval '11 minutes'`
	const stillAlive = present + `; ` + silent
	const synchronous = `UPDATE admission SET policy = 'synchronous'`
	const spoken = `UPDATE witnesses SET word = clock_timestamp() + interval '1 second' WHERE name = 'us'`
	closes := func(ctx context.Context, m mapped, site string) error {
		a, err := m.own.Report(ctx, driver.Report{Witness: "eu", Owner: "eu/1", Server: m.server, Closes: []string{site}})
		if err == nil && !a.Witnesses[1].Closing() {
			err = fmt.Errorf("%+v", a.Witnesses)
		}
		return err
	}
	gives := func(ctx context.Context, m mapped, site string) error {
		a, err := m.own.Admission(ctx)
		if err != nil {
			return err
		}
		t := driver.Testimony{Site: site, Word: a.Witnesses[1].Word}
		a, err = m.own.Report(ctx, driver.Report{Witness: "eu", Owner: "eu/1", Server: m.server, Testimonies: []driver.Testimony{t}})
		if err == nil && !a.Witnesses[1].Testified() {
			err = fmt.Errorf("%+v", a.Witnesses)
		}
		return err
	}
	// An unknown site has no lock, but a site of an earlier state of the database may have one.
	again := func(ctx context.Context, m mapped, site string) error {
		word := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
		a, err := m.own.Report(ctx, driver.Report{
			Witness: "eu", Owner: "eu/1", Server: m.server, Marks: []driver.WitnessMark{{Name: site, Since: word}},
			Testimonies: []driver.Testimony{{Site: site, Word: word, Given: true}},
		})
		if err == nil && len(a.Waiting()) > 0 {
			err = fmt.Errorf("%+v", a.Witnesses)
		}
		return err
	}
	excuses := func(ctx context.Context, m mapped, _ string) error {
		_, err := m.sql.Exec(ctx, `UPDATE witnesses SET away = true, server = '', since = clock_timestamp() WHERE name = 'us'`)
		return err
	}
	for _, row := range []struct {
		name  string
		first string // by the owner
		site  string
		do    func(context.Context, mapped, string) error
		code  string
	}{
		{"it prepares", "", "eu", func(ctx context.Context, m mapped, site string) error {
			_, err := m.own.Prepare(ctx, intentOf(site, "refs/heads/x"))
			return err
		}, ""},
		{"it prepares for another site", "", "us", func(ctx context.Context, m mapped, site string) error {
			_, err := m.own.Prepare(ctx, intentOf(site, "refs/heads/x"))
			return err
		}, anotherSite},
		{"it finishes", "", "eu", finish, ""},
		{"it finishes for another site", "", "us", finish, anotherSite},
		{"it finishes for a silent site", silent, "us", finish, anotherSite},
		{"it revokes", "", "eu", func(ctx context.Context, m mapped, site string) error { return m.own.Revoke(ctx, m.prepared[site]) }, ""},
		{"it revokes for another site", "", "us", func(ctx context.Context, m mapped, site string) error { return m.own.Revoke(ctx, m.prepared[site]) }, anotherSite},
		{"it decides", "", "eu", decide, ""},
		{"it decides for another site", "", "us", decide, anotherSite},
		{"it decides for a silent site", silent, "us", decide, ""},
		{"it decides for a site that is away", away, "us", decide, ""},
		{"it forgets", `UPDATE intents SET decision = 'keep-old'`, "eu", forget, ""},
		{"it forgets for another site", `UPDATE intents SET decision = 'keep-old'`, "us", forget, anotherSite},
		{"it reports", "", "eu", reportOf, ""},
		{"it reports for another site", "", "us", reportOf, anotherSite},
		{"it reports for a silent site", silent, "us", reportOf, anotherSite},
		{"it reports for an unregistered site", "", "asia", reportOf, anotherSite},
		{"it leaves", "", "eu", leave, ""},
		{"it leaves for another site", "", "us", leave, anotherSite},
		{"it leaves for a silent site", silent, "us", leave, ""},
		{"it makes another site awaited again (B11)", away, "us", awaited, ""},
		{"it makes an unregistered site awaited (B11)", "", "asia", awaited, ""},
		{"it closes a silent site", "", "us", closes, ""},
		{"it closes a site that has not reported for long", stillAlive, "us", closes, ""},
		{"it closes a site whose lock is stale", deaf, "us", closes, ""},
		{"it closes a site that is present", present, "us", closes, anotherSite},
		{"it testifies about another site", spoken, "us", gives, ""},
		{"it testifies about a site that is present again, and has not reported", spoken + `; ` + present, "us", gives, ""},
		{"it testifies again about an unregistered site", "", "asia", again, ""},
		{"it testifies again about another site", `UPDATE witnesses SET server = '' WHERE name = 'us'`, "us", again, ""},
		{"it testifies again about a site that is present", `UPDATE witnesses SET server = '' WHERE name = 'us'; ` + present, "us", again, anotherSite},
		{"it excuses another site", "", "us", excuses, anotherSite},
		{"it excuses another site as the policy permits", synchronous + `; UPDATE admission SET server = '-'`, "us", excuses, ""},
		{"it excuses another site at an admitted server", synchronous, "us", excuses, anotherSite},
		{"it excuses another site before a recovery", synchronous + `; UPDATE admission SET server = ''`, "us", excuses, anotherSite},
		{"it makes another site awaited for ever", "", "us", exec(`UPDATE witnesses SET server = '', since = now() + interval '2 days' WHERE name = 'us'`), anotherSite},
		{"it takes another site's row", `DELETE FROM witnesses WHERE name = 'eu'`, "us", exec(`UPDATE witnesses SET name = 'eu' WHERE name = 'us'`), anotherSite},
		{"it makes a new server wait from a later day on", "", "eu", exec(`UPDATE admission SET policy = 'wait', policy_since = 'infinity'`), anotherSite},
		{"it withdraws another site's word", spoken, "us", exec(`UPDATE witnesses SET word = NULL WHERE name = 'us'`), anotherSite},
		{"it begins a word in the past", "", "us", exec(`UPDATE witnesses SET word = since WHERE name = 'us'`), anotherSite},
		{"it puts back another site's time", silent, "us", exec(`UPDATE witnesses SET away = true, server = '', since = since - interval '1 hour', word = since - interval '1 hour' WHERE name = 'us'`), anotherSite},
		{"it makes a new server wait for all sites", synchronous, "eu", exec(`UPDATE admission SET policy = 'wait', policy_since = now()`), ""},
		{"it sets the policy", "", "eu", exec(`UPDATE admission SET policy = 'synchronous', policy_since = now()`), anotherSite},
		{"it forgets the policy", synchronous, "eu", exec(`UPDATE admission SET policy = NULL`), anotherSite},
		{"it sets when a site was seen", "", "us", exec(`UPDATE witnesses SET seen = now() - interval '1 hour' WHERE name = 'us'`), anotherSite},
		{"it writes that another site was left out", silent, "us", exec(`UPDATE witnesses SET without = true WHERE name = 'us'`), anotherSite},
		{"it takes over another site's row", "", "us", exec(`UPDATE witnesses SET name = 'eu-2' WHERE name = 'eu'`), anotherSite},
		{"it admits a server that another site has not compared", `UPDATE witnesses SET server = 'another' WHERE name = 'us'; UPDATE admission SET server = '-'`, "us",
			exec(`UPDATE admission SET server = refdb_server()`), anotherSite},
		{"it ends a halt", `UPDATE admission SET server = ''`, "us", exec(`UPDATE admission SET server = '-'`), anotherSite},
		{"it declares a recovery", "", "us", exec(`SET refdb.recovery = 'on'; INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time) VALUES ('p', 'r', now(), 'us/1', '', '', '', now())`), anotherSite},
		{"it admits a server that all sites have compared", `UPDATE admission SET server = '-'`, "eu", reportOf, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db, m := newMapped(t)
			if row.first != "" {
				db.Exec(t, row.first)
			}
			err := row.do(t.Context(), m, row.site)
			if sqlState(err) != row.code || (err != nil) != (row.code != "") {
				t.Fatalf("%v, want the code %q", err, row.code)
			}
			if row.code != "" && (driver.ClassOf(err) != driver.Permanent || errors.Is(err, driver.ErrNotAdmitted)) {
				t.Errorf("%s: %v", driver.ClassOf(err), err)
			}
			// Without a mapping, nothing is checked. The refused statement has changed nothing.
			if row.first == "" && row.code != "" && !strings.Contains(row.name, "halt") {
				db.Exec(t, `DELETE FROM site_roles`)
				if err := row.do(t.Context(), m, row.site); sqlState(err) == anotherSite {
					t.Errorf("without a mapping: %v", err)
				}
			}
		})
	}
}

func finish(ctx context.Context, m mapped, site string) error {
	return m.own.Finish(ctx, driver.FinishRequest{Project: project, Origin: driver.Origin{ID: rand.Text(), Owner: site + "/1"}, Token: m.tokens[site], Done: m.prepared[site].Updates})
}

func forget(ctx context.Context, m mapped, site string) error { return m.own.Forget(ctx, m.id(site)) }

func reportOf(ctx context.Context, m mapped, site string) error {
	a, err := m.own.Report(ctx, driver.Report{Witness: site, Owner: site + "/1", Server: m.server})
	if err == nil && !a.Admitted {
		err = fmt.Errorf("not admitted: %w", a.Err())
	}
	return err
}

func awaited(ctx context.Context, m mapped, site string) error {
	mark := driver.WitnessMark{Name: site, Since: time.Now().Add(time.Hour)}
	a, err := m.own.Report(ctx, driver.Report{Witness: "eu", Owner: "eu/1", Server: m.server, Marks: []driver.WitnessMark{mark}})
	if err == nil && len(a.Waiting()) != 1 {
		err = fmt.Errorf("%q are waited for", a.Waiting())
	}
	return err
}

// waitersForSite counts the sessions that wait for an advisory lock of this database.
const waitersForSite = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// A transaction that bars a site sees all that the site has prepared before: no preparation that
// was checked earlier commits later. Other sites don't wait for it.
func TestABarredSiteCannotPrepare(t *testing.T) {
	t.Parallel()
	for name, bars := range map[string]driver.Report{
		"away":               {Witness: "us", Owner: "eu/1", Away: true},
		"about to be spoken": {Witness: "eu", Owner: "eu/1", Closes: []string{"us"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			d := open(t, db.URL())
			bars.Server = register(t, d, "eu", "us")
			late, watch := connect(t, db.URL()), connect(t, db.URL())
			tx, err := late.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_, err = tx.Exec(t.Context(), `INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time)
				VALUES ('p', 'r', now(), 'us/1', '', '', repeat('b', 40), now())`)
			if err != nil {
				t.Fatal(err)
			}
			barred := make(chan error, 1)
			go func() {
				for {
					_, err := d.Report(t.Context(), bars)
					if driver.ClassOf(err) != driver.Retryable {
						barred <- err
						return
					}
				}
			}()
			for count(t, watch, waitersForSite) == 0 {
				select {
				case err := <-barred:
					t.Fatalf("the site is barred (%v) while a request of the site that was checked is in progress", err)
				default:
				}
			}
			if _, err := d.Prepare(t.Context(), intentOf("eu", "refs/heads/x")); err != nil {
				t.Errorf("another site waits: %v", err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-barred; err != nil {
				t.Fatal(err)
			}
			if got := count(t, watch, `SELECT count(*) FROM intents WHERE owner = 'us/1'`); got != 1 {
				t.Errorf("%d intents are listed", got)
			}
			if _, err := d.Prepare(t.Context(), intentOf("us", "refs/heads/y")); !errors.Is(err, driver.ErrNotAdmitted) {
				t.Errorf("a barred site prepares: %v", err)
			}
		})
	}
}

// A request that waits for the transaction that bars its site is refused by what that transaction
// wrote.
func TestAPreparationThatWaitsUntilItsSiteIsBarredIsRefused(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	register(t, d, "eu", "us")
	early, watch := connect(t, db.URL()), connect(t, db.URL())
	tx, err := early.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `UPDATE witnesses SET word = clock_timestamp() WHERE name = 'us'`); err != nil {
		t.Fatal(err)
	}
	prepared := make(chan error, 1)
	go func() {
		for {
			_, err := d.Prepare(t.Context(), intentOf("us", "refs/heads/x"))
			if driver.ClassOf(err) != driver.Retryable || errors.Is(err, driver.ErrNotAdmitted) {
				prepared <- err
				return
			}
		}
	}()
	for count(t, watch, waitersForSite) == 0 {
		select {
		case err := <-prepared:
			t.Fatalf("the preparation did not wait: %v", err)
		default:
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-prepared; !errors.Is(err, driver.ErrNotAdmitted) {
		t.Error(err)
	}
}

// A program of version 11 does not clear the word, but its report withdraws it.
func TestAWordCountsUntilItsSiteReports(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	register(t, d, "us")
	for _, row := range []struct {
		change string
		barred bool
	}{
		{`UPDATE witnesses SET word = seen + interval '1 microsecond'`, true},
		{`UPDATE witnesses SET seen = word`, false},
		{`UPDATE witnesses SET seen = NULL`, true},
	} {
		db.Exec(t, row.change)
		a, err := d.Admission(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Prepare(t.Context(), intentOf("us", "refs/heads/"+rand.Text()))
		if a.Witnesses[0].Closing() != row.barred || errors.Is(err, driver.ErrNotAdmitted) != row.barred || !row.barred && err != nil {
			t.Errorf("after %s: %+v, %v", row.change, a.Witnesses, err)
		}
	}
}

// Under another isolation level, a writer would see an older version of its site's row.
func TestIntentsAreWrittenInReadCommittedTransactionsOnly(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	c := connect(t, db.URL())
	for level, code := range map[pgx.TxIsoLevel]string{pgx.ReadCommitted: "", pgx.RepeatableRead: "RDB03", pgx.Serializable: "RDB03"} {
		err := pgx.BeginTxFunc(t.Context(), c, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `INSERT INTO intents (project, ref, token, owner, agent, old_value, new_value, time)
				VALUES ('p', 'r', now(), 'us/1', '', '', repeat('b', 40), now())`)
			if err == nil {
				_, err = tx.Exec(t.Context(), `DELETE FROM intents`)
			}
			return err
		})
		if sqlState(err) != code || (err != nil) != (code != "") {
			t.Errorf("%s: %v", level, err)
		}
	}
}

func diagnosis(t *testing.T, d *postgres.Driver, name string) driver.Diagnosis {
	t.Helper()
	all, err := d.Diagnose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range all {
		if found.Name == name {
			return found
		}
	}
	t.Fatalf("there is no check %q in %+v", name, all)
	return driver.Diagnosis{}
}

func TestTheDiagnosisOfAccessHasAValidRemedy(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	role, address := db.Role(t, "refdb_site")
	db.Exec(t, `CREATE ROLE `+role+`_stranger LOGIN`)
	t.Cleanup(func() { db.Exec(t, `DROP ROLE `+role+`_stranger`) })
	outside := strings.Replace(address, role, role+"_stranger", 1)
	connect(t, outside) // the server's default

	d := open(t, address)
	found := diagnosis(t, d, "connect privilege")
	if !found.OK || !found.Note || !strings.Contains(found.Detail, "REVOKE CONNECT, TEMPORARY ON DATABASE") {
		t.Fatalf("%+v", found)
	}
	_, advice, _ := strings.Cut(found.Detail, "refdb's: ")
	db.Exec(t, advice)
	if found := diagnosis(t, d, "connect privilege"); !found.OK || found.Note {
		t.Errorf("after the advice: %+v", found)
	}
	connect(t, address)
	if _, err := pgx.Connect(t.Context(), outside); sqlState(err) != noPrivilege {
		t.Errorf("another role of the server connects: %v", err)
	}
}

func TestTheDiagnosisNamesTheSiteOfARole(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	role, address := db.Role(t, "refdb_site")
	other, elsewhere := db.Role(t, "refdb_site")
	d := open(t, address)
	for _, row := range []struct {
		name, change string
		at           *postgres.Driver
		ok, note     bool
		says         string
	}{
		{"no role is mapped", `SELECT 1`, d, true, true, "no role is mapped to a site"},
		{"the role is mapped", `INSERT INTO site_roles VALUES ('` + role + `', 'eu')`, d, true, false, "the role " + role + " speaks for the site eu only"},
		{"another role is mapped", `SELECT 1`, open(t, elsewhere), true, true, "the role " + other + " is mapped to no site"},
		{"the owner", `SELECT 1`, open(t, db.URL()), true, false, "owner of the tables"},
		{"a restore without roles", `INSERT INTO site_roles VALUES ('gone', 'us')`, d, false, false, "roles that do not exist, so that the roles in their place are not checked: create them, or correct the table: gone"},
	} {
		db.Exec(t, row.change)
		if found := diagnosis(t, row.at, "site roles"); found.OK != row.ok || found.Note != row.note || !strings.Contains(found.Detail, row.says) {
			t.Errorf("%s: %+v", row.name, found)
		}
	}
	db.Exec(t, `DELETE FROM site_roles WHERE role = 'gone'`)
	// PgBouncer connects as its configured user, whichever user its client names.
	pooled := open(t, strings.Replace(dbtest.PgBouncer(t, address), role, "postgres", 1))
	if found := diagnosis(t, pooled, "site roles"); found.OK || !strings.Contains(found.Detail, "a pooler makes the sessions of postgres those of "+role) {
		t.Errorf("%+v", found)
	}
}

// Whatever a user without any privilege to read runs, the error says which privileges are missing.
func TestARoleWithoutPrivilegesGetsTheMissingOnes(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	role, address := db.Role(t, "refdb_site")
	db.Exec(t, `REVOKE ALL ON ALL TABLES IN SCHEMA public FROM `+role)
	_, err := postgres.Open(t.Context(), address)
	wantLine(t, err, "GRANT SELECT, INSERT, UPDATE, DELETE ON refs TO "+role)
	if driver.ClassOf(err) != driver.Permanent {
		t.Errorf("%s: %v", driver.ClassOf(err), err)
	}
	// The advice works, and is sufficient.
	_, advice, _ := strings.Cut(err.Error(), "as postgres: ")
	db.Exec(t, advice)
	if found := diagnosis(t, open(t, address), "privileges"); !found.OK {
		t.Errorf("%+v", found)
	}
}

// Hidden rows look like missing rows: a lock would seem free, a ref unknown.
func TestRowLevelSecurityIsNamedInEveryError(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"refs", "locks", "refdb_schema", "packs"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Postgres(t)
			_, address := db.Role(t, "refdb_site")
			d := open(t, address)
			db.Exec(t, `ALTER TABLE `+table+` ENABLE ROW LEVEL SECURITY`)
			said := "ALTER TABLE " + table + " DISABLE ROW LEVEL SECURITY"
			for _, address := range []string{address, with(t, address, "row_security", "off")} {
				again, err := postgres.Open(t.Context(), address)
				if err == nil {
					again.Close()
				}
				wantLine(t, err, said)
			}
			if err := d.CheckSchema(t.Context()); !errors.Is(err, driver.ErrSchema) || !strings.Contains(err.Error(), said) {
				t.Errorf("a running process: %v", err)
			}
			open(t, db.URL()) // row-level security does not apply to the owner
			db.Exec(t, said)
			open(t, address)
		})
	}
}

// A recovery takes several steps. A role that can't do all of them does none.
func TestEveryStepOfARecoveryRequiresTheOwner(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	role, address := db.Role(t, "refdb_site")
	db.InsertRef(t, project, "refs/heads/main", v1)
	// Two changes of one ref: a step writes one of them again.
	for _, sql := range []string{
		`INSERT INTO lost (project, ref, op, old, new, owner, asked_by, token, move, at, witness, fate, reported)
		 SELECT '` + project + `', 'refs/heads/main', 'A', '` + string(v1) + `', '` + string(v2) + `', 'eu/1', '', 0, '', now(), 'eu', '', now()`,
		`INSERT INTO lost (project, ref, op, old, new, owner, asked_by, token, move, at, witness, fate, reported)
		 SELECT '` + project + `', 'refs/heads/main', 'B', '` + string(v2) + `', '` + string(v1) + `', 'eu/1', '', 0, '', now(), 'eu', '', now()`,
		`UPDATE admission SET server = ''`,
	} {
		db.Exec(t, sql)
	}
	watch := connect(t, db.URL())
	request := driver.RecoverRequest{Epoch: "E", By: "alice", Reason: "test", Limit: 10}
	_, err := open(t, address).Recover(t.Context(), request)
	wantLine(t, err, "recover needs the owner of the tables, not the role "+role+": name postgres in the database URL")
	if errors.Is(err, driver.ErrNotAdmitted) || count(t, watch, `SELECT count(*) FROM lost WHERE fate <> ''`) != 0 {
		t.Errorf("something was decided: %v", err)
	}
	// The advice works.
	owner := open(t, db.URL())
	for done := false; !done; {
		answer, err := owner.Recover(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		done = answer.Done
	}
	if got := count(t, watch, `SELECT count(*) FROM lost WHERE fate = 'again'`); got != 2 {
		t.Errorf("%d changes were written again", got)
	}
}
