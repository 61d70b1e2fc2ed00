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

func TestALeaseThatNobodyElseWantsTakesFourRoundTripsToHoldAndToRelease(t *testing.T) {
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
	db, err := refdb.New(driver, refdb.Options{Heartbeat: time.Hour, StaleAfter: 24 * time.Hour}) // no beat is counted
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
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
			trips() // prepares the statements
			start := time.Now()
			n := trips()
			for n != 4 && time.Since(start) >= 2*time.Second { // TryAcquire may have given up and been repeated
				start = time.Now()
				n = trips()
			}
			if n != 4 {
				t.Errorf("%s, %s: %d round trips", what, mode, n)
			}
		}
	}
}
