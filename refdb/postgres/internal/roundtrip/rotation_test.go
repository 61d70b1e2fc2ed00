package roundtrip

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/jackc/pgx/v5"
)

// haveSame compares everything that adopt copies: otherwise a change of it would never be adopted.
func TestEachCredentialIsCompared(t *testing.T) {
	t.Parallel()
	parse := func() *pgx.ConnConfig {
		c, err := pgx.ParseConfig("postgres://u:one@127.0.0.1:1,127.0.0.2:2/d?sslmode=verify-full")
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if !haveSame(parse(), parse()) {
		t.Error("the same address differs from itself")
	}
	for name, change := range map[string]func(*pgx.ConnConfig){
		"the user":                     func(c *pgx.ConnConfig) { c.User = "v" },
		"the password":                 func(c *pgx.ConnConfig) { c.Password = "two" },
		"require_auth":                 func(c *pgx.ConnConfig) { c.RequireAuth = "scram-sha-256" },
		"no TLS":                       func(c *pgx.ConnConfig) { c.TLSConfig = nil },
		"the server's name":            func(c *pgx.ConnConfig) { c.TLSConfig = &tls.Config{ServerName: "other"} },
		"the CA":                       func(c *pgx.ConnConfig) { c.TLSConfig.RootCAs = x509.NewCertPool() },
		"a client's certificate":       func(c *pgx.ConnConfig) { c.TLSConfig.Certificates = []tls.Certificate{{}} },
		"no verification":              func(c *pgx.ConnConfig) { c.TLSConfig.InsecureSkipVerify = true },
		"the other host's TLS":         func(c *pgx.ConnConfig) { c.Fallbacks[0].TLSConfig = nil },
		"fewer attempts for each host": func(c *pgx.ConnConfig) { c.Fallbacks = nil },
	} {
		c := parse()
		change(c)
		if haveSame(parse(), c) {
			t.Errorf("%s: the change was not detected", name)
		}
	}
}
