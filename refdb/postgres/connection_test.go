package postgres_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// onlyOne opens a driver with a single connection.
func onlyOne(t *testing.T, address string) *postgres.Driver {
	t.Helper()
	return open(t, address+"&pool_max_conns=1")
}

// eachWay runs a test with an address of a database for plaintext, and with one for TLS.
func eachWay(t *testing.T, test func(t *testing.T, address string)) {
	db := dbtest.Postgres(t)
	t.Run("in plaintext", func(t *testing.T) { test(t, db.URL()) })
	t.Run("over TLS", func(t *testing.T) { test(t, overTLS(t, db.URL())) })
}

// overTLS returns the address of a proxy that speaks TLS with its clients, and plaintext with the
// server at address.
func overTLS(t *testing.T, address string) string {
	t.Helper()
	to, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	https := httptest.NewTLSServer(nil) // for its certificate
	t.Cleanup(https.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	serve := func(client net.Conn) {
		defer client.Close()
		request := make([]byte, 8) // SSLRequest; a client that cancels a request sends the same first
		if _, err := io.ReadFull(client, request); err != nil {
			return
		}
		if _, err := client.Write([]byte("S")); err != nil {
			return
		}
		inside := tls.Server(client, &tls.Config{Certificates: https.TLS.Certificates})
		network, at := pgconn.NetworkAddress(to.Host, to.Port)
		server, err := net.Dial(network, at)
		if err != nil {
			t.Error(err)
			return
		}
		defer server.Close()
		running.Go(func() {
			defer server.Close()
			io.Copy(server, inside)
		})
		io.Copy(inside, server)
	}
	running.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() { serve(client) })
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(func() { ln.Close() })
	through := url.URL{
		Scheme: "postgres", Host: ln.Addr().String(), Path: "/" + to.Database,
		User: url.UserPassword(to.User, to.Password), RawQuery: "sslmode=require",
	}
	return through.String()
}

// backend returns the process ID of the server's end of the only connection.
func backend(t *testing.T, d *postgres.Driver) (pid int32) {
	t.Helper()
	err := d.RoundTrip(t.Context(), func(rows pgx.Rows) error {
		rows.Next()
		return rows.Scan(&pid)
	}, `SELECT pg_backend_pid()`)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// Whatever the outcome of a round trip, the next one reads the answers to its own statements.
func TestARoundTripLeavesNoStateOnTheConnection(t *testing.T) {
	errRead := errors.New("can't be read")
	const rows, wide = `SELECT n FROM generate_series(1, 50000) n`, `SELECT repeat('x', 3000000)`
	tests := []struct {
		name       string
		statements []string
		read       func(pgx.Rows) error
		want       error // nil: some error of the server
		done       bool
		lost       bool // the connection is lost, too
	}{
		{name: "rows that are not read", statements: []string{rows, wide, rows}, done: true},
		{name: "rows of which one is read", statements: []string{rows, wide}, read: func(rows pgx.Rows) error {
			rows.Next()
			return nil
		}, done: true},
		{name: "rows that can't be read", statements: []string{rows, rows}, read: func(rows pgx.Rows) error {
			rows.Next()
			return errRead
		}, want: errRead},
		{name: "a value of another type", statements: []string{`SELECT 'x' UNION ALL SELECT 'y'`, rows}, read: func(rows pgx.Rows) error {
			rows.Next()
			return rows.Scan(new(time.Time))
		}, want: pgx.ScanArgError{}},
		{name: "one column more", statements: []string{`SELECT 1, 2`}, read: func(rows pgx.Rows) error {
			rows.Next()
			return rows.Scan(new(int))
		}, want: driver.ErrOutcomeUnknown},
		{name: "the first statement fails", statements: []string{`SELECT 1/0`, rows, rows}},
		{name: "the last statement fails", statements: []string{rows, wide, `SELECT 1/0`}},
		{name: "a statement fails after some rows", statements: []string{`SELECT 1/(25000-n) FROM generate_series(1, 50000) n`, rows}},
		{name: "a statement that can't be prepared", statements: []string{rows, `SELECT nothing`, rows}},
		{name: "the commit fails", statements: []string{`INSERT INTO late VALUES (1), (1)`}, want: driver.ErrOutcomeUnknown},
		{name: "the server terminates the session", statements: []string{rows, `SELECT pg_terminate_backend(pg_backend_pid())`, `SELECT pg_sleep(60)`}, want: driver.ErrUnavailable, lost: true},
	}
	eachWay(t, func(t *testing.T, address string) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				d := onlyOne(t, address)
				if err := d.RoundTrip(t.Context(), nil, `CREATE TABLE IF NOT EXISTS late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)`); err != nil {
					t.Fatal(err)
				}
				before := backend(t, d)
				for range 2 {
					err := d.RoundTrip(t.Context(), test.read, test.statements...)
					var scan pgx.ScanArgError
					switch {
					case test.done != (err == nil):
						t.Errorf("got %v", err)
					case errors.As(test.want, &scan):
						if !errors.As(err, &scan) {
							t.Errorf("got %v, want a scan's error", err)
						}
					case !errors.Is(err, test.want) && test.want != nil:
						t.Errorf("got %v, want %v", err, test.want)
					}
				}
				if after := backend(t, d); (after != before) != test.lost {
					t.Errorf("backend %d, before %d", after, before)
				}
			})
		}
	})
}

