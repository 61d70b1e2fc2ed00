package dburl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// scram is the only password authentication method that reveals the password neither to the server
// nor to an eavesdropper, and that authenticates the server, too.
const scram = "scram-sha-256"

// verified adds sslmode=verify-full to an address of another machine that has no sslmode. The
// default of libpq and pgx, prefer, falls back to plaintext as soon as the server, or an attacker
// in its place, refuses TLS.
func verified(address string, c *pgconn.Config) string {
	if !isRemote(c) || names(address, "sslmode", "ssl") || os.Getenv("PGSSLMODE") != "" || !prefersTLS(c) {
		return address
	}
	return with(address, "sslmode", "verify-full")
}

// requireAuth returns the authentication methods that the client accepts. A setting in the address
// or the environment wins. Without a password, no method can reveal one. A server on this machine
// may also trust its clients.
func requireAuth(c *pgconn.Config) string {
	switch {
	case c.RequireAuth != "" || c.Password == "":
		return c.RequireAuth
	case isRemote(c):
		return scram
	case slices.ContainsFunc(hostsOf(c), func(host string) bool { return !isSocket(host) }):
		return scram + ",none"
	}
	return ""
}

// prefersTLS reports whether the client tries a host with TLS first and then in plaintext, as
// sslmode=prefer does. A service file may have set another mode.
func prefersTLS(c *pgconn.Config) bool {
	tries := append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	for i, next := range tries[1:] {
		if try := tries[i]; try.Host == next.Host && try.Port == next.Port && try.TLSConfig != nil && next.TLSConfig == nil {
			return true
		}
	}
	return false
}

// isRemote reports whether a connection may be made to another machine.
func isRemote(c *pgconn.Config) bool {
	return slices.ContainsFunc(hostsOf(c), func(host string) bool { return !isSocket(host) && !isLoopback(host) })
}

func isSocket(host string) bool {
	network, _ := pgconn.NetworkAddress(host, 1)
	return network == "unix"
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// names reports whether an address has one of the given parameters.
func names(address string, parameters ...string) bool {
	_, query, _ := strings.Cut(afterUser(address), "?")
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if name, err := url.QueryUnescape(name); err == nil && slices.Contains(parameters, name) {
			return true
		}
	}
	return false
}

// with returns the address with one more parameter.
func with(address, name, value string) string {
	separator := "?"
	if strings.Contains(afterUser(address), "?") {
		separator = "&"
	}
	return address + separator + name + "=" + url.QueryEscape(value)
}

// Explain adds the URL to use to a connection error that the server's TLS or authentication
// settings caused. pgx has no types for three of these errors; a test fails if pgx changes their
// text.
func Explain(address string, err error) error {
	if err == nil {
		return nil
	}
	var name x509.HostnameError
	var certificate *tls.CertificateVerificationError
	switch text := err.Error(); {
	case strings.Contains(text, "server did not complete authentication"):
		return fmt.Errorf("%w: the server asked for no password, so it may be any server: set scram-sha-256 in its pg_hba.conf or, on a trusted network, use %s",
			err, suggest(address, "require_auth", "none"))
	case strings.Contains(text, "require_auth check failed"):
		return fmt.Errorf("%w: store the password as SCRAM (password_encryption = scram-sha-256, then ALTER ROLE … PASSWORD) and set scram-sha-256 in pg_hba.conf, "+
			"or, if the server needs the password in plaintext, as for a cloud provider's tokens, use %s", err, suggest(address, "require_auth", "password"))
	case strings.Contains(text, "server refused TLS connection"):
		return fmt.Errorf("%w: the server has TLS turned off: set ssl = on there or, on a trusted network, use %s",
			err, suggest(address, "sslmode", "disable"))
	case errors.As(err, &name):
		return fmt.Errorf("%w: use the host name in the server's certificate or, if its CA signs no other servers, %s",
			err, suggest(address, "sslmode", "verify-ca"))
	case errors.As(err, &certificate):
		return fmt.Errorf("%w: name the certificate file of the CA that signed the server's certificate: %s",
			err, suggest(address, "sslrootcert", "/etc/refdb/database-ca.pem"))
	}
	return err
}

// suggest returns the address with a new value of one parameter, and without the password.
func suggest(address, name, value string) string {
	scheme, rest, _ := strings.Cut(address, "://")
	user := strings.TrimSuffix(strings.TrimSuffix(rest, afterUser(address)), "@")
	if u, _, hasPassword := strings.Cut(user, ":"); hasPassword {
		user = u + ":PASSWORD"
	}
	if user != "" {
		user += "@"
	}
	server, query, _ := strings.Cut(afterUser(address), "?")
	var parameters []string
	for part := range strings.SplitSeq(query, "&") {
		switch key, _, _ := strings.Cut(part, "="); key {
		case "", name:
		case "password", "sslpassword":
			parameters = append(parameters, key+"=PASSWORD")
		default:
			parameters = append(parameters, part)
		}
	}
	parameters = append(parameters, name+"="+value)
	return scheme + "://" + user + server + "?" + strings.Join(parameters, "&")
}
