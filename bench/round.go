package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/globalrefdb/globalrefdb/bench/internal/machine"
	"github.com/globalrefdb/globalrefdb/bench/internal/report"
)

// run measures w in several rounds. In each round every contestant of a case
// runs once. So a disturbance of some seconds hits all of them. Each round has an
// order of its own, so that nobody is always the first, or always comes after the
// same contestant, whose database has just been dropped.
func run(ctx context.Context, w workload, rounds int, progress io.Writer) (report.Report, error) {
	r := report.Report{ID: w.id, Title: w.title, Setting: w.setting, Less: w.less}
	for _, m := range w.metrics {
		r.Metrics = append(r.Metrics, report.Metric{Name: m.name, Header: m.header, Decimals: m.decimals})
	}
	if w.atMost > 0 {
		rounds = min(rounds, w.atMost)
	}
	for _, c := range w.cases {
		samples := make(map[string][]sample)
		for round := range rounds {
			for _, who := range inOrder(c.contestants, round) {
				fmt.Fprintf(progress, "%s %s: round %d of %d: %s\n", w.id, c.name, round+1, rounds, who.name)
				s, err := who.measure(ctx)
				if err != nil {
					return r, fmt.Errorf("%s, %s, %s: %w", w.id, c.name, who.name, err)
				}
				if who.name == c.baseline && s[w.metrics[0].name] == 0 {
					return r, fmt.Errorf("%s, %s: %s got nothing done, so there is nothing to compare with: let it run longer (-d)", w.id, c.name, who.name)
				}
				samples[who.name] = append(samples[who.name], s)
			}
		}
		r.Results = append(r.Results, summarizeCase(w, c, samples)...)
	}
	return r, nil
}

// inOrder returns all in the order of a round: forward, then backward, then both from the next one on.
func inOrder[T any](all []T, round int) []T {
	order := rotated(all, round/2)
	if round%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// rotated returns all, beginning with the n-th.
func rotated[T any](all []T, n int) []T {
	n %= len(all)
	return slices.Concat(all[n:], all[:n])
}

func summarizeCase(w workload, c benchCase, samples map[string][]sample) []report.Result {
	base := column(samples[c.baseline], w.metrics[0].name)
	var results []report.Result
	for _, who := range c.contestants {
		r := report.Result{Case: c.name, Workers: c.workers, Contestant: who.name, Baseline: c.baseline, Metrics: make(map[string]report.Summary)}
		for _, m := range w.metrics {
			if values := column(samples[who.name], m.name); len(values) > 0 {
				r.Metrics[m.name] = summarize(values)
			}
		}
		r.Ratio = median(ratios(column(samples[who.name], w.metrics[0].name), base))
		results = append(results, r)
	}
	return results
}

// column returns one metric of all rounds. A contestant may lack it.
func column(samples []sample, name string) []float64 {
	var values []float64
	for _, s := range samples {
		if v, ok := s[name]; ok {
			values = append(values, v)
		}
	}
	return values
}

// A jsonDocument is the whole run, for machines.
type jsonDocument struct {
	Machine machine.Machine `json:"machine"`
	Rounds  int             `json:"rounds"`
	Seconds float64         `json:"seconds_per_measurement"`
	Tables  []jsonReport    `json:"tables"`
}

type jsonReport struct {
	Workload string          `json:"workload"`
	Title    string          `json:"title"`
	Setting  string          `json:"setting"`
	Compared string          `json:"compared"` // the metric that ratios are about
	Less     bool            `json:"less_is_better"`
	Results  []report.Result `json:"results"`
}

func document(o options, reports []report.Report) jsonDocument {
	d := jsonDocument{Machine: machine.This(), Rounds: o.rounds, Seconds: o.d.Seconds(), Tables: []jsonReport{}}
	for _, r := range reports {
		d.Tables = append(d.Tables, jsonReport{r.ID, r.Title, r.Setting, r.Metrics[0].Name, r.Less, r.Results})
	}
	return d
}

// median returns the middle of values, the mean of the middle two if their
// number is even, and NaN if there are none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// percentile returns the smallest duration that the fraction p of all durations
// does not exceed (the nearest rank), and 0 if there are none. It sorts them.
func percentile(durations []time.Duration, p float64) time.Duration {
	n := len(durations)
	if n == 0 {
		return 0
	}
	slices.Sort(durations)
	// Rounded first: 0.07 * 100 is a little more than 7.
	rank := int(math.Ceil(math.Round(p*float64(n)*1e6) / 1e6))
	return durations[min(max(rank, 1), n)-1]
}

// ratios divides value by value: values of the same round met the same
// disturbances.
func ratios(values, by []float64) []float64 {
	n := min(len(values), len(by))
	quotients := make([]float64, n)
	for i := range n {
		quotients[i] = values[i] / by[i]
	}
	return quotients
}

// summarize sums up the rounds of one metric.
func summarize(rounds []float64) report.Summary {
	return report.Summary{Median: median(rounds), Min: slices.Min(rounds), Max: slices.Max(rounds), Rounds: rounds}
}
