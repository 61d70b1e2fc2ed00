package lease_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/globalrefdb/globalrefdb/internal/faultproxy"
	"github.com/globalrefdb/globalrefdb/lease"
	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/postgres"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

func TestAnUncontendedLeaseTakesFourRoundTrips(t *testing.T) {
	t.Parallel()
	to, err := pgx.ParseConfig(dbtest.Postgres(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	var wire faultproxy.Postgres
	var server faultproxy.Endpoint
	server.Network, server.Address = pgconn.NetworkAddress(to.Host, to.Port)
	proxy, err := faultproxy.New(faultproxy.Options{Server: server, Filter: wire.Connection})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	address := url.URL{
		Scheme: "postgres", Host: proxy.Address(), Path: "/" + to.Database, User: url.UserPassword(to.User, to.Password),
		RawQuery: url.Values{"sslmode": {"disable"}, "pool_max_conns": {"1"}}.Encode(),
	}
	driver, err := postgres.Open(t.Context(), address.String())
	if err != nil {
		t.Fatal(err)
	}
	// Neither beats nor checks of the schema are counted.
	db, err := refdb.New(struct{ refdb.Driver }{driver}, refdb.Options{Heartbeat: time.Hour, StaleAfter: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	spares := func() (used uint64) {
		for _, p := range driver.Stats().Pools[1:] {
			used += p.Acquired
		}
		return used
	}
	for what, ask := range asks() {
		for _, mode := range []lease.Mode{lease.Shared, lease.Exclusive} {
			trips := func() int64 {
				before := wire.RoundTrips.Load()
				l, err := ask(t.Context(), db, project, name, mode)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				return wire.RoundTrips.Load() - before
			}
			var n int64
			for range 20 {
				start, before := time.Now(), spares()
				trips() // prepares the statements
				n = trips()
				// On a busy machine TryAcquire may give up and be repeated, and a release may take a spare connection, which has no statements yet.
				if disturbed := time.Since(start) >= 2*time.Second || spares() > before; !disturbed {
					break
				}
			}
			if n != 4 {
				t.Errorf("%s, %s: %d round trips", what, mode, n)
			}
		}
	}
}
