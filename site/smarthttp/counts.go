package smarthttp

import "github.com/prometheus/client_golang/prometheus"

// counts are a server's metrics. They name nothing.
type counts struct {
	requests *prometheus.CounterVec
	waits    prometheus.Counter

	hits, made, passed, pushes, behind, busy, broken, refused, failed prometheus.Counter
}

func newCounts() counts {
	c := counts{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refdb_http_requests_total",
			Help: "Requests by what became of them: lists of refs from the cache (hit) or made for it (made), other reads (passed), pushes (push), readers that were " +
				"told to come again because this site was behind (behind), clients that were told so because of the others (busy), what was refused (refused) and what " +
				"failed (failed). Requests that a client broke off, or did not send in time, are counted once more (broken).",
		}, []string{"result"}),
		waits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "refdb_http_waits_total", Help: "Comparisons of a repository with the database, before a list was made or a request passed on.",
		}),
	}
	for name, counter := range map[string]*prometheus.Counter{
		"hit": &c.hits, "made": &c.made, "passed": &c.passed, "push": &c.pushes, "behind": &c.behind, "busy": &c.busy, "broken": &c.broken,
		"refused": &c.refused, "failed": &c.failed,
	} {
		*counter = c.requests.WithLabelValues(name)
	}
	return c
}

// Collectors returns the server's metrics.
func (s *Server) Collectors() []prometheus.Collector {
	bytes := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "refdb_http_cache_bytes", Help: "Size of the answers that are kept."}, func() float64 {
		n, _ := s.cache.size()
		return float64(n)
	})
	return []prometheus.Collector{s.counts.requests, s.counts.waits, bytes}
}
