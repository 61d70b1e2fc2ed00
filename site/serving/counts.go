package serving

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/refusal"
	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Counts counts what the parts of a daemon do, for its status and its metrics.
type Counts struct {
	Prepared, Refused, Updated, Dropped, Alarms, Deaths, Heeded, Failures, Reconciled atomic.Uint64
	RefusedRefs                                                                       atomic.Uint64 // for metrics only

	MovesResets   prometheus.Counter
	refusals      *prometheus.CounterVec
	hooks         *prometheus.HistogramVec
	announcements prometheus.Histogram
}

func newCounts() *Counts {
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 3, 4, 5}
	n := &Counts{
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refdb_site_refusals_total",
			Help: "Requests of hooks that were refused, by reason. A push that is refused ref by ref counts once for each ref.",
		}, []string{"reason"}),
		hooks: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "refdb_site_hook_duration_seconds", Help: "Time that hooks waited for the daemon's answer, in seconds.",
			Buckets: buckets,
		}, []string{"hook"}),
		announcements: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "refdb_site_announcement_duration_seconds", Help: "Time that guards with sessions waited for the answer to an announcement, in seconds.",
			Buckets: buckets,
		}),
		MovesResets: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "refdb_site_moves_resets_total", Help: "Times that a reader of the list of moves had to start over and compare everything.",
		}),
	}
	for _, r := range refusal.Reasons {
		n.refusals.WithLabelValues(string(r))
	}
	return n
}

// Collectors returns the metrics that are not read from [Counts.Status].
func (n *Counts) Collectors() []prometheus.Collector {
	return []prometheus.Collector{n.refusals, n.hooks, n.announcements, n.MovesResets}
}

// RefusedFor counts an answer that refused, by its reason.
func (n *Counts) RefusedFor(err error) {
	n.refusals.WithLabelValues(string(refusal.ReasonOf(err))).Inc()
}

// HookAnswered records how long a hook waited. Its process may send any text as its state.
func (n *Counts) HookAnswered(state string, took time.Duration) {
	switch state {
	case wire.StatePrepared, wire.StateCommitted, wire.StateAborted, wire.StatePreReceive, wire.StateUpdate:
		n.hooks.WithLabelValues(state).Observe(took.Seconds())
	}
}

// GuardAnswered records how long a guard waited for the answer to an announcement.
func (n *Counts) GuardAnswered(took time.Duration) { n.announcements.Observe(took.Seconds()) }

// Status returns the counters of a [client.Status].
func (n *Counts) Status() client.Counters {
	return client.Counters{
		Prepared: n.Prepared.Load(), Refused: n.Refused.Load(), Updated: n.Updated.Load(), Dropped: n.Dropped.Load(),
		Alarms: n.Alarms.Load(), Deaths: n.Deaths.Load(), Heeded: n.Heeded.Load(), Failures: n.Failures.Load(),
		Reconciled: n.Reconciled.Load(),
	}
}
