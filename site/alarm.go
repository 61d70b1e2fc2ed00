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
	stuck map[intentKey]alarm
}

type alarm struct {
	reason string
	since  time.Time
}

// An intentKey names an intent.
type intentKey struct {
	Project string      `json:"project"`
	Ref     string      `json:"ref"`
	Token   refdb.Token `json:"token"`
}

func keyOf(i refdb.Intent) intentKey { return intentKey{i.Project, i.Ref, i.Token} }

func (m *pending) key() intentKey { return intentKey{m.project, m.Ref, m.token} }

// alarm notes that m is stuck, and tells of it once.
func (d *Daemon) alarm(ctx context.Context, m *pending, reason string) {
	d.alarms.mu.Lock()
	defer d.alarms.mu.Unlock()
	if _, known := d.alarms.stuck[m.key()]; !known {
		d.counters.alarms.Add(1)
		d.o.Logger.ErrorContext(ctx, "a push can't be resolved: see `refdbctl site status`", "ref", d.digest(m.project, m.Ref))
	}
	if d.alarms.stuck == nil {
		d.alarms.stuck = map[intentKey]alarm{}
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
		list = append(list, Stuck{Project: k.Project, Ref: k.Ref, Reason: a.reason, Age: time.Since(a.since).Seconds()})
	}
	slices.SortFunc(list, func(a, b Stuck) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Ref, b.Ref))
	})
	return list
}
