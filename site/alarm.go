package site

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// alarms are the intents that nobody but an operator can resolve.
type alarms struct {
	mu    sync.Mutex
	stuck map[stuckKey]alarm
}

type alarm struct {
	reason string
	since  time.Time
}

type stuckKey struct {
	project, ref string
	token        refdb.Token
}

func (m *pending) key() stuckKey { return stuckKey{m.project, m.Ref, m.token} }

// alarm notes that m is stuck, and tells of it once.
func (d *Daemon) alarm(ctx context.Context, m *pending, reason string) {
	d.alarms.mu.Lock()
	defer d.alarms.mu.Unlock()
	if _, known := d.alarms.stuck[m.key()]; !known {
		d.counters.alarms.Add(1)
		d.o.Logger.ErrorContext(ctx, "a push can't be resolved: see `refdbctl site status`", "ref", d.digest(m.project, m.Ref))
	}
	if d.alarms.stuck == nil {
		d.alarms.stuck = map[stuckKey]alarm{}
	}
	d.alarms.stuck[m.key()] = alarm{reason, m.since}
}

// calm takes alarms about moves back.
func (d *Daemon) calm(moves []*pending) {
	d.alarms.mu.Lock()
	defer d.alarms.mu.Unlock()
	for _, m := range moves {
		delete(d.alarms.stuck, m.key())
	}
}

// list is in the order of projects and refs.
func (as *alarms) list() []Stuck {
	as.mu.Lock()
	defer as.mu.Unlock()
	list := []Stuck{}
	for k, a := range as.stuck {
		list = append(list, Stuck{Project: k.project, Ref: k.ref, Reason: a.reason, Age: time.Since(a.since).Seconds()})
	}
	slices.SortFunc(list, func(a, b Stuck) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Ref, b.Ref))
	})
	return list
}
