package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// connected makes sure that there is a connection, so that a fault hits a request and not the
// connection's setup.
func connected(t *testing.T, d *postgres.Driver) {
	t.Helper()
	if _, err := d.Now(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestALostReplyIsAnUnknownOutcomeAndTheNonceFindsTheAcquisition(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	w := newWire(t, db.URL())
	d := open(t, w.url)
	for _, r := range []driver.AcquireRequest{request("refs/heads/a"), request("refs/heads/b", "refs/heads/c")} {
		findsItself(t, db, d, w, r.Refs, func() (driver.Token, error) {
			a, err := d.Acquire(t.Context(), r)
			return a.Token, err
		})
	}
	for _, refs := range [][]string{{"refs/heads/d"}, {"refs/heads/e", "refs/heads/f"}} {
		r := intention("", v1, refs...)
		findsItself(t, db, d, w, refs, func() (driver.Token, error) {
			p, err := d.Prepare(t.Context(), r)
			return p.Token, err
		})
	}
}

// findsItself makes a request whose reply is lost, and sends it again.
func findsItself(t *testing.T, db *dbtest.Database, d *postgres.Driver, w *wire, refs []string, send func() (driver.Token, error)) {
	t.Helper()
	connected(t, d)
	w.inject(loseReply)
	if _, err := send(); !errors.Is(err, driver.ErrOutcomeUnknown) {
		t.Fatalf("the reply was lost: %v", err)
	}
	row, ok := db.RowLock(t, project, refs[0])
	if !ok {
		t.Fatal("the lock was not taken")
	}
	if token, err := send(); err != nil || token != row.Token {
		t.Fatalf("sent again: token %d, %v; want %d", token, err, row.Token)
	}
	if _, err := d.Acquire(t.Context(), request(refs...)); !errors.Is(err, driver.ErrLocked) {
		t.Fatalf("another acquisition: %v", err)
	}
}

func TestALostRequestIsAnUnknownOutcomeAndDidNothing(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	w := newWire(t, db.URL())
	d := open(t, w.url)
	a := acquire(t, d, mainRef)
	before, _ := db.RowLock(t, project, mainRef)
	const intended = "refs/heads/intended"
	intent, err := d.Prepare(t.Context(), intention("", v1, intended))
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func() error{
		"acquire": func() error { _, err := d.Acquire(t.Context(), request(otherRef)); return err },
		"update":  func() error { return try(t.Context(), d, update(otherRef)) },
		"beat":    func() error { _, err := d.Beat(t.Context(), ids(a.Token, mainRef)); return err },
		"release": func() error { _, err := d.Release(t.Context(), ending(a.Token, mainRef)); return err },
		"purge": func() error {
			_, err := d.Purge(t.Context(), []driver.StandingLock{{LockID: ids(a.Token, mainRef)[0]}})
			return err
		},
		"abandon": func() error {
			return d.Abandon(t.Context(), driver.AbandonRequest{Project: project, Refs: []string{mainRef}, Owner: owner, Nonce: "nonce"})
		},
		"remove": func() error {
			_, err := d.Remove(t.Context(), driver.RemoveRequest{Project: project, Limit: 1, Locks: driver.AdvisoryLocks})
			return err
		},
		"prepare": func() error { _, err := d.Prepare(t.Context(), intention("", v1, otherRef)); return err },
		"finish":  func() error { return d.Finish(t.Context(), done(intent.Token, "", v1, intended)) },
		"drop":    func() error { return d.Finish(t.Context(), dropped(intent.Token, intended)) },
		"revoke":  func() error { return d.Revoke(t.Context(), intention("", v1, otherRef)) },
		"resolve": func() error {
			_, err := d.Resolve(t.Context(), driver.ResolveRequest{Intents: ids(intent.Token, intended), Decision: driver.TakeNew})
			return err
		},
		"forget": func() error { return d.Forget(t.Context(), ids(intent.Token, intended)) },
	} {
		connected(t, d)
		w.inject(loseRequest)
		if err := write(); !errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Errorf("%s: the request was lost: %v", name, err)
		}
	}
	if after, ok := db.RowLock(t, project, mainRef); !ok || !after.Heartbeat.Equal(before.Heartbeat) {
		t.Errorf("the lock was %+v and is %+v", before, after)
	}
	if _, ok := db.RowLock(t, project, otherRef); ok {
		t.Error("a lock was taken")
	}
	if refs, err := d.Get(t.Context(), project, []string{intended, otherRef}); err != nil || len(refs) > 0 {
		t.Errorf("got %v, %v", refs, err)
	}
	if page, err := d.Intents(t.Context(), driver.IntentQuery{Limit: 10}); err != nil || len(page.Intents) != 1 || page.Intents[0].Token != intent.Token {
		t.Errorf("the intents are %v, %v", page, err)
	}
}

func TestReadsAreRetriedAfterALostReply(t *testing.T) {
	t.Parallel()
	w := newWire(t, dbtest.Postgres(t).URL())
	d := open(t, w.url)
	if err := try(t.Context(), d, update(mainRef)); err != nil {
		t.Fatal(err)
	}
	get := func() {
		refs, err := d.Get(t.Context(), project, []string{mainRef})
		if err != nil || len(refs) != 1 {
			t.Errorf("got %v, %v", refs, err)
		}
	}
	get()
	for _, f := range []fault{loseRequest, loseReply} {
		connected(t, d)
		w.inject(f)
		get()
	}
}

func TestAStoppedServerIsUnavailable(t *testing.T) {
	t.Parallel()
	w := newWire(t, dbtest.Postgres(t).URL())
	d := open(t, w.url)
	a := acquire(t, d, mainRef)
	w.cut()
	// The first request on the broken connection may not know whether it arrived. A read is simply
	// repeated.
	if _, err := d.Get(t.Context(), project, []string{mainRef}); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("get: %v", err)
	}
	calls := map[string]func() error{
		"acquire": func() error { _, err := d.Acquire(t.Context(), request(otherRef)); return err },
		"update":  func() error { return try(t.Context(), d, update(otherRef)) },
		"beat":    func() error { _, err := d.Beat(t.Context(), ids(a.Token, mainRef)); return err },
		"release": func() error { _, err := d.Release(t.Context(), ending(a.Token, mainRef)); return err },
		"get":     func() error { _, err := d.Get(t.Context(), project, []string{mainRef}); return err },
	}
	for name, call := range calls {
		err := call()
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %q does not say in one line that the connection was refused", name, err)
		}
	}
}

