package heartbeat

import "time"

// Stats are the state of a keeper at one moment.
type Stats struct {
	Leases int // leases that have not ended
	// Left is the time until the first of these leases expires unless a beat succeeds before; 0 if
	// there are none.
	Left time.Duration
	// Late is how long the latest beat was overdue when it was sent. A beat is late if the process
	// could not run, or if the previous beat took too long.
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
