package migrations_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	databaseadmin "cloud.google.com/go/spanner/admin/database/apiv1"
	"cloud.google.com/go/spanner/admin/database/apiv1/databasepb"
	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

const (
	project = "plugins/o'brien"
	main    = "refs/heads/main"
	sha     = "0123456789012345678901234567890123456789"
)

// gerrit is what Gerrit's spanner-refdb plugin executes when it starts.
var gerrit = []string{
	`CREATE TABLE refs (
		project STRING(MAX) NOT NULL, ref STRING(MAX) NOT NULL, value STRING(MAX) NOT NULL,
		time TIMESTAMP OPTIONS (allow_commit_timestamp=true)
	) PRIMARY KEY (project, ref)`,
	`CREATE INDEX project_time ON refs (project, time)`,
	`CREATE TABLE locks (
		project STRING(MAX) NOT NULL, ref STRING(MAX) NOT NULL,
		heartbeat TIMESTAMP OPTIONS (allow_commit_timestamp=true),
		token TIMESTAMP OPTIONS (allow_commit_timestamp=true),
		owner STRING(MAX) NOT NULL
	) PRIMARY KEY (project, ref)`,
}

func TestUpTwiceIsNoError(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		m := migrator(t, k.Empty(t))
		wantVersion(t, m, 0)
		must(t, m.Up(t.Context()))
		wantVersion(t, m, migrations.Latest(k.Dialect))
		must(t, m.Up(t.Context()))
		wantVersion(t, m, migrations.Latest(k.Dialect))
	})
}

// Rows that Gerrit's plugin writes in one version are there in all later ones.
func TestEveryStepKeepsTheRowsOfTheStepBefore(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.Empty(t)
		m := migrator(t, d)
		var written []string
		for version := uint(1); version <= migrations.Latest(k.Dialect); version++ {
			must(t, m.To(t.Context(), version))
			wantVersion(t, m, version)
			ref := fmt.Sprintf("refs/heads/v%02d", version)
			d.InsertRef(t, project, ref, sha)
			d.InsertLock(t, refdb.LockInfo{Project: project, Ref: ref, Owner: "gerrit", Age: time.Hour})
			written = append(written, ref)
		}
		waiting := map[migrations.Dialect]string{migrations.Postgres: `'{a,b}'`, migrations.Spanner: `['a', 'b']`, migrations.SQLite: `'["a","b"]'`}
		nonce := strings.Repeat("n", 1000) // the nonce of a reservation holds an owner
		d.Exec(t, `UPDATE locks SET nonce = '`+nonce+`', stale_after = 1000000, waiting = `+waiting[k.Dialect]+` WHERE true`)
		for _, ref := range written {
			l, ok := d.RowLock(t, project, ref)
			if !ok || l.Owner != "gerrit" || l.Token == 0 || l.Age < time.Hour || l.StaleAfter != time.Second {
				t.Errorf("lock %s: %+v, %t", ref, l, ok)
			}
		}
		wantRefs(t, d, written)
	})
}

func TestDownAndUpAgain(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.Empty(t)
		m := migrator(t, d)
		latest := migrations.Latest(k.Dialect)
		must(t, m.Up(t.Context()))
		d.InsertRef(t, project, main, sha)

		must(t, m.Down(t.Context(), int(latest)-1))
		wantVersion(t, m, 1)
		must(t, m.Up(t.Context()))
		wantRefs(t, d, []string{main})

		must(t, m.Down(t.Context(), 100))
		wantVersion(t, m, 0)
		must(t, m.Down(t.Context(), 1))
		must(t, m.To(t.Context(), 0))
		must(t, m.Up(t.Context()))
		wantVersion(t, m, latest)
		wantRefs(t, d, nil)
		must(t, m.To(t.Context(), 0))
		wantVersion(t, m, 0)
	})
}

// Without the table the intended moves are unknown. The locks stay, and can be ended.
func TestTheLocksOfIntentsOutliveTheirTable(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		prepared, err := d.Open(t).Prepare(t.Context(), driver.PrepareRequest{
			Project: project, Updates: []refdb.Update{{Ref: main, New: sha}}, Owner: "eu-1/1", Nonce: "n", Agent: "agent",
		})
		must(t, err)
		m := migrator(t, d)
		must(t, m.To(t.Context(), 3))
		must(t, m.Up(t.Context()))

		again := d.Open(t)
		if page, err := again.Intents(t.Context(), driver.IntentQuery{Limit: 10}); len(page.Intents) != 0 || err != nil {
			t.Errorf("intents %+v, %v", page.Intents, err)
		}
		page, err := again.Locks(t.Context(), driver.LockQuery{Limit: 10})
		if locks := page.Locks; err != nil || len(locks) != 1 || !locks[0].Intended() || locks[0].Token != prepared.Token {
			t.Errorf("locks %+v, %v", locks, err)
		}
		must(t, again.Finish(t.Context(), driver.FinishRequest{
			Project: project, Origin: driver.Origin{ID: "id", Owner: "eu-1/1"}, Token: prepared.Token, Dropped: []string{main},
		}))
		if left, err := again.Locks(t.Context(), driver.LockQuery{Limit: 10}); err != nil || len(left.Locks) != 0 {
			t.Errorf("left: %+v, %v", left.Locks, err)
		}
	})
}