// An idle connection that the server has closed is detected before anything is sent through it.
func TestConnectionsThatEndedWhileIdleAreReplaced(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	c := session(t, db.URL())
	for n := range 5 {
		a := acquire(t, d, mainRef)
		terminate(t, c, `true`)
		if _, err := d.Release(t.Context(), ending(a.Token, mainRef)); err != nil {
			t.Fatalf("round %d: %v", n, err)
		}
	}
}

// A blockade is another client's transaction that locks the row of a ref's lock.
type blockade struct {
	tb   testing.TB
	conn *pgx.Conn
	look *pgx.Conn
}

func block(tb testing.TB, db *dbtest.Database, ref string) *blockade {
	tb.Helper()
	b := &blockade{tb, session(tb, db.URL()), session(tb, db.URL())}
	exec(tb, b.conn, `BEGIN`)
	exec(tb, b.conn, `SELECT FROM locks WHERE project = $1 AND ref = $2 FOR UPDATE`, project, ref)
	return b
}

const isBlocked = `application_name = 'refdb' AND datname = current_database() AND wait_event_type = 'Lock'`

// wait waits until a request of the driver is stuck.
func (b *blockade) wait() {
	b.tb.Helper()
	eventually(b.tb, "a request waits for the row", func() bool {
		return query[int64](b.tb, b.look, `SELECT count(*) FROM pg_stat_activity WHERE `+isBlocked)[0] > 0
	})
}

// waitUnless waits until a request of the driver is stuck, or over returns true.
func (b *blockade) waitUnless(over func() bool) {
	b.tb.Helper()
	eventually(b.tb, "a request waits for the row", func() bool {
		return over() || query[int64](b.tb, b.look, `SELECT count(*) FROM pg_stat_activity WHERE `+isBlocked)[0] > 0
	})
}

// untilInTime repeats an attempt that came too late for a timeout of the driver, as happens on a
// busy machine.
func untilInTime(tb testing.TB, attempt func() (late bool)) {
	tb.Helper()
	for range 20 {
		if !attempt() {
			return
		}
	}
	tb.Error("every attempt came too late")
}

func (b *blockade) end() {
	b.tb.Helper()
	exec(b.tb, b.conn, `COMMIT`)
}

