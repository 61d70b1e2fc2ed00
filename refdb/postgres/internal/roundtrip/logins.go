package roundtrip

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// How long logins with credentials that the server has refused are suspended. The pause doubles
// with each refusal. Many servers lock a role after a few failed logins within a minute.
const (
	firstLoginPause = 5 * time.Second
	lastLoginPause  = time.Minute

	// mostLogins is how many credentials are remembered: those in use, the candidate, and some that
	// were written by mistake.
	mostLogins = 8
)

// logins hold the outcome of the latest login with each of a few credentials. Requests retry several
// times a second: without a pause each retry would be a failed login.
//
// When the server refuses credentials that it accepted before, an administrator has changed the
// password, and other credentials may be right now. So a new epoch begins, in which the refusals of
// logins from earlier epochs cause no pause.
type logins struct {
	first time.Duration // firstLoginPause, unless a test counts logins

	mu    sync.Mutex
	known []*attempt // in the order of their outcomes
	epoch int
}

// An attempt is the latest login with the credentials of one configuration.
type attempt struct {
	of  *pgx.ConnConfig
	err error // nil: the server accepted them

	// Of a refusal:
	pause time.Duration
	until time.Time
	epoch int // in which the refused login began
}

func (l *logins) find(c *pgx.ConnConfig) int {
	return slices.IndexFunc(l.known, func(k *attempt) bool { return haveSame(k.of, c) })
}

// record replaces the outcome of an earlier login with the same credentials.
func (l *logins) record(k *attempt) {
	if i := l.find(k.of); i >= 0 {
		l.known = slices.Delete(l.known, i, i+1)
	} else if len(l.known) == mostLogins {
		l.known = slices.Delete(l.known, 0, 1)
	}
	l.known = append(l.known, k)
}

// begin returns the epoch in which a login begins.
func (l *logins) begin() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// admit returns nil if a login with c's credentials may be attempted now. If the server has refused
// them, it admits one attempt after each pause, and one in each new epoch.
func (l *logins) admit(c *pgx.ConnConfig) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.find(c)
	if i < 0 || l.known[i].err == nil {
		return nil
	}
	k, now := l.known[i], time.Now()
	if now.Before(k.until) && k.epoch == l.epoch {
		return fmt.Errorf("%w; no login is attempted with them for %v", k.err, max(k.until.Sub(now), time.Second).Round(time.Second))
	}
	// The new pause applies to all other logins, and to later ones if this attempt has no outcome.
	k.pause = min(2*k.pause, max(lastLoginPause, l.first))
	k.until, k.epoch = now.Add(k.pause), l.epoch
	return nil
}

// refuse records that the server has refused c's credentials, in a login that began in the given
// epoch. Concurrent logins count as one.
func (l *logins) refuse(c *pgx.ConnConfig, err error, epoch int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, now := l.find(c), time.Now()
	if i >= 0 && l.known[i].err != nil {
		k := l.known[i]
		k.err, k.until, k.epoch = err, now.Add(k.pause), max(k.epoch, epoch)
		return
	}
	if i >= 0 {
		l.epoch++
		epoch = l.epoch
	}
	l.record(&attempt{of: c.Copy(), err: err, pause: l.first, until: now.Add(l.first), epoch: epoch})
}

// accept records that a login with c's credentials has succeeded.
func (l *logins) accept(c *pgx.ConnConfig) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record(&attempt{of: c.Copy()})
}

// again ends the pause of c's credentials, because an attempt had no outcome.
func (l *logins) again(c *pgx.ConnConfig) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.find(c); i >= 0 {
		l.known[i].until = time.Time{}
	}
}

// watch records a refusal of the login with c, which begins now, and calls accepted after a
// successful login.
func (l *logins) watch(c *pgx.ConnConfig, accepted func()) {
	epoch := l.begin()
	var in atomic.Bool // the session has begun: later errors are not the login's
	with := c.Copy()
	onError, connected := c.OnPgError, c.AfterConnect
	c.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if isRefusal(err) && !in.Load() {
			l.refuse(with, err, epoch)
		}
		return onError == nil || onError(conn, err)
	}
	c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		in.Store(true)
		accepted()
		if connected == nil {
			return nil
		}
		return connected(ctx, conn)
	}
}

// isRefusal reports whether a server has refused the user, the password or the certificate.
func isRefusal(err error) bool {
	code := Code(err)
	return code == wrongPassword || code == wrongAuthorization
}