// Sites are upgraded before the schema, which is then migrated while they work.
func TestADriverServesTheSchemaBeforeItsOwn(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		m := migrator(t, d)
		must(t, m.Down(t.Context(), 1))
		open := d.Open(t)
		work := func(when string) {
			t.Helper()
			pack := driver.PackPart{Pack: driver.Pack{ID: when, Project: project, Tips: []string{sha}, Size: 4}, Data: []byte("data"), Last: true}
			must(t, open.(driver.PackStore).StorePart(t.Context(), pack))
			prepared, err := open.Prepare(t.Context(), driver.PrepareRequest{
				Project: project, Updates: []refdb.Update{{Ref: "refs/heads/" + when, New: sha}}, Owner: "eu-1/1", Nonce: when, Packs: []string{when},
			})
			must(t, err)
			must(t, open.Finish(t.Context(), driver.FinishRequest{
				Project: project, Origin: driver.Origin{ID: when, Owner: "eu-1/1"}, Token: prepared.Token,
				Done: []refdb.Update{{Ref: "refs/heads/" + when, New: sha}},
			}))
		}
		work("before")
		must(t, m.Up(t.Context()))
		work("after")
		must(t, m.Down(t.Context(), 1))
		work("again")
		wantRefs(t, d, []string{"refs/heads/after", "refs/heads/again", "refs/heads/before"})

		// Unlike a reader of changes a log does not wait for the transactions of other tests.
		log, err := open.Log(t.Context(), driver.LogRequest{Project: project, Limit: 10})
		must(t, err)
		var moved []string
		for _, c := range log.Changes {
			moved = append(moved, c.Ref)
		}
		if want := []string{"refs/heads/again", "refs/heads/after", "refs/heads/before"}; !slices.Equal(moved, want) {
			t.Errorf("the history has %q, want %q", moved, want)
		}
		packs, err := open.(driver.PackStore).Packs(t.Context(), driver.PackQuery{Project: project, Limit: 10})
		must(t, err)
		var used []string
		for _, p := range packs.Packs {
			used = append(used, p.ID)
		}
		if want := []string{"before", "after", "again"}; !slices.Equal(used, want) {
			t.Errorf("the packs are %q, want %q", used, want)
		}
	})
}

// Tokens go on growing across the step that changes how they are made, whatever the clock says.
func TestTokensKeepGrowingAcrossTheStepThatChangesThem(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]string{
		"a mark is ahead":  `UPDATE token_marks SET mark = clock_timestamp() + interval '1 day' WHERE shard = 7`,
		"a token is ahead": `INSERT INTO locks (project, ref, heartbeat, token, owner) VALUES ('p', 'refs/heads/x', 'epoch', clock_timestamp() + interval '1 day', 'other')`,
		"none is":          `UPDATE token_marks SET mark = mark`,
	} {
		d := kind(t, migrations.Postgres).Empty(t)
		m := migrator(t, d)
		must(t, m.To(t.Context(), 4))
		d.Exec(t, ahead)
		last := driver.TokenOf(queryOne[time.Time](t, d,
			`SELECT greatest((SELECT max(mark) FROM token_marks), (SELECT max(token) FROM locks), clock_timestamp())`))
		must(t, m.Up(t.Context()))
		acquired, err := d.Open(t).Acquire(t.Context(), driver.AcquireRequest{
			Project: project, Refs: []string{main}, Owner: "eu-1/1", Nonce: "n", StaleAfter: time.Minute,
		})
		must(t, err)
		if acquired.Token <= last {
			t.Errorf("%s: token %s follows %s", name, acquired.Token.Time(), last.Time())
		}
		must(t, m.To(t.Context(), 4))
		if mark := queryOne[time.Time](t, d, `SELECT min(mark) FROM token_marks HAVING count(*) = 1024`); driver.TokenOf(mark) < acquired.Token {
			t.Errorf("%s: mark %s is behind the token %s", name, mark, acquired.Token.Time())
		}
	}
}

func queryOne[T any](t *testing.T, d *dbtest.Database, sql string) (value T) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), d.URL())
	must(t, err)
	defer c.Close(context.WithoutCancel(t.Context()))
	must(t, c.QueryRow(t.Context(), sql).Scan(&value))
	return value
}

