// Package dburl reads the URL of a PostgreSQL database. An error never shows the password.
package dburl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/postgres/internal/roundtrip"
)

const (
	clientEncoding = "client_encoding"
	utf8           = "UTF8"

	applicationName = "refdb"
	// connectTimeout is how long connecting may take, unless the URL sets a limit.
	connectTimeout = 10 * time.Second
)

// Parse returns the configuration for a URL, and the names of the session settings that the URL or
// the environment contains. By default, a connection to another machine uses TLS with a verified
// server, and authenticates with SCRAM only.
func Parse(address string) (config *pgxpool.Config, given map[string]bool, err error) {
	if !strings.HasPrefix(address, "postgres://") && !strings.HasPrefix(address, "postgresql://") {
		return nil, nil, fmt.Errorf("%w database URL: it has to start with postgres://", driver.ErrInvalid)
	}
	refused := func(reason string) error {
		return fmt.Errorf("%w database URL: %s: expected postgres://USER:PASSWORD@HOST:PORT/DATABASE?NAME=VALUE&…, "+
			"with %%XX for special characters", driver.ErrInvalid, reason)
	}
	if isAmbiguous(address) {
		return nil, nil, refused(ambiguous)
	}
	for _, name := range libpqOnly {
		if names(address, name) {
			return nil, nil, refused("the libpq parameter " + name + " is not supported: leave it out")
		}
	}
	raw, err := pgconn.ParseConfig(address)
	if err == nil {
		config, err = pgxpool.ParseConfig(verified(address, raw))
	}
	if err != nil {
		return nil, nil, refused(reason(address))
	}
	if slices.ContainsFunc(hostsOf(raw), func(host string) bool { return strings.Contains(host, "@") && !strings.HasPrefix(host, "/") }) {
		return nil, nil, refused(ambiguous)
	}
	if level, ok := raw.RuntimeParams[roundtrip.DefaultIsolation]; ok && !strings.EqualFold(level, roundtrip.ReadCommitted) {
		return nil, nil, refused(roundtrip.DefaultIsolation + " has to be " + roundtrip.ReadCommitted)
	}
	if encoding, ok := raw.RuntimeParams[clientEncoding]; ok && !strings.EqualFold(strings.ReplaceAll(encoding, "-", ""), utf8) {
		return nil, nil, refused(clientEncoding + " has to be " + utf8)
	}
	given = make(map[string]bool)
	for name := range raw.RuntimeParams {
		given[name] = true
	}
	c := config.ConnConfig
	c.RequireAuth = requireAuth(&c.Config)
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	c.DialFunc = roundtrip.NeverCancel(dialer.DialContext)
	c.RuntimeParams[clientEncoding] = utf8 // whatever the role's setting is; a pooler passes it on
	if !given["application_name"] {
		c.RuntimeParams["application_name"] = applicationName
	}
	return config, given, nil
}

// credentials are the parameters that authenticate a connection. They may change while a program
// runs, as may the user and the password before the host.
var credentials = []string{"user", "password", "passfile", "require_auth", "sslmode", "sslcert", "sslkey", "sslrootcert", "sslpassword", "sslsni"}

// Differing returns the names of the parameters that differ between two URLs, except for
// credentials and the address of the database.
func Differing(a, b string) (names []string) {
	parameters := func(address string) url.Values {
		u, err := url.Parse("postgres://" + afterUser(address))
		if err != nil {
			return nil
		}
		return u.Query()
	}
	before, now := parameters(a), parameters(b)
	for name := range now {
		if !slices.Equal(before[name], now[name]) {
			names = append(names, name)
		}
	}
	for name := range before {
		if !now.Has(name) {
			names = append(names, name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return slices.Contains(append([]string{"host", "port", "dbname", "database"}, credentials...), name)
	})
	slices.Sort(names)
	return names
}

// libpqOnly are libpq parameters (PostgreSQL 18's manual, 32.1.2) that pgx does not implement. It
// would send them to the server as run-time settings.
var libpqOnly = []string{
	"hostaddr", "fallback_application_name", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
	"replication", "gssencmode", "gsslib", "gssdelegation", "requiressl", "requirepeer", "sslcompression", "sslcrl", "sslcrldir", "sslkeylogfile",
	"ssl_min_protocol_version", "ssl_max_protocol_version", "load_balance_hosts", "scram_client_key", "scram_server_key",
	"oauth_issuer", "oauth_client_id", "oauth_client_secret", "oauth_scope",
}

const ambiguous = "too many @: write %40 for an @ in the password, and %2F for a /"

// isAmbiguous reports whether there is another @ after the one before the host, or an @ after a
// "/". Then a part of the password would be taken for the host or the database, sent to the name
// server, and shown in errors.
func isAmbiguous(address string) bool {
	rest, _, _ := strings.Cut(afterUser(address), "?")
	return strings.Contains(rest, "@")
}

// afterUser returns the part of a URL after the scheme, the user and the password. Like pgx and
// libpq, it takes the first @ for their end; url.Parse takes the last.
func afterUser(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		return rest[i+1:]
	}
	return rest
}

// hostsOf returns all hosts that a connection may use.
func hostsOf(c *pgconn.Config) []string {
	hosts := []string{c.Host}
	for _, f := range c.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	return hosts
}

// reason returns what is wrong with a URL. The errors of pgx repeat the URL, and pgx can only guess
// which part is the password, so pgx parses it again without user and password.
func reason(address string) string {
	const unknown = "can't be parsed"
	u, err := url.Parse("postgres://" + afterUser(address))
	if err != nil {
		return unknown
	}
	q := u.Query()
	q.Del("password")
	q.Del("sslpassword")
	u.RawQuery = q.Encode()
	_, err = pgxpool.ParseConfig(u.String())
	var parse *pgconn.ParseConfigError
	if !errors.As(err, &parse) {
		return unknown
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	return text[strings.LastIndex(text, "`: ")+len("`: "):]
}
