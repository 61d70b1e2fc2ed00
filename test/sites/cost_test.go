//go:build linux

package sites

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// seen notes the number of each transaction that writes to any of refdb's
// tables, except for the beats of the daemons' own locks, and their reports once a minute.
const seen = `
CREATE TABLE seen (transaction xid8 PRIMARY KEY);
CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF coalesce(to_jsonb(NEW), to_jsonb(OLD)) ->> 'project' = 'refdb/sites' THEN
		RETURN NULL;
	END IF;
	INSERT INTO seen VALUES (pg_current_xact_id()) ON CONFLICT DO NOTHING;
	RETURN NULL;
END $$;
DO $$
DECLARE name text;
BEGIN
	FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT IN ('seen', 'witnesses') LOOP
		EXECUTE format('CREATE TRIGGER seen AFTER INSERT OR UPDATE OR DELETE ON %I FOR EACH ROW EXECUTE FUNCTION seen()', name);
	END LOOP;
END $$`

func TestAPushTakesTwoTransactionsHoweverManyRefsItHas(t *testing.T) {
	eachGit(t, func(t *testing.T, g *git) {
		var db *postgresDatabase
		c := newCluster(t, g, design{database: func(t testing.TB) database {
			db = &postgresDatabase{database: onPostgres(t)}
			return db
		}})
		db.exec(t, seen)
		refs := 1000
		if testing.Short() {
			refs = 100
		}
		many, none := []string{"--atomic"}, []string{"--atomic"}
		for i := range refs {
			many = append(many, fmt.Sprintf("%s:refs/heads/many/%04d", c.h.a, i))
			none = append(none, fmt.Sprintf(":refs/heads/many/%04d", i))
		}
		for _, row := range []struct {
			name string
			args []string
		}{
			{"one ref created", []string{c.h.a + ":refs/heads/x"}},
			{"one ref moved", []string{c.h.b + ":refs/heads/x"}},
			{"one ref deleted", []string{":refs/heads/x"}},
			{fmt.Sprint(refs, " refs created"), many},
			{fmt.Sprint(refs, " refs deleted"), none},
		} {
			t.Run(row.name, func(t *testing.T) {
				c := c.in(t)
				db.exec(t, `DELETE FROM seen`)
				start := time.Now()
				c.eu.pushed(row.args...)
				took := time.Since(start)
				c.settled()
				if n := db.count(t, `SELECT count(*) FROM seen`); n != 2 {
					t.Errorf("it takes %d transactions", n)
				}
				t.Logf("it took %s", took.Round(time.Millisecond))
			})
		}
		c.caughtUp()
	})
}

// A postgresDatabase is a database that tests query.
type postgresDatabase struct{ database }

func (d *postgresDatabase) exec(t testing.TB, sql string) {
	t.Helper()
	d.do(t, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, sql)
		return err
	})
}

// count returns the number that a query answers.
func (d *postgresDatabase) count(t testing.TB, sql string) (n int) {
	t.Helper()
	d.do(t, func(ctx context.Context, c *pgx.Conn) error { return c.QueryRow(ctx, sql).Scan(&n) })
	return n
}

func (d *postgresDatabase) do(t testing.TB, f func(context.Context, *pgx.Conn) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := pgx.Connect(ctx, d.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	if err := f(ctx, c); err != nil {
		t.Fatal(err)
	}
}
