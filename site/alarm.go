package site

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/site/client"
)

// alarms are the intents that only an operator can resolve.
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

func (m *pendingMove) key() intentKey { return intentKey{m.project, m.Ref, m.token} }

// raiseAlarm records that m is stuck, and logs that once.
func (d *Daemon) raiseAlarm(ctx context.Context, m *pendingMove, reason string) {
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

// clearAlarms removes the alarms about moves that have ended.
func (d *Daemon) clearAlarms(moves []*pendingMove) {
	d.open.end(moves)
	d.alarms.mu.Lock()
	defer d.alarms.mu.Unlock()
	for _, m := range moves {
		delete(d.alarms.stuck, m.key())
	}
}

// list returns the alarms in the order of projects and refs.
func (as *alarms) list() []client.Stuck {
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
