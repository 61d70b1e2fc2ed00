package heartbeat

import "time"

// Stats are the state of a keeper at one moment.
type Stats struct {
	Leases int // that stand
	// Left is the time until the first of them expires, unless a beat succeeds
	// before; 0 if there are none.
	Left time.Duration
	// Late is how long after it was due the latest beat was sent. A beat is late if the
	// process could not run, or if the beat before it took too long.
	Late time.Duration
}

// Stats returns the keeper's present state.
func (k *Keeper[T]) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := Stats{Leases: len(k.leases), Late: k.late}
	if len(k.leases) > 0 {
		s.Left = max(0, time.Duration(k.leases[0].deadline-k.now()))
	}
	return s
}
