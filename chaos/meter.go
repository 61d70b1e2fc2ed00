package main

import (
	"slices"
	"sync"
	"time"
)

const (
	// recoveryLimit is how long after a fault the sites may take to do at least
	// recoveryShare of what they did before it.
	recoveryLimit = 10 * time.Second
	recoveryShare = 0.9
	bucket        = time.Second
	// Rates are medians of so many buckets, before a fault and after it.
	bucketsBefore, bucketsAfter = 5, 3
)

// A meter counts the sites' operations over time.
type meter struct {
	mu    sync.Mutex
	start instant
	done  []int // per reportEvery
}

func newMeter() *meter { return &meter{start: now()} }

func (m *meter) add(t instant, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := max(0, m.slot(t))
	for len(m.done) <= i {
		m.done = append(m.done, 0)
	}
	m.done[i] += n
}

func (m *meter) slot(t instant) int { return int(t.sub(m.start) / reportEvery) }

// total returns how many operations there were.
func (m *meter) total() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.done {
		n += k
	}
	return n
}

// rates returns the operations per second in n buckets from then on.
func (m *meter) rates(from instant, n int) []float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	rates := make([]float64, n)
	for i := range rates {
		first := m.slot(from.add(time.Duration(i) * bucket))
		for k := first; k < first+int(bucket/reportEvery); k++ {
			if k >= 0 && k < len(m.done) {
				rates[i] += float64(m.done[k]) / bucket.Seconds()
			}
		}
	}
	return rates
}

// rateBefore returns the operations per second shortly before t.
func (m *meter) rateBefore(t instant) float64 {
	return median(m.rates(t.add(-bucketsBefore*bucket-lateReports), bucketsBefore))
}

func median(rates []float64) float64 {
	sorted := slices.Sorted(slices.Values(rates))
	return sorted[len(sorted)/2]
}

// lateReports is how late a site's report may arrive.
const lateReports = 3 * reportEvery

// recovery looks for the first moment after end from which on the rate is nearly
// what it was before, and returns how long after end that is. wait blocks until a
// time has come; it returns false if the run ends before.
func recovery(m *meter, before float64, end instant, wait func(instant) bool) (took time.Duration, recovered bool) {
	for took = 0; took <= recoveryLimit; took += reportEvery {
		from := end.add(took)
		if !wait(from.add(bucketsAfter*bucket + lateReports)) {
			return took, false
		}
		// The median forgives one bucket. That must not be an empty first one.
		if r := m.rates(from, bucketsAfter); median(r) >= recoveryShare*before && r[0] >= before/2 {
			return took, true
		}
	}
	return took, false
}
