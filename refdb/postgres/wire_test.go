package postgres_test

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/globalrefdb/globalrefdb/internal/faultproxy"
)

// A wire is a proxy in front of the server that counts round trips, loses them, and can be cut.
type wire struct {
	url      string // of the database, through the proxy
	proxy    *faultproxy.Proxy
	postgres faultproxy.Postgres
}

// A fault is the fate of the next round trip that executes a statement.
type fault = faultproxy.Loss

const (
	loseRequest = faultproxy.LoseRequest
	loseReply   = faultproxy.LoseReply
)

func newWire(tb testing.TB, address string) *wire {
	tb.Helper()
	to, err := pgx.ParseConfig(address)
	if err != nil {
		tb.Fatal(err)
	}
	w := &wire{}
	var server faultproxy.Endpoint
	server.Network, server.Address = pgconn.NetworkAddress(to.Host, to.Port)
	if w.proxy, err = faultproxy.New(faultproxy.Options{Server: server, Filter: w.postgres.Connection}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(w.proxy.Close)
	through := url.URL{
		Scheme: "postgres", Host: w.proxy.Address(), Path: "/" + to.Database,
		User:     url.UserPassword(to.User, to.Password),
		RawQuery: url.Values{"sslmode": {"disable"}, "pool_max_conns": {"1"}}.Encode(),
	}
	w.url = through.String()
	return w
}

// cut ends all connections, and refuses new ones.
func (w *wire) cut() { w.proxy.Cut() }

// inject makes the next round trip fail.
func (w *wire) inject(f fault) { w.postgres.Lose(f) }

// count returns how many round trips do takes.
func (w *wire) count(do func()) int {
	before := w.postgres.RoundTrips.Load()
	do()
	return int(w.postgres.RoundTrips.Load() - before)
}
