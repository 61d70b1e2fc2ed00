package site

import (
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// openIntents are the intents of this site in the database, as far as the daemon knows: those that it recorded or
// found, without those that it ended or did not find again. They are for metrics only.
type openIntents struct {
	mu    sync.Mutex
	since map[intentKey]time.Time
}

func (o *openIntents) begin(moves []*pendingMove) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since == nil {
		o.since = map[intentKey]time.Time{}
	}
	for _, m := range moves {
		o.since[m.key()] = m.since
	}
}

func (o *openIntents) end(moves []*pendingMove) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range moves {
		delete(o.since, m.key())
	}
}

// found replaces the intents by those that the database had at the time start. Intents that were recorded later
// stay.
func (o *openIntents) found(start time.Time, intents []refdb.Intent) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	there := make(map[intentKey]time.Time, len(intents))
	for k, since := range o.since {
		if since.After(start) {
			there[k] = since
		}
	}
	for _, i := range intents {
		there[keyOf(i)] = now.Add(-i.Age)
	}
	o.since = there
}

// count returns the number of intents, and the age of the oldest; 0 if there are none.
func (o *openIntents) count() (n int, oldest time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, since := range o.since {
		oldest = max(oldest, time.Since(since))
	}
	return len(o.since), oldest
}
