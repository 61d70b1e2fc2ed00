package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// The metrics that each scrape reads from the DB.
var (
	locksHeld   = prometheus.NewDesc("refdb_locks_held", "Locks that this process holds.", nil, nil)
	lockWaiters = prometheus.NewDesc("refdb_lock_waiters", "Callers of this process that wait for locks.", nil, nil)
	leaseLeft   = prometheus.NewDesc("refdb_lease_left_seconds",
		"How long it is until the first of the locks held is lost, unless a heartbeat succeeds before. Absent while none is held.", nil, nil)
	poolConnections = prometheus.NewDesc("refdb_pool_connections", "Connections to the database, by pool and state.", []string{"pool", "state"}, nil)
	poolMax         = prometheus.NewDesc("refdb_pool_max_connections", "How many connections a pool may have.", []string{"pool"}, nil)
	poolAcquires    = prometheus.NewDesc("refdb_pool_acquires_total", "How often a request took a connection.", []string{"pool"}, nil)
	poolWaits       = prometheus.NewDesc("refdb_pool_waits_total", "How often a request found no idle connection.", []string{"pool"}, nil)
	poolWaitSeconds = prometheus.NewDesc("refdb_pool_wait_seconds_total",
		"How long requests waited for connections, or for new ones to be made, in all.", []string{"pool"}, nil)
	batchRequests = prometheus.NewDesc("refdb_batch_requests", "How many requests shared a transaction (group commit).", nil, nil)

	stateDescriptions = [...]*prometheus.Desc{
		locksHeld, lockWaiters, leaseLeft, poolConnections, poolMax, poolAcquires, poolWaits, poolWaitSeconds, batchRequests,
	}
)

func collectState(s refdb.Stats, metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(locksHeld, float64(s.Locks))
	gauge(lockWaiters, float64(s.Waiting))
	if s.Locks > 0 {
		gauge(leaseLeft, s.Left.Seconds())
	}
	for _, p := range s.Driver.Pools {
		gauge(poolConnections, float64(p.InUse), p.Name, "in_use")
		gauge(poolConnections, float64(p.Idle), p.Name, "idle")
		gauge(poolMax, float64(p.Max), p.Name)
		counter(poolAcquires, float64(p.Acquired), p.Name)
		counter(poolWaits, float64(p.Waited), p.Name)
		counter(poolWaitSeconds, p.WaitTime.Seconds(), p.Name)
	}
	if b := s.Driver.Batches; b.Requests > 0 {
		metrics <- batches(b)
	}
}

// batches returns a histogram of the sizes of b. Its buckets are cumulative.
func batches(b driver.Batches) prometheus.Metric {
	buckets := map[float64]uint64{}
	var n uint64
	last := len(b.Sizes) - 1
	for i, size := range b.Sizes[:last] {
		n += size
		buckets[float64(int(1)<<i)] = n
	}
	return prometheus.MustNewConstHistogram(batchRequests, n+b.Sizes[last], float64(b.Requests), buckets)
}
