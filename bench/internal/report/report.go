// Package report shows what was measured: as a table, or as a plot.
package report

// PerSecond is the metric that is plotted, if a report has it.
const PerSecond = "per_second"

// A Report is a workload's table.
type Report struct {
	ID, Title, Setting string
	Metrics            []Metric // contestants are compared by the first
	Less               bool     // less of the first metric is better
	Results            []Result
}

// A Metric is something measured in each round: a column.
type Metric struct {
	Name     string // in a result
	Header   string // with the unit
	Decimals int
}

// A Result is what the rounds of one contestant in one case found.
type Result struct {
	Case       string             `json:"case"`
	Workers    int                `json:"workers,omitempty"`
	Contestant string             `json:"contestant"`
	Metrics    map[string]Summary `json:"metrics"`
	// Ratio is the median of the rounds' ratios to the baseline, of the first metric.
	Ratio    float64 `json:"ratio"`
	Baseline string  `json:"baseline"`
}

// A Summary sums up one metric's rounds.
type Summary struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Rounds []float64 `json:"rounds"`
}
