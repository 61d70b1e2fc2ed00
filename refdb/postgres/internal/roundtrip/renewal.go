package roundtrip

import (
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// renewalPause is the least time between two renewals. Without it, each attempt on a server that
// stays read-only would open a new connection.
const renewalPause = 100 * time.Millisecond

// A renewal closes all connections of some pools when one of them turns out to lead to a server
// that accepts no writes: it is not the primary, or no longer is. New connections may reach the
// primary.
type renewal struct {
	mu      sync.Mutex
	made    int64 // number of connections so far
	givenUp int64 // number of connections made before the last renewal
	last    time.Time
}

// count numbers a new connection.
func (r *renewal) count(conn *pgconn.PgConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made++
	notesOn(conn).number = r.made
}

// renew resets the pools because of conn, unless conn was made before the last renewal, or the last
// renewal was less than renewalPause ago.
func (r *renewal) renew(conn *pgconn.PgConn, pools ...*pgxpool.Pool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if notesOn(conn).number <= r.givenUp || time.Since(r.last) < renewalPause {
		return
	}
	r.givenUp, r.last = r.made, time.Now()
	for _, p := range pools {
		p.Reset()
	}
}
