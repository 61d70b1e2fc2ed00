package smarthttp

import "github.com/prometheus/client_golang/prometheus"

// counts are a server's metrics. Their labels contain no names.
type counts struct {
	requests *prometheus.CounterVec
	waits    prometheus.Counter

	hits, made, passed, stale, pushes, behind, busy, broken, refused, failed prometheus.Counter
}

func newCounts() counts {
	c := counts{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "refdb_http_requests_total",
			Help: "Requests by result: ref lists from the cache (hit) or made for it (made), other reads (passed), reads from the local copy because the database did not answer (stale), pushes (push), reads refused for now because this " +
				"site is behind (behind), requests refused for now because of too many others (busy), other refusals (refused), failures (failed). " +
				"Requests that the client broke off or did not send in time count as broken, too.",
		}, []string{"result"}),
		waits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "refdb_http_waits_total", Help: "Comparisons of a repository with the database before a ref list was made or a request passed on.",
		}),
	}
	for name, counter := range map[string]*prometheus.Counter{
		"hit": &c.hits, "made": &c.made, "passed": &c.passed, "stale": &c.stale, "push": &c.pushes, "behind": &c.behind, "busy": &c.busy, "broken": &c.broken,
		"refused": &c.refused, "failed": &c.failed,
	} {
		*counter = c.requests.WithLabelValues(name)
	}
	return c
}

// Collectors returns the server's metrics.
func (s *Server) Collectors() []prometheus.Collector {
	bytes := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "refdb_http_cache_bytes", Help: "Size of the cached ref lists, in bytes."}, func() float64 {
		n, _ := s.cache.size()
		return float64(n)
	})
	return []prometheus.Collector{s.counts.requests, s.counts.waits, bytes}
}
