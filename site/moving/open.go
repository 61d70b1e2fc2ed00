package moving

import (
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// Open holds the site's intents in the database, as far as the daemon knows: those that it recorded
// or found, without those that it ended or did not find again. They are for metrics only.
type Open struct {
	mu    sync.Mutex
	since map[Key]time.Time
}

// Begin adds the intents of moves that were announced.
func (o *Open) Begin(moves []*Move) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since == nil {
		o.since = map[Key]time.Time{}
	}
	for _, m := range moves {
		o.since[m.Key()] = m.Since
	}
}

// End removes the intents of moves that have ended.
func (o *Open) End(moves []*Move) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range moves {
		delete(o.since, m.Key())
	}
}

// Found replaces the intents by those that the database had at the time start. Intents that were
// recorded later stay.
func (o *Open) Found(start time.Time, intents []driver.Intent) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	there := make(map[Key]time.Time, len(intents))
	for k, since := range o.since {
		if since.After(start) {
			there[k] = since
		}
	}
	for _, i := range intents {
		there[KeyOf(i)] = now.Add(-i.Age)
	}
	o.since = there
}

// Count returns the number of intents, and the age of the oldest; 0 if there are none.
func (o *Open) Count() (n int, oldest time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, since := range o.since {
		oldest = max(oldest, time.Since(since))
	}
	return len(o.since), oldest
}
