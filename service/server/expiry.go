package server

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

var expiryDesc = prometheus.NewDesc("refdb_server_certificate_expiry_seconds", "When the certificate in use expires, in seconds since 1970.", nil, nil)

// An expiry is the metric of when a certificate expires; nothing while there is none.
type expiry struct{ of atomic.Pointer[certificate] }

func (e *expiry) Describe(descs chan<- *prometheus.Desc) { descs <- expiryDesc }

func (e *expiry) Collect(metrics chan<- prometheus.Metric) {
	if c := e.of.Load(); c != nil {
		metrics <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(c.current.Load().Leaf.NotAfter.Unix()))
	}
}
