package site

import "time"

// AgeSessions lets all guards have been without a session, or in it, for longer.
func (d *Daemon) AgeSessions(by time.Duration) {
	d.guards.lock()
	defer d.guards.unlock()
	for _, g := range d.guards.all {
		g.since = g.since.Add(-by)
	}
}

// WaitingForClaims counts the transactions that wait for others.
func (d *Daemon) WaitingForClaims() int {
	d.claims.mu.Lock()
	defer d.claims.mu.Unlock()
	return len(d.claims.waiting)
}
