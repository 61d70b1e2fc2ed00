package sessions

import (
	"context"
	"time"

	"github.com/globalrefdb/globalrefdb/site/client"
)

// silenceLimit is how long a living guard with open transactions may have no session before the
// daemon raises an alarm.
const silenceLimit = time.Minute

// RaiseSilence raises an alarm about living guards that have open transactions and no session, once
// for each.
func (gs *Guards) RaiseSilence(ctx context.Context) {
	gs.lock()
	defer gs.unlock()
	for _, g := range gs.list() {
		if g.silentAt(gs.now()) && !g.alarmed {
			g.alarmed = true
			gs.State.Counts.Alarms.Add(1)
			gs.Logger.ErrorContext(ctx, "a running guard has had no session for a minute, and its open transactions wait for it: see `refdbctl site status`",
				"process", g.id.PID, "open", len(g.transactions))
		}
	}
}

// silentAt reports whether a living guard with open transactions has had no session for too long at
// that time. The guards are locked.
func (g *guard) silentAt(now time.Time) bool {
	return !g.dead && g.session == nil && len(g.transactions) > 0 && now.Sub(g.since) > silenceLimit
}

// NeverRead returns the servers, such as Gerrits, that have never read the list of moves although
// their first session began longer ago than after: their indexes and caches follow nothing. Other
// guards need not have indexes. Reads reports whether a guard has read the list.
func (gs *Guards) NeverRead(reads func(guard string) bool, after time.Duration) (all []client.Reader) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for _, g := range gs.list() {
		if age := gs.now().Sub(g.first); g.server && g.begun && !g.dead && !reads(g.id.ID) && age > after {
			all = append(all, client.Reader{Guard: g.id.ID, Never: true, Age: age.Seconds(), Oldest: age.Seconds()})
		}
	}
	return all
}