func TestAContextThatEndsDuringARoundTripEndsTheConnection(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, address string) {
		d, look := onlyOne(t, address), session(t, address)
		for _, statements := range [][]string{
			{`SELECT pg_sleep(60)`},
			{`SELECT n FROM generate_series(1, 100000) n`, `SELECT pg_sleep(60)`},
		} {
			untilInTime(t, func() (late bool) {
				before := backend(t, d)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- d.RoundTrip(ctx, nil, statements...) }()
				eventually(t, "the statements are executing", func() bool {
					return len(ended) > 0 || query[int64](t, look, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'`, before)[0] > 0
				})
				start := time.Now()
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrOutcomeUnknown) {
					t.Errorf("got %v", err)
				}
				if backend(t, d) == before {
					t.Error("the connection is still in use")
				}
				return time.Since(start) > 10*time.Second // pgx would take 15 s to close the connection
			})
		}
	})
}

func TestAContextThatEndsAfterARoundTripDoesNotAffectTheConnection(t *testing.T) {
	t.Parallel()
	d := onlyOne(t, dbtest.Postgres(t).URL())
	before := backend(t, d)
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		if err := d.RoundTrip(ctx, nil, `SELECT 1`); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := d.RoundTrip(ctx, nil, `SELECT 1`); !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrOutcomeUnknown) {
			t.Fatalf("a round trip whose context had ended: %v", err)
		}
	}
	if backend(t, d) != before {
		t.Error("the connection was closed")
	}
}

// If everything was written before anything is read, both sides would wait for the other to read.
func TestARoundTripMayExceedTheConnectionsBuffers(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, address string) {
		const size = 7_000_000 // three times, in each direction
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		back := fmt.Sprintf(`SELECT repeat('x', %d) WHERE $1::text <> ''`, size)
		if err := onlyOne(t, address).RoundTripAbout(ctx, strings.Repeat("y", size), back, back, back); err != nil {
			t.Fatal(err)
		}
	})
}

func TestStatementsArePreparedAgainAfterTheirTablesAreAltered(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := onlyOne(t, db.URL())
	before := backend(t, d)
	get := func() {
		t.Helper()
		a := acquire(t, d, mainRef)
		if _, err := d.Get(t.Context(), project, []string{mainRef}); err != nil {
			t.Error(err)
		}
		release(t, d, a, mainRef)
	}
	get()
	db.Exec(t, `ALTER TABLE refs ALTER COLUMN op TYPE varchar(100)`)
	get()
	get()
	if backend(t, d) != before {
		t.Error("the connection was closed")
	}
}
