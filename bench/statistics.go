package main

import (
	"math"
	"slices"
	"time"
)

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

// percentile returns the smallest of durations that at least the fraction p of
// them does not exceed (the nearest rank), and 0 if there are none. It sorts them.
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

// ratios divides value by value. What was measured in the same round met the
// same disturbances.
func ratios(values, by []float64) []float64 {
	n := min(len(values), len(by))
	quotients := make([]float64, n)
	for i := range n {
		quotients[i] = values[i] / by[i]
	}
	return quotients
}

// A summary is what is printed of one metric's rounds.
type summary struct {
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Rounds []float64 `json:"rounds"`
}

func summarize(rounds []float64) summary {
	return summary{Median: median(rounds), Min: slices.Min(rounds), Max: slices.Max(rounds), Rounds: rounds}
}
