package main

import "context"

// A workload is the same work done by several contestants, in one or more cases.
type workload struct {
	id      string // "W1"
	title   string
	setting string   // of the servers, and how it was measured
	metrics []metric // by the first one contestants are compared
	less    bool     // of it is better
	cases   []benchCase
	atMost  int // so many rounds, because they take long; 0: as many as asked for
}

// A benchCase is one size of the work, such as a number of workers.
type benchCase struct {
	name        string
	workers     int    // 0: it is not about workers, and not plotted
	baseline    string // the contestant that the others are compared with
	contestants []contestant
}

// A contestant does a case's work in its own way.
type contestant struct {
	name string
	// measure does it once, on an empty table or key space of its own.
	measure func(context.Context) (sample, error)
}

// A metric is a column: something measured in each round.
type metric struct {
	name     string // in the sample
	header   string // with the unit
	decimals int
}

// A sample is what one measurement found, by the metrics' names.
type sample map[string]float64

// The metrics of whatever is done again and again for a while.
const (
	perSecond = "per_second"
	p50       = "p50_ms"
	p99       = "p99_ms"
)

func rateMetrics(header string) []metric {
	return []metric{{perSecond, header, 0}, {p50, "p50 ms", 2}, {p99, "p99 ms", 2}}
}
