package sessions

import (
	"cmp"
	"time"
)

// Limits holds the time limits of sessions and decisions. Zero stands for the protocol's limit;
// only tests set others.
type Limits struct {
	Decision time.Duration // between a look at a project's rules and the answer to an announcement
	Silence  time.Duration // without a message of the guard
	Write    time.Duration // while the guard reads nothing, and something waits
}

// SetLimits changes the limits of decisions and sessions that begin from now on: for tests.
func (gs *Guards) SetLimits(l Limits) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.limited = l
}

func (gs *Guards) limits() Limits {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	l := gs.limited
	return Limits{cmp.Or(l.Decision, longestDecision), cmp.Or(l.Silence, sessionSilence), cmp.Or(l.Write, sessionWrite)}
}
