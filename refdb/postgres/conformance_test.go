package postgres_test

import (
	"context"
	"crypto/rand"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func TestConformance(t *testing.T) {
	refdbtest.Run(t, func(tb testing.TB) refdbtest.Database { return dbtest.Postgres(tb) })
}

func TestConformanceWhereTripsAreShared(t *testing.T) {
	refdbtest.Run(t, func(tb testing.TB) refdbtest.Database { return sharing{dbtest.Postgres(tb)} })
}

// sharing opens drivers whose requests queue for a shared trip, always.
type sharing struct{ *dbtest.Database }

func (s sharing) Open(tb testing.TB) refdb.Driver {
	d := open(tb, s.URL())
	d.ShareAll()
	return d
}

const (
	project  = "a/project"
	mainRef  = "refs/heads/main"
	otherRef = "refs/heads/other"

	v1 refdb.Value = "1111111111111111111111111111111111111111"
	v2 refdb.Value = "2222222222222222222222222222222222222222"
)

// open opens a driver, which is closed when the test ends.
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

// request asks for locks of the project that stay fresh.
func request(refs ...string) refdb.AcquireRequest {
	return refdb.AcquireRequest{Project: project, Refs: refs, Owner: "site/1", Nonce: rand.Text(), StaleAfter: time.Hour}
}

// intention asks for intents that move refs of the project.
func intention(old, new refdb.Value, refs ...string) refdb.AcquireRequest {
	r := request(refs...)
	r.StaleAfter, r.Agent = refdb.NeverStale, "boot:1:2"
	for _, ref := range refs {
		r.Intents = append(r.Intents, refdb.Update{Ref: ref, Old: old, New: new})
	}
	return r
}

func acquire(tb testing.TB, d refdb.Driver, refs ...string) refdb.Acquired {
	tb.Helper()
	a, err := d.Acquire(tb.Context(), request(refs...))
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// held names the rows of an acquisition.
func held(a refdb.Acquired, refs ...string) []refdb.Held {
	var all []refdb.Held
	for _, ref := range refs {
		all = append(all, refdb.Held{Project: project, Ref: ref, Token: a.Token})
	}
	return all
}

// named names the intents of an acquisition.
func named(a refdb.Acquired, refs ...string) []refdb.Intent {
	var all []refdb.Intent
	for _, ref := range refs {
		all = append(all, refdb.Intent{Project: project, Ref: ref, Token: a.Token})
	}
	return all
}

// update is an unfenced transaction that creates, or moves from v1 to v2.
func update(refs ...string) refdb.Transaction {
	t := refdb.Transaction{Project: project, ID: rand.Text()}
	for _, ref := range refs {
		t.Updates = append(t.Updates, refdb.Update{Ref: ref, New: v1})
	}
	return t
}

// session is a plain connection beside the driver's.
func session(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	c, err := pgx.Connect(tb.Context(), url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		c.Close(ctx)
	})
	return c
}

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

// terminate ends the driver's sessions that where selects, as an administrator does.
func terminate(tb testing.TB, c *pgx.Conn, where string) {
	tb.Helper()
	exec(tb, c, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name = 'refdb' AND datname = current_database() AND `+where)
}

// eventually polls until ok is true.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("waited in vain until %s", what)
		}
	}
}