// The row may or may not be visible yet when the caller gives up.
func TestAnAbandonedAcquisitionLeavesNoLock(t *testing.T) {
	for name, slow := range map[string]string{"the answer comes soon": "0.3", "it comes late": "1.5"} {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, together %v", name, together), func(t *testing.T) {
				t.Parallel()
				pg := dbtest.Postgres(t)
				d := open(t, pg.URL())
				if together {
					d.ShareAll()
				}
				db, err := refdb.New(d, refdb.Options{Site: "site"})
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				look := session(t, pg.URL())
				count := func(what string) int64 {
					return query[int64](t, look, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'refdb' AND `+what)[0]
				}
				pg.Exec(t, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(`+slow+`); RETURN NEW; END $$`)
				pg.Exec(t, `CREATE TRIGGER slow BEFORE INSERT ON locks FOR EACH ROW EXECUTE FUNCTION slow()`)
				ctx, cancel := context.WithCancel(t.Context())
				returned := make(chan error, 1)
				go func() {
					l, err := db.TryLock(ctx, project, mainRef)
					if err == nil {
						err = l.Release(t.Context())
					} else if ctx.Err() != nil {
						err = nil
					}
					returned <- err
				}()
				eventually(t, "the row is inserted", func() bool { return len(returned) > 0 || count(`wait_event = 'PgSleep'`) > 0 })
				cancel()
				if err := <-returned; err != nil {
					t.Error(err)
				}
				eventually(t, "no lock without a holder exists or is still to come", func() bool {
					if count(`state <> 'idle'`) > 0 {
						return false
					}
					_, stands := pg.RowLock(t, project, mainRef)
					return !stands
				})
			})
		}
	}
}

func TestAContextThatEndsCancelsTheRequestAndItsOutcomeIsKnown(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	acquire(t, d, mainRef)
	b := block(t, db, mainRef)
	untilInTime(t, func() (late bool) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := d.Acquire(ctx, request(mainRef, otherRef))
			done <- err
		}()
		b.wait()
		cancel()
		err := <-done
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the context ended: %v", err)
		}
		return errors.Is(err, driver.ErrOutcomeUnknown) // the server answered too slowly
	})
	b.end()
}

