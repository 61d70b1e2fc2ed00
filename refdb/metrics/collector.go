// Package metrics exports the metrics of a [refdb.DB] to Prometheus. No label contains a project, a
// ref, a value or an owner, nor anything else that could have many values.
//
//	m := metrics.New()
//	db, err := refdb.New(driver, refdb.Options{Observe: m.Observe})
//	…
//	m.Watch(db)
//	prometheus.MustRegister(m)
//
// A process with several databases creates a Collector for each, and registers each Collector with
// a label of its own ([prometheus.WrapRegistererWith]).
package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A Collector collects the metrics of one DB. It is a [prometheus.Collector]. Its methods may be
// called concurrently.
type Collector struct {
	operations *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	refs       *prometheus.CounterVec
	waits      prometheus.Histogram
	handOvers  prometheus.Histogram
	held       *prometheus.HistogramVec
	attempts   prometheus.Counter
	reclaimed  prometheus.Counter
	lost       prometheus.Counter
	lateness   prometheus.Histogram

	db atomic.Pointer[refdb.DB]
}

var _ prometheus.Collector = (*Collector)(nil)

// The labels of all counters of operations, which start at 0: a series that starts at 1 hides its
// first increase from rates.
var (
	operations = [...]string{
		driver.OpGet, driver.OpList, driver.OpUpdate, driver.OpRemove, driver.OpTryLock, driver.OpLock,
		driver.OpRelease, driver.OpBeat, driver.OpPurge, driver.OpPrepare, driver.OpResolve,
	}
	outcomes = [...]string{"ok", "locked", "mismatch", "frozen", "lost", "unknown", "unavailable", "invalid", "error"}
)

// Buckets, in seconds.
var (
	requestBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	heldBuckets    = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
)

// New returns a Collector without any events.
func New() *Collector {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}
	}
	c := &Collector{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refdb_operations_total", Help: "Operations by kind and outcome.",
		}, []string{"op", "outcome"}),
		durations: prometheus.NewHistogramVec(histogram("refdb_operation_duration_seconds",
			"Duration of operations in seconds, with all requests to the database and, for op=\"lock\", the wait.",
			requestBuckets), []string{"op", "outcome"}),
		refs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refdb_operation_refs_total", Help: "Refs or locks that operations were about.",
		}, []string{"op"}),
		waits: prometheus.NewHistogram(histogram("refdb_lock_wait_seconds",
			"Time that callers waited for locks until they sent the request that got them, in seconds.", heldBuckets)),
		handOvers: prometheus.NewHistogram(histogram("refdb_lock_handover_seconds",
			"Time from the wake-up of a waiter until it had its locks, in seconds.", requestBuckets)),
		held: prometheus.NewHistogramVec(histogram("refdb_lock_held_seconds",
			"Time that locks were held, by what ended them, in seconds.", heldBuckets), []string{"end"}),
		attempts:  counter("refdb_lock_attempts_total", "Requests to the database by callers that wait for locks."),
		reclaimed: counter("refdb_locks_reclaimed_total", "Stale locks taken over, whose holders died or were cut off."),
		lost:      counter("refdb_locks_lost_total", "Locks lost while they were held."),
		lateness: prometheus.NewHistogram(histogram("refdb_beat_lateness_seconds",
			"Delay of heartbeats after they were due, in seconds.", requestBuckets)),
	}
	for _, op := range operations {
		for _, outcome := range outcomes {
			c.operations.WithLabelValues(op, outcome)
		}
	}
	return c
}

// Observe adds an event to the metrics. It is for [refdb.Options].
func (c *Collector) Observe(e refdb.Event) {
	if e.Op == driver.OpLost {
		c.lost.Inc()
		c.held.WithLabelValues(driver.OpLost).Observe(e.Held.Seconds())
		return
	}
	c.operations.WithLabelValues(e.Op, e.Outcome).Inc()
	c.durations.WithLabelValues(e.Op, e.Outcome).Observe(e.Duration.Seconds())
	c.refs.WithLabelValues(e.Op).Add(float64(e.Refs))
	c.reclaimed.Add(float64(e.Reclaimed))
	ok := e.Outcome == "ok"
	switch {
	case e.Op == driver.OpBeat:
		c.lateness.Observe(e.Late.Seconds())
	case ok && e.Held > 0: // only the last attempt of a release counts
		c.held.WithLabelValues(e.Op).Observe(e.Held.Seconds())
	case e.Op == driver.OpLock:
		c.attempts.Add(float64(e.Attempts))
		if ok {
			c.waits.Observe(e.Waited.Seconds())
		}
		if ok && e.HandOver > 0 {
			c.handOvers.Observe(e.HandOver.Seconds())
		}
	}
}

// Watch makes c also export the state of db: locks, leases, connections and batches.
func (c *Collector) Watch(db *refdb.DB) { c.db.Store(db) }

func (c *Collector) eventMetrics() []prometheus.Collector {
	return []prometheus.Collector{
		c.operations, c.durations, c.refs, c.waits, c.handOvers, c.held, c.attempts, c.reclaimed, c.lost, c.lateness,
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, m := range c.eventMetrics() {
		m.Describe(descriptions)
	}
	for _, d := range stateDescriptions {
		descriptions <- d
	}
}

// Collect implements [prometheus.Collector], without a request to the database.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	for _, m := range c.eventMetrics() {
		m.Collect(metrics)
	}
	if db := c.db.Load(); db != nil {
		collectState(db.Stats(), metrics)
	}
}
