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

// A rotation makes new connections authenticate with the user, the password and the certificates
// that are configured now. Open connections stay: the server authenticates a client only once.
//
// An administrator changes a password at the server and in each site's file, one after the other.
// So new credentials are used once a connection with them has succeeded, and the previous ones
// until then.
type rotation struct {
	read  func(context.Context) (*pgx.ConnConfig, error)
	check func(ctx context.Context, conn *pgx.Conn, before string) error
	used  atomic.Pointer[pgx.ConnConfig] // the last ones that worked; nil: the initial ones
	turn  chan struct{}                  // has an element while a candidate is tried: one login is enough
}

// Rotate makes each new connection read its credentials. A configuration that can't be read within
// the connect timeout, or that leads to another database, changes nothing. Another role is used
// only if check accepts a connection with it in place of the previous role.
func (p *Pools) Rotate(read func(context.Context) (*pgx.ConnConfig, error), check func(ctx context.Context, conn *pgx.Conn, before string) error) {
	p.rotation.Store(&rotation{read: read, check: check, turn: make(chan struct{}, 1)})
}

// Reread reads the credentials and connects with them, even if the server has just refused them. It
// returns the configuration that it read. If it fails, the previous credentials stay in use.
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

// authenticate sets the current credentials in a configuration, if they work, and otherwise those
// in use.
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
		return // another connection has tried them meanwhile
	}
	if p.try(ctx, r, c, next) == nil {
		adopt(c, next)
	}
}

// try connects to c's server with next's credentials. If that succeeds, they are in use from then
// on.
func (p *Pools) try(ctx context.Context, r *rotation, c, next *pgx.ConnConfig) error {
	const what = "connect with the credentials in the address"
	candidate := c.Copy()
	adopt(candidate, next)
	p.logins.watch(candidate, func() {}) // a login is not enough: the candidate also has to pass the checks
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
			// Whatever the reason, it lasts until an operator acts.
			p.logins.refuse(candidate, err, p.logins.begin())
			return err
		}
	}
	p.logins.accept(candidate)
	r.used.Store(next)
	return nil
}

// adoptUsed sets the credentials in use in a configuration.
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
		for _, f := range c.Fallbacks { // other certificates may mean more or fewer attempts for each host
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
