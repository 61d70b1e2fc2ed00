package roundtrip

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A rotation has new connections authenticate with the user, the password and the certificates that
// are configured now. Open connections go on: the server authenticates a client only once.
//
// An administrator changes a password at the server and in each site's file, one after the other.
// So new credentials are used once a connection with them has succeeded, and those before until then.
type rotation struct {
	read func() (*pgx.ConnConfig, error)
	used atomic.Pointer[pgx.ConnConfig] // the last that worked; nil: those of the start
}

// Rotate has each new connection read its credentials. A configuration that can't be read, or that
// leads to another database, changes nothing.
func (p *Pools) Rotate(read func() (*pgx.ConnConfig, error)) {
	p.rotation.Store(&rotation{read: read})
}

// Reread reads the credentials and connects with them. If that fails, those before stay in use.
func (p *Pools) Reread(ctx context.Context) error {
	r := p.rotation.Load()
	if r == nil {
		return nil
	}
	next, err := r.read()
	if err != nil {
		return err
	}
	c := p.Config().ConnConfig
	if !leadSame(c, next) {
		return fmt.Errorf("%w change: the address names another server or another database: restart the program", driver.ErrInvalid)
	}
	return r.try(ctx, c, next)
}

// authenticate gives a configuration the credentials of now.
func (p *Pools) authenticate(ctx context.Context, c *pgx.ConnConfig) {
	r := p.rotation.Load()
	if r == nil {
		return
	}
	if used := r.used.Load(); used != nil {
		adopt(c, used)
	}
	next, err := r.read()
	if err != nil || !leadSame(c, next) || haveSame(c, next) || r.try(ctx, c, next) != nil {
		return
	}
	adopt(c, next)
}

// try connects to c's server with next's credentials. If that succeeds, they are in use.
func (r *rotation) try(ctx context.Context, c, next *pgx.ConnConfig) error {
	candidate := c.Copy()
	adopt(candidate, next)
	conn, err := pgconn.ConnectConfig(ctx, &candidate.Config)
	if err != nil {
		return Failure(ctx, "connect as the address says now", Connecting, err)
	}
	conn.Close(ctx)
	r.used.Store(next)
	return nil
}

func adopt(c, from *pgx.ConnConfig) {
	from = from.Copy()
	c.User, c.Password, c.RequireAuth, c.TLSConfig, c.Fallbacks = from.User, from.Password, from.RequireAuth, from.TLSConfig, from.Fallbacks
}

// leadSame reports whether two configurations lead to the same database.
func leadSame(a, b *pgx.ConnConfig) bool {
	hosts := func(c *pgx.ConnConfig) string {
		all := fmt.Sprintf("%q %d", c.Host, c.Port)
		last := all
		for _, f := range c.Fallbacks { // with other certificates there may be more or fewer attempts for each
			if next := fmt.Sprintf("%q %d", f.Host, f.Port); next != last {
				all, last = all+" "+next, next
			}
		}
		return all
	}
	return a.Database == b.Database && hosts(a) == hosts(b)
}

// haveSame reports whether two configurations have the same credentials.
func haveSame(a, b *pgx.ConnConfig) bool {
	return a.User == b.User && a.Password == b.Password && sameTLS(a.TLSConfig, b.TLSConfig)
}

func sameTLS(a, b *tls.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.InsecureSkipVerify != b.InsecureSkipVerify || !a.RootCAs.Equal(b.RootCAs) || len(a.Certificates) != len(b.Certificates) {
		return false
	}
	for i := range a.Certificates {
		if !bytes.Equal(bytes.Join(a.Certificates[i].Certificate, nil), bytes.Join(b.Certificates[i].Certificate, nil)) {
			return false
		}
	}
	return true
}
