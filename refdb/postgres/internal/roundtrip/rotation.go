package roundtrip

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"slices"
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
	read  func(context.Context) (*pgx.ConnConfig, error)
	check func(ctx context.Context, conn *pgx.Conn, before string) error
	used  atomic.Pointer[pgx.ConnConfig] // the last that worked; nil: those of the start
	turn  chan struct{}                  // has an element while a candidate is tried: one login is enough
}

// Rotate has each new connection read its credentials. A configuration that can't be read within
// the time that a connection may take, or that leads to another database, changes nothing. Another
// role is used only if check accepts a connection of it in place of the role before.
func (p *Pools) Rotate(read func(context.Context) (*pgx.ConnConfig, error), check func(ctx context.Context, conn *pgx.Conn, before string) error) {
	p.rotation.Store(&rotation{read: read, check: check, turn: make(chan struct{}, 1)})
}

// Reread reads the credentials and connects with them, also if the server has only just refused
// them. It returns what it read. If that fails, those before stay in use.
func (p *Pools) Reread(ctx context.Context) (*pgx.ConnConfig, error) {
	c := p.base()
	r := p.rotation.Load()
	if r == nil {
		return c, nil
	}
	r.adoptUsed(c)
	next, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	if !leadSame(c, next) {
		return nil, fmt.Errorf("%w change: the address names another server or another database: restart the program", driver.ErrInvalid)
	}
	return next, p.try(ctx, r, c, next)
}

// authenticate gives a configuration the credentials of now, once they have worked, and until then
// those in use.
func (p *Pools) authenticate(ctx context.Context, c *pgx.ConnConfig) {
	r := p.rotation.Load()
	if r == nil {
		return
	}
	r.adoptUsed(c)
	limited, cancel := context.WithTimeout(ctx, c.ConnectTimeout)
	defer cancel()
	next, err := r.read(limited)
	if err != nil || !leadSame(c, next) || haveSame(c, next) {
		return
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return
	}
	if r.adoptUsed(c); haveSame(c, next) || p.logins.admit(next) != nil {
		return // tried meanwhile
	}
	if p.try(ctx, r, c, next) == nil {
		adopt(c, next)
	}
}

// try connects to c's server with next's credentials. If that succeeds, they are in use.
func (p *Pools) try(ctx context.Context, r *rotation, c, next *pgx.ConnConfig) error {
	const what = "connect as the address says now"
	candidate := c.Copy()
	adopt(candidate, next)
	p.logins.watch(candidate, func() {}) // it has to pass the checks, too
	conn, err := pgx.ConnectConfig(ctx, candidate)
	if err != nil {
		if !isRefusal(err) {
			p.logins.again(candidate)
		}
		return Failure(ctx, what, Connecting, err)
	}
	defer conn.Close(ctx)
	limited, cancel := context.WithTimeout(ctx, c.ConnectTimeout)
	defer cancel()
	if err := p.settings.Load().Probe(limited, conn); err != nil {
		return Failure(ctx, what, Preparing, err)
	}
	if next.User != c.User {
		if err := r.check(limited, conn, c.User); err != nil {
			// Whatever it is, it lasts until an operator acts.
			p.logins.refuse(candidate, err, p.logins.begin())
			return err
		}
	}
	p.logins.accept(candidate)
	r.used.Store(next)
	return nil
}

// adoptUsed gives a configuration the credentials in use.
func (r *rotation) adoptUsed(c *pgx.ConnConfig) {
	if used := r.used.Load(); used != nil {
		adopt(c, used)
	}
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

// haveSame reports whether two configurations have the same credentials: all that adopt copies.
func haveSame(a, b *pgx.ConnConfig) bool {
	return a.User == b.User && a.Password == b.Password && a.RequireAuth == b.RequireAuth && sameTLS(a.TLSConfig, b.TLSConfig) &&
		slices.EqualFunc(a.Fallbacks, b.Fallbacks, func(a, b *pgconn.FallbackConfig) bool {
			return a.Host == b.Host && a.Port == b.Port && sameTLS(a.TLSConfig, b.TLSConfig)
		})
}

func sameTLS(a, b *tls.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.InsecureSkipVerify == b.InsecureSkipVerify && a.ServerName == b.ServerName && a.RootCAs.Equal(b.RootCAs) &&
		(a.VerifyPeerCertificate == nil) == (b.VerifyPeerCertificate == nil) && (a.VerifyConnection == nil) == (b.VerifyConnection == nil) &&
		slices.EqualFunc(a.Certificates, b.Certificates, func(a, b tls.Certificate) bool {
			return bytes.Equal(bytes.Join(a.Certificate, nil), bytes.Join(b.Certificate, nil))
		})
}
