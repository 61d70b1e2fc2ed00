package dburl

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// An attacker between a site and its database gets neither the password nor a plaintext connection,
// unless an administrator has configured that.
func TestAConnectionToAnotherMachineIsEncryptedAndTheServerVerified(t *testing.T) {
	service := filepath.Join(t.TempDir(), "service.conf")
	if err := os.WriteFile(service, []byte("[plain]\nhost=db.example.com\nsslmode=disable\n[open]\nhost=db.example.com\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const (
		verifies = "verifies"
		encrypts = "encrypts"
		mayNot   = "may not encrypt"
		plain    = "plain"
	)
	for _, row := range []struct {
		name, address string
		env           string // PGSSLMODE
		tls, auth     string
	}{
		{"a host", "postgres://u:p@db.example.com/d", "", verifies, "scram-sha-256"},
		{"a host, with parameters", "postgres://u:p@db.example.com/d?target_session_attrs=read-write", "", verifies, "scram-sha-256"},
		{"several hosts", "postgres://u:p@db1,db2:5433/d", "", verifies, "scram-sha-256"},
		{"one of them on this machine", "postgres://u:p@localhost,db2/d", "", verifies, "scram-sha-256"},
		{"an address", "postgres://u:p@192.0.2.1/d", "", verifies, "scram-sha-256"},
		{"a host in a parameter", "postgres://u:p@/d?host=db.example.com", "", verifies, "scram-sha-256"},
		{"no password", "postgres://u@db.example.com/d", "", verifies, ""},
		{"a service without sslmode", "postgres://u:p@/d?service=open", "", verifies, "scram-sha-256"},
		{"a service with sslmode", "postgres://u:p@/d?service=plain", "", plain, "scram-sha-256"},
		{"said: disable", "postgres://u:p@db.example.com/d?sslmode=disable", "", plain, "scram-sha-256"},
		{"said: prefer", "postgres://u:p@db.example.com/d?sslmode=prefer", "", mayNot, "scram-sha-256"},
		{"said: require", "postgres://u:p@db.example.com/d?a=b&ssl%6Dode=require", "", encrypts, "scram-sha-256"},
		{"set in the environment", "postgres://u:p@db.example.com/d", "disable", plain, "scram-sha-256"},
		{"set: the password may be sent", "postgres://u:p@db.example.com/d?require_auth=password", "", verifies, "password"},
		{"this machine", "postgres://u:p@localhost/d", "", mayNot, "scram-sha-256,none"},
		{"this machine's address", "postgres://u:p@[::1],127.0.0.2/d", "", mayNot, "scram-sha-256,none"},
		{"a socket", "postgres://u:p@/d?host=/run/postgresql", "", plain, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Setenv("PGSSLMODE", row.env)
			t.Setenv("PGSERVICEFILE", service)
			if row.env == "" {
				os.Unsetenv("PGSSLMODE")
			}
			config, _, err := Parse(row.address)
			if err != nil {
				t.Fatal(err)
			}
			c := config.ConnConfig
			weakest := verifies
			for _, try := range append([]*pgconn.FallbackConfig{{Host: c.Host, TLSConfig: c.TLSConfig}}, c.Fallbacks...) {
				switch is := security(try.TLSConfig); {
				case is == plain && prefersTLS(&c.Config):
					weakest = mayNot
				case is != verifies && weakest != mayNot:
					weakest = is
				}
			}
			if weakest != row.tls || c.RequireAuth != row.auth {
				t.Errorf("the client %s, and accepts %q; want %s, %q", weakest, c.RequireAuth, row.tls, row.auth)
			}
		})
	}
}

func security(c *tls.Config) string {
	switch {
	case c == nil:
		return "plain"
	case c.InsecureSkipVerify:
		return "encrypts"
	case c.ServerName == "":
		return "names no server"
	}
	return "verifies"
}

func TestASuggestedAddressHasNoPassword(t *testing.T) {
	for address, want := range map[string]string{
		"postgres://u:secret@db/d":                                  "postgres://u:PASSWORD@db/d?sslmode=disable",
		"postgres://u@db1,db2/d?a=b&sslmode=require":                "postgres://u@db1,db2/d?a=b&sslmode=disable",
		"postgres://db/d?user=u&password=secret&sslpassword=secret": "postgres://db/d?user=u&password=PASSWORD&sslpassword=PASSWORD&sslmode=disable",
		"postgres://db/d":                                           "postgres://db/d?sslmode=disable",
	} {
		if got := suggest(address, "sslmode", "disable"); got != want {
			t.Errorf("%s becomes %s, want %s", address, got, want)
		}
	}
}
