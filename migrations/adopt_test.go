package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/spanner"
	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/drivers"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// foreign are tables of another application, by dialect.
var foreign = map[migrations.Dialect]map[string][]string{
	migrations.Postgres: {
		"refs":        {`CREATE TABLE refs (a int)`, `INSERT INTO refs VALUES (1)`},
		"locks":       {`CREATE TABLE locks (a int)`},
		"intents":     {`CREATE VIEW intents AS SELECT 1 AS project`},
		"token_marks": {`CREATE TABLE token_marks (shard int)`},
		// The tables of Gerrit's plugin are on Spanner.
		`refs `: {`CREATE TABLE refs (project text COLLATE "C", ref text COLLATE "C", value text COLLATE "C" NOT NULL, time timestamptz, PRIMARY KEY (project, ref))`},
	},
	migrations.SQLite: {
		"refs":       {`CREATE TABLE refs (a int)`, `INSERT INTO refs VALUES (1)`},
		"locks":      {`CREATE TABLE Locks (a int)`},
		"intents":    {`CREATE VIEW intents AS SELECT 1 AS project`},
		"token_mark": {`CREATE TABLE token_mark (id int)`},
	},
	migrations.Spanner: {
		"refs":    {`CREATE TABLE refs (a INT64) PRIMARY KEY (a)`, `INSERT INTO refs (a) VALUES (1)`},
		"locks":   {gerrit[0], `CREATE TABLE Locks (a INT64) PRIMARY KEY (a)`},
		"intents": {`CREATE TABLE intents (project STRING(MAX)) PRIMARY KEY (project)`},
		// Gerrit's tables, each with one difference.
		"refs ":   {strings.Replace(gerrit[0], "PRIMARY KEY (project, ref)", "PRIMARY KEY (ref, project)", 1)},
		"refs  ":  {strings.Replace(gerrit[0], "value STRING(MAX)", "value BYTES(MAX)", 1)},
		"refs   ": {strings.Replace(gerrit[0], "value STRING(MAX) NOT NULL", "value STRING(MAX) NOT NULL, branch STRING(MAX) NOT NULL", 1)},
		"locks ":  {strings.Replace(gerrit[2], "token TIMESTAMP", "stamp TIMESTAMP", 1)},
	},
}

func TestTablesOfAnotherApplicationAreLeftAlone(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		for name, statements := range foreign[k.Dialect] {
			d := k.Empty(t)
			for _, statement := range statements {
				d.Exec(t, statement)
			}
			before := ddl(t, d)
			m := migrator(t, d)
			err := m.Up(t.Context())
			wantError(t, err, "table "+strings.TrimSpace(name)+" ")
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
			wantVersion(t, m, 0)
			if after := ddl(t, d); !slices.Equal(before, after) {
				t.Errorf("%s: there was\n%q\nand there is\n%q", name, before, after)
			}
		}
	})
}

// Another application may have taken the name of a later version's table.
func TestAStepDoesNotTakeTheTableOfAnotherApplication(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		create := "CREATE TABLE %s (a int)"
		if k.Dialect == migrations.Spanner {
			create = "CREATE TABLE %s (a INT64) PRIMARY KEY (a)"
		}
		for _, name := range []string{"history", "epochs", "history_state", "followers"} {
			d := k.New(t)
			m := migrator(t, d)
			must(t, m.To(t.Context(), 7))
			d.Exec(t, fmt.Sprintf(create, name))
			before := ddl(t, d)
			wantError(t, m.Up(t.Context()), "the table "+name+" is not as refdb needs it")
			wantVersion(t, m, 7)
			if after := ddl(t, d); !slices.Equal(before, after) {
				t.Errorf("%s: there was\n%q\nand there is\n%q", name, before, after)
			}
			d.Exec(t, "DROP TABLE "+name)
			must(t, m.Up(t.Context()))
			wantVersion(t, m, migrations.Latest(k.Dialect))
		}
	})
}

// Another application may use golang-migrate too, with versions of its own.
func TestTheVersionOfAnotherApplicationIsNotOurs(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.Empty(t)
		d.Exec(t, createOldTable(k.Dialect))
		insert := fmt.Sprintf("INSERT INTO %s (version, dirty) VALUES (%d, false)", oldTable(k.Dialect), migrations.Latest(k.Dialect))
		d.Exec(t, insert)
		m := migrator(t, d)
		wantVersion(t, m, 0)
		wantNoSchema(t, d, "another application")
		d.Exec(t, strings.Replace(insert, fmt.Sprintf("(%d,", migrations.Latest(k.Dialect)), "(99,", 1))

		must(t, m.Up(t.Context()))
		wantVersion(t, m, migrations.Latest(k.Dialect))
		wantRefs(t, d, nil)
		must(t, m.To(t.Context(), 0))
		must(t, m.Up(t.Context()))
		wantRefs(t, d, nil)
		if n := count(t, d, oldTable(k.Dialect)); n != 2 {
			t.Errorf("the other application's table has %d rows", n)
		}
	})
}

func TestATableOfVersionsOfAnEarlierProgramIsUsed(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		toOldTable(t, d)
		d.InsertRef(t, project, main, sha)
		m := migrator(t, d)
		latest := migrations.Latest(k.Dialect)
		wantVersion(t, m, latest)
		wantRefs(t, d, []string{main})
		must(t, m.Up(t.Context()))
		must(t, m.To(t.Context(), 5))
		wantVersion(t, m, 5)
		wantNoSchema(t, d, "refdbctl migrate up")
		must(t, m.Up(t.Context()))
		wantRefs(t, d, []string{main})
		if slices.ContainsFunc(ddl(t, d), func(s string) bool { return strings.Contains(s, migrations.Table) }) {
			t.Error("there is a second table of versions")
		}
	})
}

