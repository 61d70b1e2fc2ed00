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

// How long no login is attempted with credentials that the server has refused. The pause doubles
// with each refusal. Many servers lock a role after a few failed logins within a minute.
const (
	firstLoginPause = 5 * time.Second
	lastLoginPause  = time.Minute

	// mostRefusals is how many credentials are remembered: those in use, the candidate, and some that
	// were written by mistake.
	mostRefusals = 8
)

// refusals are the credentials that the server has refused. Requests repeat what failed several
// times a second: without a pause each of them would be a failed login.
type refusals struct {
	first time.Duration // firstLoginPause, unless a test counts logins

	mu    sync.Mutex
	known []*refusal // the latest last
}

// A refusal is of the credentials of one configuration.
type refusal struct {
	of    *pgx.ConnConfig
	err   error
	pause time.Duration
	until time.Time
}

func (r *refusals) find(c *pgx.ConnConfig) int {
	return slices.IndexFunc(r.known, func(k *refusal) bool { return haveSame(k.of, c) })
}

// admit returns nil if a login with c's credentials may be attempted now. If the server has refused
// them, one attempt follows each pause.
func (r *refusals) admit(c *pgx.ConnConfig) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.find(c)
	if i < 0 {
		return nil
	}
	k, now := r.known[i], time.Now()
	if now.Before(k.until) {
		return fmt.Errorf("%w; no login is attempted with them for %v", k.err, max(k.until.Sub(now), time.Second).Round(time.Second))
	}
	// The pause applies to all others, and to whoever follows if this attempt has no outcome.
	k.pause = min(2*k.pause, max(lastLoginPause, r.first))
	k.until = now.Add(k.pause)
	return nil
}

// refuse records that the server has refused c's credentials. Logins that were under way at the
// same time count as one.
func (r *refusals) refuse(c *pgx.ConnConfig, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(c); i >= 0 {
		k := r.known[i]
		k.err, k.until = err, time.Now().Add(k.pause)
		return
	}
	if len(r.known) == mostRefusals {
		r.known = slices.Delete(r.known, 0, 1)
	}
	r.known = append(r.known, &refusal{of: c.Copy(), err: err, pause: r.first, until: time.Now().Add(r.first)})
}

// accept forgets what was refused of c's credentials: a login with them has succeeded.
func (r *refusals) accept(c *pgx.ConnConfig) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(c); i >= 0 {
		r.known = slices.Delete(r.known, i, i+1)
	}
}

// again ends the pause of c's credentials: an attempt had no outcome.
func (r *refusals) again(c *pgx.ConnConfig) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(c); i >= 0 {
		r.known[i].until = time.Time{}
	}
}

// lift ends the pause of all credentials but c's, for one attempt: the server has just begun to
// refuse those, so that others may be right now.
func (r *refusals) lift(c *pgx.ConnConfig) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.known {
		if !haveSame(k.of, c) {
			k.until = time.Time{}
		}
	}
}

// watch has the outcome of the login with c recorded. refused is called if c's credentials are
// refused.
func (r *refusals) watch(c *pgx.ConnConfig, refused func()) {
	var in atomic.Bool // the session has begun: its errors are not the login's
	with := c.Copy()
	onError, connected := c.OnPgError, c.AfterConnect
	c.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if isRefusal(err) && !in.Load() {
			r.refuse(with, err)
			refused()
		}
		return onError == nil || onError(conn, err)
	}
	c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		in.Store(true)
		r.accept(with)
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
