package main

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// A result is what the rounds of one contestant in one case found.
type result struct {
	Case       string             `json:"case"`
	Workers    int                `json:"workers,omitempty"`
	Contestant string             `json:"contestant"`
	Metrics    map[string]summary `json:"metrics"`
	// Ratio is the median of the first metric's ratios to the baseline, round by round.
	Ratio    float64 `json:"ratio"`
	Baseline string  `json:"baseline"`
}

// A report is a workload's table.
type report struct {
	workload workload
	results  []result
}

// run measures w in several rounds. In each round every contestant of a case
// runs once, one after the other, in an order of its own: so a disturbance of
// some seconds hits all of them, and nobody is always the first, or always comes
// after the same one, whose database has just been dropped.
func run(ctx context.Context, w workload, rounds int, progress io.Writer) (report, error) {
	r := report{workload: w}
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
		r.results = append(r.results, summarizeCase(w, c, samples)...)
	}
	return r, nil
}

// inOrder returns all in the order of a round: there and back, then from the next one on.
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

func summarizeCase(w workload, c benchCase, samples map[string][]sample) []result {
	base := column(samples[c.baseline], w.metrics[0].name)
	var results []result
	for _, who := range c.contestants {
		r := result{Case: c.name, Workers: c.workers, Contestant: who.name, Baseline: c.baseline, Metrics: make(map[string]summary)}
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

// column returns one metric of all rounds; a contestant may lack it.
func column(samples []sample, name string) []float64 {
	var values []float64
	for _, s := range samples {
		if v, ok := s[name]; ok {
			values = append(values, v)
		}
	}
	return values
}