func TestDownLeavesAdoptedTablesAsTheyWere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		ddl  []string
	}{
		{"with the index", gerrit},
		{"without the index", []string{gerrit[0], gerrit[2]}},
		{"refs alone", gerrit[:2]},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := kind(t, migrations.Spanner).Empty(t)
			for _, statement := range c.ddl {
				d.Exec(t, statement)
			}
			d.InsertRef(t, project, main, sha)
			before := ddl(t, d)
			for range 2 {
				m := migrator(t, d)
				must(t, m.Up(t.Context()))
				must(t, m.To(t.Context(), 1))
				must(t, migrator(t, d).To(t.Context(), 0))
				after := slices.DeleteFunc(ddl(t, d), func(s string) bool { return strings.Contains(s, migrations.Table) })
				if !slices.Equal(before, after) {
					t.Errorf("there was\n%q\nand there is\n%q", before, after)
				}
				if n := count(t, d, "refs"); n != 1 {
					t.Errorf("%d refs are left", n)
				}
			}
		})
	}
}

// It is not recorded whether an earlier program found the tables or made them.
func TestDownKeepsTablesThatAnEarlierProgramMayHaveAdopted(t *testing.T) {
	t.Parallel()
	d := kind(t, migrations.Spanner).New(t)
	toOldTable(t, d)
	d.InsertRef(t, project, main, sha)
	must(t, migrator(t, d).To(t.Context(), 0))
	if n := count(t, d, "refs"); n != 1 {
		t.Errorf("%d refs are left", n)
	}
	must(t, migrator(t, d).Up(t.Context()))
	wantRefs(t, d, []string{main})
}

func TestDownDropsTheTablesThatUpMade(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		must(t, migrator(t, d).To(t.Context(), 0))
		for _, s := range ddl(t, d) {
			if !strings.Contains(s, migrations.Table) && !strings.Contains(s, "version_unique") {
				t.Errorf("left behind: %s", s)
			}
		}
	})
}

func oldTable(d migrations.Dialect) string {
	if d == migrations.Spanner {
		return "SchemaMigrations"
	}
	return "schema_migrations"
}

func createOldTable(d migrations.Dialect) string {
	if d == migrations.Spanner {
		return "CREATE TABLE SchemaMigrations (Version INT64 NOT NULL, Dirty BOOL NOT NULL) PRIMARY KEY (Version)"
	}
	return "CREATE TABLE schema_migrations (version bigint NOT NULL PRIMARY KEY, dirty boolean NOT NULL)"
}

// toOldTable changes the database to look as an earlier program migrated it.
func toOldTable(t *testing.T, d *dbtest.Database) {
	t.Helper()
	dialect := d.Kind().Dialect
	d.Exec(t, createOldTable(dialect))
	d.Exec(t, fmt.Sprintf("INSERT INTO %s (version, dirty) VALUES (%d, false)", oldTable(dialect), migrations.Latest(dialect)))
	d.Exec(t, "DROP TABLE "+migrations.Table)
}

func wantNoSchema(t *testing.T, d *dbtest.Database, says string) {
	t.Helper()
	driver, err := drivers.Open(t.Context(), d.URL())
	if err == nil {
		driver.Close()
	}
	if !errors.Is(err, refdb.ErrSchema) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
		t.Errorf("open: %v, want ErrSchema with %q", err, says)
	}
}

// ddl describes all that is in the database.
func ddl(t *testing.T, d *dbtest.Database) []string {
	t.Helper()
	switch d.Kind().Dialect {
	case migrations.Spanner:
		return spannerSchema(t, d)
	case migrations.SQLite:
		return texts(t, d, `SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY 1`)
	default:
		return texts(t, d, `
			SELECT table_name || '.' || column_name || ' ' || data_type FROM information_schema.columns WHERE table_schema = 'public'
			UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1`)
	}
}

// texts reads one column from PostgreSQL or SQLite.
func texts(t *testing.T, d *dbtest.Database, query string) []string {
	t.Helper()
	var all []string
	if d.Kind().Dialect == migrations.Postgres {
		c, err := pgx.Connect(t.Context(), d.URL())
		must(t, err)
		defer c.Close(context.WithoutCancel(t.Context()))
		rows, err := c.Query(t.Context(), query)
		must(t, err)
		all, err = pgx.CollectRows(rows, pgx.RowTo[string])
		must(t, err)
		return all
	}
	db, err := sql.Open("sqlite", strings.TrimPrefix(d.URL(), "sqlite:"))
	must(t, err)
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), query)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var text string
		must(t, rows.Scan(&text))
		all = append(all, text)
	}
	must(t, rows.Err())
	return all
}

func count(t *testing.T, d *dbtest.Database, table string) (n int64) {
	t.Helper()
	if d.Kind().Dialect != migrations.Spanner {
		return int64(len(texts(t, d, `SELECT '' FROM `+table)))
	}
	c, err := spanner.NewClientWithConfig(t.Context(), strings.TrimPrefix(d.URL(), "spanner://"), spanner.ClientConfig{DisableNativeMetrics: true})
	must(t, err)
	defer c.Close()
	must(t, c.Single().Query(t.Context(), spanner.NewStatement(`SELECT COUNT(*) FROM `+table)).Do(func(r *spanner.Row) error { return r.Column(0, &n) }))
	return n
}
