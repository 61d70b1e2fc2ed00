package postgres_test

import (
	"context"
	"crypto/rand"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestConformance(t *testing.T) {
	refdbtest.Run(t, func(tb testing.TB) refdbtest.Database { return dbtest.Postgres(tb) })
}

// Requests of a process alternate between two drivers, which queue them for shared round trips. One run catches what either breaks.
func TestConformanceAlternatingWithSharedRoundTrips(t *testing.T) {
	if testing.Short() {
		t.Skip("left out by -short: the suite with requests that alternate between two drivers and share round trips; make test-all runs it")
	}
	refdbtest.Run(t, refdbtest.Alternating(func(tb testing.TB) refdbtest.Database { return sharing{dbtest.Postgres(tb)} }))
}

// sharing opens drivers whose requests always queue for a shared round trip. There are many drivers, so each has few connections.
type sharing struct{ *dbtest.Database }

func (s sharing) Open(tb testing.TB) driver.Driver {
	d := open(tb, with(tb, s.URL(), "pool_max_conns", "4"))
	d.ShareAll()
	return d
}

const (
	project  = "a/project"
	mainRef  = "refs/heads/main"
	otherRef = "refs/heads/other"

	v1 driver.Value = "1111111111111111111111111111111111111111"
	v2 driver.Value = "2222222222222222222222222222222222222222"
)

// open opens a driver and closes it when the test ends.
func open(tb testing.TB, url string) *postgres.Driver {
	tb.Helper()
	d, err := postgres.Open(tb.Context(), url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Error(err)
		}
	})
	return d
}

// with returns the URL with one more parameter.
func with(tb testing.TB, address, name, value string) string {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

const owner = "site/1"

// request returns a request for locks of the project that stay fresh.
func request(refs ...string) driver.AcquireRequest {
	return driver.AcquireRequest{Project: project, Refs: refs, Owner: owner, Nonce: rand.Text(), StaleAfter: time.Hour}
}

// intention returns a request for intents that move refs of the project.
func intention(old, new driver.Value, refs ...string) driver.PrepareRequest {
	return driver.PrepareRequest{Project: project, Updates: moves(old, new, refs...), Owner: owner, Nonce: rand.Text(), Agent: "boot:1:2"}
}

func moves(old, new driver.Value, refs ...string) (updates []driver.Update) {
	for _, ref := range refs {
		updates = append(updates, driver.Update{Ref: ref, Old: old, New: new})
	}
	return updates
}

func acquire(tb testing.TB, d driver.Driver, refs ...string) driver.Acquired {
	tb.Helper()
	a, err := d.Acquire(tb.Context(), request(refs...))
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// ids returns the IDs of an acquisition's locks, or of a preparation's intents.
func ids(token driver.Token, refs ...string) []driver.LockID {
	var all []driver.LockID
	for _, ref := range refs {
		all = append(all, driver.LockID{Project: project, Ref: ref, Owner: owner, Token: token})
	}
	return all
}

// ending returns a request to release an acquisition.
func ending(token driver.Token, refs ...string) driver.ReleaseRequest {
	return driver.ReleaseRequest{Project: project, Refs: refs, Owner: owner, Token: token}
}

// release releases an acquisition that must exist.
func release(tb testing.TB, d driver.Driver, a driver.Acquired, refs ...string) {
	tb.Helper()
	if released, err := d.Release(tb.Context(), ending(a.Token, refs...)); err != nil || released.Missing != nil {
		tb.Fatal(released, err)
	}
}

// released reports whether a release ended all of its locks.
func released(d driver.Driver, r driver.ReleaseRequest) (bool, error) {
	got, err := d.Release(context.Background(), r)
	return err == nil && got.Missing == nil, err
}

// fence is the lock of an acquisition, which the update keeps.
func fence(token driver.Token, refs ...string) *driver.Fence {
	return &driver.Fence{Refs: refs, Owner: owner, Token: token}
}

// releasing is the same lock, which the update releases.
func releasing(token driver.Token, refs ...string) *driver.Fence {
	f := fence(token, refs...)
	f.Release = true
	return f
}

// update is an unfenced update that creates refs.
func update(refs ...string) driver.UpdateRequest {
	return driver.UpdateRequest{Project: project, Origin: driver.Origin{ID: rand.Text()}, Updates: moves("", v1, refs...)}
}

// try makes an update.
func try(ctx context.Context, d driver.Driver, r driver.UpdateRequest) error {
	return d.Update(ctx, r)
}

// done finishes the intents of a preparation as done; dropped drops them.
func done(token driver.Token, old, new driver.Value, refs ...string) driver.FinishRequest {
	return driver.FinishRequest{Project: project, Origin: driver.Origin{ID: "done", Owner: owner}, Token: token, Done: moves(old, new, refs...)}
}

func dropped(token driver.Token, refs ...string) driver.FinishRequest {
	return driver.FinishRequest{Project: project, Origin: driver.Origin{ID: "dropped", Owner: owner}, Token: token, Dropped: refs}
}

// session is a plain connection beside the driver's.
func session(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	c, err := pgx.Connect(tb.Context(), url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

// waitersForTable counts the sessions that wait for a lock on the table $1. The databases of other
// tests are copies of one template, so their tables have the same number.
const waitersForTable = `SELECT count(*) FROM pg_locks WHERE relation = $1::regclass AND NOT granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

func exec(tb testing.TB, c *pgx.Conn, sql string, args ...any) {
	tb.Helper()
	if _, err := c.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// query returns the first column of all rows.
func query[T any](tb testing.TB, c *pgx.Conn, sql string, args ...any) []T {
	tb.Helper()
	rows, err := c.Query(tb.Context(), sql, args...)
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return all
}

// terminate terminates the sessions of the driver that where selects, as an administrator would.
func terminate(tb testing.TB, c *pgx.Conn, where string) {
	tb.Helper()
	exec(tb, c, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name = 'refdb' AND datname = current_database() AND `+where)
}

// patience is how long a test waits for an event that is certain, however busy the machine is.
const patience = 5 * time.Minute

// eventually polls until ok is true.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("gave up waiting until %s", what)
		}
	}
}