// One step adds an index and storage parameters for beats; its reverse removes both.
func TestTheStepForBeatsIsUndoneCompletely(t *testing.T) {
	t.Parallel()
	d := kind(t, migrations.Postgres).Empty(t)
	m := migrator(t, d)
	must(t, m.To(t.Context(), 2))
	before := lockStorage(t, d)
	must(t, m.To(t.Context(), 3))
	if got := lockStorage(t, d); len(got) <= len(before) || !slices.Contains(got, "locks_owner") {
		t.Errorf("the table of locks has %q, and had %q", got, before)
	}
	must(t, m.Down(t.Context(), 1))
	if got := lockStorage(t, d); !slices.Equal(got, before) {
		t.Errorf("the table of locks has %q, and had %q", got, before)
	}
}

// lockStorage returns the table's indexes and storage parameters.
func lockStorage(t *testing.T, d *dbtest.Database) []string {
	t.Helper()
	c, err := pgx.Connect(t.Context(), d.URL())
	must(t, err)
	defer c.Close(context.WithoutCancel(t.Context()))
	rows, err := c.Query(t.Context(), `
		SELECT unnest(reloptions) FROM pg_class WHERE oid = 'locks'::regclass
		UNION ALL SELECT indexname FROM pg_indexes WHERE tablename = 'locks' ORDER BY 1`)
	must(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return all
}

func TestTablesOfGerritAreAdopted(t *testing.T) {
	t.Parallel()
	d := kind(t, migrations.Spanner).Empty(t)
	for _, statement := range gerrit {
		d.Exec(t, statement)
	}
	d.InsertRef(t, project, main, sha)
	d.InsertLock(t, refdb.LockInfo{Project: project, Ref: main, Owner: "gerrit", Age: time.Hour})

	must(t, migrator(t, d).Up(t.Context()))
	wantRefs(t, d, []string{main})
	l, ok := d.RowLock(t, project, main)
	if !ok || l.Owner != "gerrit" || l.StaleAfter != refdb.DefaultStaleAfter || !l.Stale() {
		t.Errorf("lock %+v, %t", l, ok)
	}
	// The plugin goes on as before.
	d.InsertRef(t, project, "refs/heads/next", sha)
	d.InsertLock(t, refdb.LockInfo{Project: project, Ref: "refs/heads/next", Owner: "gerrit"})
	wantRefs(t, d, []string{main, "refs/heads/next"})
	if got, want := spannerSchema(t, d), spannerSchema(t, dbtest.Spanner(t)); !slices.Equal(got, want) {
		t.Errorf("the adopted schema is\n%q\nand not\n%q", got, want)
	}
}

func spannerSchema(t *testing.T, d *dbtest.Database) []string {
	t.Helper()
	c, err := databaseadmin.NewDatabaseAdminClient(t.Context())
	must(t, err)
	defer c.Close()
	ddl, err := c.GetDatabaseDdl(t.Context(), &databasepb.GetDatabaseDdlRequest{Database: strings.TrimPrefix(d.URL(), "spanner://")})
	must(t, err)
	slices.Sort(ddl.Statements)
	return ddl.Statements
}

func TestTablesWithoutARecordedVersionAreAdopted(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.Empty(t)
		m := migrator(t, d)
		must(t, m.To(t.Context(), 1))
		d.InsertRef(t, project, main, sha)
		must(t, m.Force(t.Context(), 0))
		wantVersion(t, m, 0)

		must(t, m.Up(t.Context()))
		wantVersion(t, m, migrations.Latest(k.Dialect))
		wantRefs(t, d, []string{main})
	})
}

// wantRefs reads through a driver, which checks the schema too.
func wantRefs(t *testing.T, d *dbtest.Database, want []string) {
	t.Helper()
	page, err := d.Open(t).List(t.Context(), driver.RefQuery{Project: project, Limit: 100})
	must(t, err)
	refs := page.Refs
	if len(refs) != len(want) {
		t.Fatalf("refs %v, want %v", refs, want)
	}
	for i, r := range refs {
		if r.Name != want[i] || r.Value != sha {
			t.Errorf("ref %+v, want %s", r, want[i])
		}
	}
}

// Sites go on pushing through a role of few rights when somebody else has migrated.
func TestWhoMayWriteRefsMayRecordThat(t *testing.T) {
	t.Parallel()
	d := kind(t, migrations.Postgres).Empty(t)
	m := migrator(t, d)
	must(t, m.To(t.Context(), 7))
	const role = "refdb_test_writer"
	d.Exec(t, `CREATE ROLE `+role)
	t.Cleanup(func() {
		d.Exec(t, `DROP OWNED BY `+role)
		d.Exec(t, `DROP ROLE `+role)
	})
	d.Exec(t, `GRANT SELECT, INSERT, UPDATE ON refs TO `+role)
	must(t, m.Up(t.Context()))
	for _, change := range []string{`INSERT INTO refs (project, ref, value) VALUES ('p', 'refs/heads/a', '1')`, `UPDATE refs SET value = '2'`} {
		d.Exec(t, `SET LOCAL ROLE `+role+`; `+change)
	}
	if n := count(t, d, `history`); n != 2 {
		t.Errorf("%d changes were recorded", n)
	}
}
