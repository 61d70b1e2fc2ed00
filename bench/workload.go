package main

import (
	"context"
	"fmt"

	"github.com/globalrefdb/globalrefdb/bench/internal/report"
)

// A workload is the same work done by several contestants, in one or more cases.
type workload struct {
	id      string // "W1"
	title   string
	setting string   // of the servers, and how it was measured
	metrics []metric // contestants are compared by the first
	less    bool     // less of the first metric is better
	cases   []benchCase
	atMost  int // the most rounds, where they take long; 0: no limit
}

// A benchCase is one size of the work, such as a number of workers.
type benchCase struct {
	name        string
	workers     int    // 0: the case is not about workers, and not plotted
	baseline    string // the contestant that the others are compared with
	contestants []contestant
}

// A contestant does a case's work in its own way.
type contestant struct {
	name string
	// measure does the work once, on an empty table or key space of its own.
	measure func(context.Context) (sample, error)
}

// A metric is something measured in each round: a column.
type metric struct {
	name     string // in the sample
	header   string // with the unit
	decimals int
}

// A sample is the values of one measurement, by the metrics' names.
type sample map[string]float64

// The metrics of operations that are repeated for a while.
const (
	perSecond = report.PerSecond
	p50       = "p50_ms"
	p99       = "p99_ms"
)

func rateMetrics(header string) []metric {
	return []metric{{perSecond, header, 0}, {p50, "p50 ms", 2}, {p99, "p99 ms", 2}}
}

// keysPerWorker is how many refs a worker works on, in turn. With a single ref the
// database would write the same page again and again.
const keysPerWorker = 100

// keys returns the refs of one worker.
func keys(worker int) []string {
	return numbered(fmt.Sprintf("refs/heads/worker-%d/branch", worker), keysPerWorker)
}

// numbered returns n ref names in byte order.
func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%07d", prefix, i)
	}
	return names
}

// objectID returns the n-th object ID.
func objectID(n int) string { return fmt.Sprintf("%040x", n+1) }

// workerCount names a case.
func workerCount(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return fmt.Sprintf("%d workers", n)
}
