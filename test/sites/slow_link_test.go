//go:build linux

package sites

import (
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/globalrefdb/globalrefdb/internal/faultproxy"
)

// A slowLink is a site's way to PostgreSQL. It can be cut, be slow, and hold
// back what goes one way.
type slowLink struct {
	*faultproxy.Proxy
	url string // of the database through it
}

// newSlowLink starts a link to the database at that URL, which is that far away. The link ends with the test.
func newSlowLink(t testing.TB, database string, distance time.Duration) *slowLink {
	t.Helper()
	server, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(int(server.Port))
	to := faultproxy.Endpoint{Network: "tcp", Address: net.JoinHostPort(server.Host, port)}
	if filepath.IsAbs(server.Host) {
		to = faultproxy.Endpoint{Network: "unix", Address: filepath.Join(server.Host, ".s.PGSQL."+port)}
	}
	dir := shortDir(t)
	p, err := faultproxy.New(faultproxy.Options{
		Server: to, Latency: distance,
		Listen: faultproxy.Endpoint{Network: "unix", Address: filepath.Join(dir, ".s.PGSQL.5432")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	u := url.URL{Scheme: "postgres", Path: "/" + server.Database, RawQuery: url.Values{
		"host": {dir}, "user": {server.User}, "password": {server.Password}, "sslmode": {"disable"},
	}.Encode()}
	return &slowLink{p, u.String()}
}

// restore accepts connections again.
func (l *slowLink) restore(t testing.TB) {
	t.Helper()
	if err := l.Restore(); err != nil {
		t.Fatal(err)
	}
}
