package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// A writer is a request that writes, with its preconditions.
type writer struct {
	name    string
	arrange func() (write func() error)
}

// writers are all requests of a driver that write, each for its own refs.
func writers(t *testing.T, d *postgres.Driver) []writer {
	ctx := t.Context()
	serial := 0
	refs := func(n int) []string {
		serial++
		return some(fmt.Sprintf("refs/heads/%d/", serial), n)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	prepared := func(refs []string) (driver.PrepareRequest, driver.Token) {
		t.Helper()
		r := intention("", v1, refs...)
		p, err := d.Prepare(ctx, r)
		must(err)
		return r, p.Token
	}
	var all []writer
	add := func(name string, arrange func() func() error) { all = append(all, writer{name, arrange}) }
	for _, n := range []int{1, 2, 300} {
		add(fmt.Sprint("acquire ", n), func() func() error {
			r := request(refs(n)...)
			return func() error { _, err := d.Acquire(ctx, r); return err }
		})
		add(fmt.Sprint("release ", n), func() func() error {
			refs := refs(n)
			a := acquire(t, d, refs...)
			return func() error { _, err := d.Release(ctx, ending(a.Token, refs...)); return err }
		})
		add(fmt.Sprint("abandon ", n), func() func() error {
			r := request(refs(n)...)
			_, err := d.Acquire(ctx, r)
			must(err)
			return func() error {
				return d.Abandon(ctx, driver.AbandonRequest{Project: project, Refs: r.Refs, Owner: owner, Nonce: r.Nonce})
			}
		})
		add(fmt.Sprint("update ", n), func() func() error {
			refs := refs(n)
			must(try(ctx, d, update(refs...)))
			r := update(refs...)
			r.Updates = moves(v1, v2, refs...)
			return func() error { return try(ctx, d, r) }
		})
		add(fmt.Sprint("create ", n), func() func() error {
			r := update(refs(n)...)
			return func() error { return try(ctx, d, r) }
		})
		for what, of := range map[string]func(driver.Token, ...string) *driver.Fence{"update under a lock": fence, "update and release": releasing} {
			add(fmt.Sprint(what, " ", n), func() func() error {
				r := update(refs(n)...)
				names := refNames(r.Updates)
				r.Fence = of(acquire(t, d, names...).Token, names...)
				return func() error { return try(ctx, d, r) }
			})
		}
		add(fmt.Sprint("prepare ", n), func() func() error {
			r := intention("", v1, refs(n)...)
			return func() error { _, err := d.Prepare(ctx, r); return err }
		})
		add(fmt.Sprint("finish ", n), func() func() error {
			refs := refs(n)
			_, token := prepared(refs)
			return func() error { return d.Finish(ctx, done(token, "", v1, refs...)) }
		})
		add(fmt.Sprint("revoke ", n), func() func() error {
			r, _ := prepared(refs(n))
			return func() error { return d.Revoke(ctx, r) }
		})
		add(fmt.Sprint("resolve and forget ", n), func() func() error {
			refs := refs(n)
			_, token := prepared(refs)
			return func() error {
				_, err := d.Resolve(ctx, driver.ResolveRequest{Intents: ids(token, refs...), Decision: driver.KeepOld})
				// Both errors, so that a request that does nothing is not taken for one that is
				// refused.
				return errors.Join(err, d.Forget(ctx, ids(token, refs...)))
			}
		})
	}
	for _, n := range []int{1, 600} { // by key, by owner
		add(fmt.Sprint("beat ", n), func() func() error {
			refs := refs(n)
			a := acquire(t, d, refs...)
			return func() error { _, err := d.Beat(ctx, ids(a.Token, refs...)); return err }
		})
	}
	add("purge", func() func() error {
		refs := refs(1)
		a := acquire(t, d, refs...)
		return func() error {
			_, err := d.Purge(ctx, []driver.StandingLock{{LockID: ids(a.Token, refs...)[0]}})
			return err
		}
	})
	add("purge tombstones", func() func() error {
		refs := refs(1)
		r := update(refs...)
		must(try(ctx, d, r))
		r.Updates = moves(v1, driver.Deleted, refs...)
		must(try(ctx, d, r))
		return func() error {
			_, err := d.PurgeTombstones(ctx, driver.TombstoneRequest{Project: project, Limit: 10, OlderThan: -time.Hour})
			return err
		}
	})
	add("remove", func() func() error {
		r := update(refs(1)...)
		r.Project = "removed"
		must(try(ctx, d, r))
		return func() error {
			_, err := d.Remove(ctx, driver.RemoveRequest{Project: r.Project, Limit: 10, Locks: driver.AdvisoryLocks})
			return err
		}
	})
	return all
}

func refNames(updates []driver.Update) (names []string) {
	for _, u := range updates {
		names = append(names, u.Ref)
	}
	return names
}

// paths are the ways to a database on which a session's settings can change.
var paths = map[string]func(testing.TB, *dbtest.Database) string{
	"directly":          func(_ testing.TB, db *dbtest.Database) string { return db.URL() },
	"through PgBouncer": func(tb testing.TB, db *dbtest.Database) string { return dbtest.PgBouncer(tb, db.URL()) },
}

// The previous client of the connection may have left it with any default.
func TestNothingIsWrittenUnderAnotherIsolation(t *testing.T) {
	t.Parallel()
	for path, url := range paths {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && path == "directly" {
				t.Skip("left out by -short: the path on which no other client leaves an isolation level behind; make test-all runs it")
			}
			db := dbtest.Postgres(t)
			address := url(t, db)
			d := open(t, with(t, address, "pool_max_conns", "1"))
			leave := leaver(t, path, address, d)
			isolate := func(level string) {
				t.Helper()
				leave(`SELECT set_config('default_transaction_isolation', '` + level + `', false)`)
			}
			for _, w := range writers(t, d) {
				for _, level := range []string{"repeatable read", "serializable"} {
					write := w.arrange()
					isolate(level)
					err := write()
					if err == nil || !strings.Contains(err.Error(), "read committed") || driver.ClassOf(err) != driver.Permanent {
						t.Errorf("%s, %s: %v", w.name, level, err)
					}
					isolate("read committed")
					if err := write(); err != nil {
						t.Errorf("%s, then under read committed: %v", w.name, err)
					}
				}
			}
		})
	}
}

// Acknowledged writes are on disk, whatever synchronous_commit is set to.
func TestEveryWriteIsDurable(t *testing.T) {
	t.Parallel()
	for path, url := range paths {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && path == "through PgBouncer" {
				t.Skip("left out by -short: the same statements through PgBouncer; make test-all runs it")
			}
			db := dbtest.Postgres(t)
			c := session(t, db.URL())
			exec(t, c, `CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$
				BEGIN
					IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
						RAISE EXCEPTION 'a commit that is not durable' USING ERRCODE = '40000';
					END IF;
					RETURN NULL;
				END $$`)
			for _, table := range []string{"refs", "locks", "intents"} {
				exec(t, c, `CREATE CONSTRAINT TRIGGER watch AFTER INSERT OR UPDATE OR DELETE ON `+table+`
					DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION watch()`)
			}
			d := open(t, with(t, url(t, db), "pool_max_conns", "1"))
			for _, w := range writers(t, d) {
				for _, setting := range []string{"off", "local", "remote_write"} {
					write := w.arrange()
					err := d.Leave(t.Context(), `SELECT set_config('synchronous_commit', '`+setting+`', false)`)
					if err != nil {
						t.Fatal(err)
					}
					if err := write(); err != nil {
						t.Errorf("%s, %s: %v", w.name, setting, err)
					}
				}
			}
		})
	}
}
