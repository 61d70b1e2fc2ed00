package moving

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/site/client"
)

// Alarms are the intents that only an operator can resolve.
type Alarms struct {
	mu    sync.Mutex
	stuck map[Key]alarm
}

type alarm struct {
	reason string
	since  time.Time
}

// Raise records that m is stuck. If that is new, it calls first before anybody can see it.
func (as *Alarms) Raise(m *Move, reason string, first func()) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if _, known := as.stuck[m.Key()]; !known {
		first()
	}
	if as.stuck == nil {
		as.stuck = map[Key]alarm{}
	}
	as.stuck[m.Key()] = alarm{reason, m.Since}
}

// Clear removes the alarms about moves that have ended.
func (as *Alarms) Clear(moves []*Move) {
	as.mu.Lock()
	defer as.mu.Unlock()
	for _, m := range moves {
		delete(as.stuck, m.Key())
	}
}

// Keep removes the alarms about intents that are not among these.
func (as *Alarms) Keep(intents []driver.Intent) {
	still := make(map[Key]bool, len(intents))
	for _, i := range intents {
		still[KeyOf(i)] = true
	}
	as.mu.Lock()
	defer as.mu.Unlock()
	maps.DeleteFunc(as.stuck, func(k Key, _ alarm) bool { return !still[k] })
}

// List returns the alarms in the order of projects and refs.
func (as *Alarms) List() []client.Stuck {
	as.mu.Lock()
	defer as.mu.Unlock()
	list := []client.Stuck{}
	for k, a := range as.stuck {
		list = append(list, client.Stuck{Project: k.Project, Ref: k.Ref, Reason: a.reason, Age: time.Since(a.since).Seconds()})
	}
	slices.SortFunc(list, func(a, b client.Stuck) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Ref, b.Ref))
	})
	return list
}