func TestARequestWhoseSessionIsTerminatedIsRetried(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	a := acquire(t, d, mainRef)
	b := block(t, db, mainRef)
	done := make(chan error)
	go func() {
		r := update(mainRef)
		r.Fence = releasing(a.Token, mainRef)
		done <- try(t.Context(), d, r)
	}()
	var before []int64
	eventually(t, "its session is terminated", func() bool { // between two waits there is no session to find
		before = query[int64](t, b.look, `WITH blocked AS MATERIALIZED (SELECT pid FROM pg_stat_activity WHERE `+isBlocked+`)
			SELECT pid::bigint FROM blocked WHERE pg_terminate_backend(pid)`)
		return len(before) > 0
	})
	eventually(t, "another session waits for the row", func() bool {
		return query[int64](t, b.look, `SELECT count(*) FROM pg_stat_activity WHERE `+isBlocked+` AND pid <> $1`, before[0])[0] > 0
	})
	b.end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestARequestThatAnAdministratorCancelsIsUnavailable(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	a := acquire(t, d, mainRef)
	b := block(t, db, mainRef)
	done := make(chan error, 1)
	go func() {
		_, err := d.Release(t.Context(), ending(a.Token, mainRef))
		done <- err
	}()
	eventually(t, "it is cancelled", func() bool { // between two waits there is no session to find
		exec(t, b.look, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE `+isBlocked)
		return len(done) > 0
	})
	if err := <-done; !errors.Is(err, driver.ErrUnavailable) {
		t.Error(err)
	}
	b.end()
}

// provoke makes the server answer every write to refs with an SQLSTATE: the statement or, deferred,
// the commit.
func provoke(t *testing.T, c *pgx.Conn, level, code string, deferred bool) {
	t.Helper()
	exec(t, c, `CREATE SEQUENCE IF NOT EXISTS provoked`)
	exec(t, c, `DROP TRIGGER IF EXISTS provoke ON refs`)
	exec(t, c, fmt.Sprintf(`CREATE OR REPLACE FUNCTION provoke() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM nextval('provoked'); RAISE %s 'provoked' USING ERRCODE = '%s'; RETURN NULL; END $$`, level, code))
	if deferred {
		exec(t, c, `CREATE CONSTRAINT TRIGGER provoke AFTER INSERT OR UPDATE ON refs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION provoke()`)
	} else {
		exec(t, c, `CREATE TRIGGER provoke AFTER INSERT OR UPDATE ON refs FOR EACH ROW EXECUTE FUNCTION provoke()`)
	}
}

func TestErrorsAreDistinguishedByTheirCode(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	c := session(t, db.URL())
	attempts := func() int64 { return query[int64](t, c, `SELECT nextval('provoked')`)[0] }
	permanent := errors.New("permanent")
	for _, row := range []struct {
		level, code string
		deferred    bool
		want        error
		tries       int64
		says        string
		written     bool
	}{
		{level: "EXCEPTION", code: "40P01", want: driver.ErrUnavailable, tries: 4},
		{level: "EXCEPTION", code: "40001", want: driver.ErrUnavailable, tries: 4},
		{level: "EXCEPTION", code: "40001", deferred: true, want: driver.ErrUnavailable, tries: 4},
		{level: "EXCEPTION", code: "53300", want: driver.ErrUnavailable, tries: 1},
		{level: "EXCEPTION", code: "53200", want: driver.ErrUnavailable, tries: 4},
		{level: "EXCEPTION", code: "57P03", want: driver.ErrUnavailable, tries: 1},
		{level: "EXCEPTION", code: "53100", want: permanent, tries: 1, says: "free some space"},
		{level: "EXCEPTION", code: "42501", want: permanent, tries: 1, says: "grant"},
		{level: "EXCEPTION", code: "42P01", want: driver.ErrSchema, tries: 1, says: "refdbctl migrate up"},
		{level: "EXCEPTION", code: "42703", want: driver.ErrSchema, tries: 1},
		{level: "EXCEPTION", code: "P0001", want: permanent, tries: 1, says: "provoked"},
		{level: "EXCEPTION", code: "08006", want: driver.ErrOutcomeUnknown, tries: 1},
		// A commit may fail with any other code, at an unknown stage.
		{level: "EXCEPTION", code: "P0001", deferred: true, want: driver.ErrOutcomeUnknown, tries: 1},
		// A commit whose wait for the standby was cancelled behaves like this.
		{level: "WARNING", code: "01000", deferred: true, want: driver.ErrOutcomeUnknown, tries: 1, written: true},
		{level: "WARNING", code: "01000", tries: 1, written: true},
		{level: "NOTICE", code: "00000", deferred: true, tries: 1, written: true},
	} {
		t.Run(fmt.Sprintf("%s %s, with the commit: %v", row.level, row.code, row.deferred), func(t *testing.T) {
			provoke(t, c, row.level, row.code, row.deferred)
			ref := "refs/heads/" + strings.ReplaceAll(t.Name(), " ", "-")
			before := attempts()
			err := try(t.Context(), d, update(ref))
			switch {
			case row.want == nil && err != nil,
				row.want == permanent && (err == nil || driver.ClassOf(err) != driver.Permanent),
				row.want != permanent && !errors.Is(err, row.want):
				t.Errorf("got %v, want %v", err, row.want)
			}
			if err != nil && (strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), row.says)) {
				t.Errorf("%q is not one line with %q", err, row.says)
			}
			if tries := attempts() - before - 1; tries != row.tries {
				t.Errorf("made %d attempts, want %d", tries, row.tries)
			}
			refs, err := d.Get(t.Context(), project, []string{ref})
			if err != nil || (len(refs) > 0) != row.written {
				t.Errorf("the table has %v, %v", refs, err)
			}
		})
	}
}

func TestAReadOnlyServersErrorNamesARemedy(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	if err := try(t.Context(), d, update(mainRef)); err != nil {
		t.Fatal(err)
	}
	c := session(t, db.URL())
	name := query[string](t, c, `SELECT quote_ident(current_database())`)[0]
	exec(t, c, `ALTER DATABASE `+name+` SET default_transaction_read_only = on`)
	terminate(t, c, `true`)
	err := try(t.Context(), d, update(otherRef))
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "target_session_attrs=read-write") {
		t.Errorf("a write: %v", err)
	}
	if _, err := postgres.Open(t.Context(), db.URL()); err == nil || !strings.Contains(err.Error(), "default_transaction_read_only is on") {
		t.Errorf("opening: %v", err)
	}
	exec(t, c, `SET default_transaction_read_only = off`)
	exec(t, c, `ALTER DATABASE `+name+` RESET default_transaction_read_only`)
	// The connections that the error came from are closed, but not all at once.
	eventually(t, "a write succeeds again", func() bool { return try(t.Context(), d, update(otherRef)) == nil })
}

// A new connection may or may not lead to the primary. Trying one for each request would cost a
// server that stays read-only thousands of connections.
func TestConnectionsToAReadOnlyServerAreNotRetriedAtOnce(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	setDefault(t, db, `default_transaction_read_only = on`)
	terminate(t, session(t, db.URL()), `true`)
	const callers = 4
	calls := 20
	if testing.Short() {
		calls = 8
	}
	before, start := d.Connections(), time.Now()
	var work sync.WaitGroup
	for n := range callers {
		work.Go(func() {
			for range calls {
				err := try(t.Context(), d, update(fmt.Sprint("refs/heads/", n), otherRef))
				if !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("a write: %v", err)
				}
			}
		})
	}
	work.Wait()
	resets := int64(time.Since(start)/(100*time.Millisecond)) + 1
	if made := d.Connections() - before; made > callers*(1+resets) {
		t.Errorf("%d connections for %d calls, want at most %d", made, callers*calls, callers*(1+resets))
	}
}
