package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/migrations"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestDownStopsForLocksInEveryVersion(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		latest := migrations.Latest(k.Dialect)
		m := migrator(t, d)
		insert := func() {
			d.InsertLock(t, refdb.LockInfo{Project: "p", Ref: "refs/heads/stale", Owner: "dead", Age: time.Hour})
			d.InsertLock(t, refdb.LockInfo{Project: "RECLAIM_p_2020-01-01T00:00:00Z", Ref: main, Owner: "marker"})
			d.InsertLock(t, refdb.LockInfo{Project: project, Ref: main, Owner: "eu-1/1"})
		}
		insert()
		// down undoes a step, again if the lock may have become stale before that looked at it.
		down := func(version uint) (err error) {
			for range 20 {
				d.TakeOver(t, project, main, "eu-1/1")
				start := time.Now()
				if err = m.Down(t.Context(), 1); err != nil || time.Since(start) < refdb.DefaultStaleAfter {
					return err
				}
				must(t, m.To(t.Context(), version))
				if version == 1 {
					insert() // the tables were dropped
				}
			}
			return err
		}
		for version := latest; version > 0; version-- {
			err := down(version)
			var held *migrations.HeldError
			if !errors.As(err, &held) || len(held.Locks) != 1 {
				t.Fatalf("down from %d: %v", version, err)
			}
			l := held.Locks[0]
			if l.Project != project || l.Ref != main || l.Owner != "eu-1/1" || l.Token == 0 || l.Age > time.Minute || l.StaleAfter != refdb.DefaultStaleAfter {
				t.Errorf("from %d: held %+v", version, l)
			}
			wantVersion(t, m, version)
			must(t, m.DownForced(t.Context(), 1))
			wantVersion(t, m, version-1)
		}
	})
}

func TestDownIsNeverForcedFromUnderAnIntent(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		_, err := d.Open(t).Prepare(t.Context(), driver.PrepareRequest{
			Project: project, Updates: []refdb.Update{{Ref: main, New: sha}}, Owner: "eu-1/1", Nonce: "n", Agent: "agent",
		})
		must(t, err)
		m := migrator(t, d)
		var held *migrations.HeldError
		if err := m.DownForced(t.Context(), 100); !errors.As(err, &held) || held.Locks[0].StaleAfter < driver.NeverStale {
			t.Errorf("down: %v", err)
		}
		wantVersion(t, m, migrations.Latest(k.Dialect))
	})
}

// No lock can be taken between the check of the locks and the step.
func TestDownSeesALockThatIsBeingTaken(t *testing.T) {
	t.Parallel()
	const insert = `INSERT INTO locks (project, ref, heartbeat, token, owner) VALUES ('p', 'refs/heads/x', NOW, NOW, 'eu-1/1')`
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		d := dbtest.Postgres(t)
		c, err := pgx.Connect(t.Context(), d.URL())
		must(t, err)
		defer c.Close(context.WithoutCancel(t.Context()))
		for range 20 {
			tx, err := c.Begin(t.Context())
			must(t, err)
			_, err = tx.Exec(t.Context(), strings.ReplaceAll(insert, "NOW", "clock_timestamp()"))
			must(t, err)
			err = downWhile(t, d, func(ended <-chan error) {
				for waits := false; !waits && len(ended) == 0; {
					must(t, tx.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted
						AND relation = 'locks'::regclass AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&waits))
				}
				must(t, tx.Commit(t.Context()))
			})
			if err != nil && strings.Contains(err.Error(), "another transaction has locked a table") { // the commit came too late
				d.Exec(t, `DELETE FROM locks`)
				continue
			}
			wantRefused(t, d, err)
			return
		}
		t.Error("each commit came too late")
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		d := dbtest.SQLite(t)
		db, err := sql.Open("sqlite", strings.TrimPrefix(d.URL(), "sqlite:"))
		must(t, err)
		defer db.Close()
		c, err := db.Conn(t.Context())
		must(t, err)
		defer c.Close()
		for _, statement := range []string{"BEGIN IMMEDIATE", strings.ReplaceAll(insert, "NOW", "CAST(unixepoch('subsec') * 1000000 AS INTEGER)")} {
			_, err := c.ExecContext(t.Context(), statement)
			must(t, err)
		}
		wantRefused(t, d, downWhile(t, d, func(<-chan error) {
			_, err := c.ExecContext(t.Context(), "COMMIT")
			must(t, err)
		}))
	})
}

// downWhile migrates down while taken takes a lock.
func downWhile(t *testing.T, d *dbtest.Database, taken func(ended <-chan error)) error {
	t.Helper()
	m := migrator(t, d)
	ended := make(chan error, 1)
	go func() { ended <- m.Down(t.Context(), 1) }()
	taken(ended)
	return <-ended
}

// wantRefused wants err, a migration's, to be the refusal for the lock that was taken.
func wantRefused(t *testing.T, d *dbtest.Database, err error) {
	t.Helper()
	var held *migrations.HeldError
	if !errors.As(err, &held) || len(held.Locks) != 1 || held.Locks[0].Owner != "eu-1/1" {
		t.Errorf("down: %v", err)
	}
	wantVersion(t, migrator(t, d), migrations.Latest(d.Kind().Dialect))
}

func TestACensusCountsInEveryVersion(t *testing.T) {
	each(t, func(t *testing.T, k dbtest.Kind) {
		d := k.New(t)
		m := migrator(t, d)
		check := func(want migrations.Counts) {
			t.Helper()
			got, err := m.Counts(t.Context())
			if err != nil || got != want {
				t.Errorf("counted %+v, %v; want %+v", got, err, want)
			}
		}
		check(migrations.Counts{})
		for _, ref := range []string{"refs/heads/a", "refs/heads/b"} {
			d.InsertRef(t, "p", ref, sha)
			d.InsertLock(t, refdb.LockInfo{Project: "p", Ref: ref, Owner: "eu-1/1", Age: time.Hour})
		}
		d.InsertRef(t, "q", main, sha)
		want := migrations.Counts{Refs: 3, Projects: 2, Locks: 2, Holders: 1}
		check(want)
		must(t, m.To(t.Context(), 1))
		check(want)
		must(t, m.To(t.Context(), 0))
		check(migrations.Counts{})
	})
}
