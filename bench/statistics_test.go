package main

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestTheMedianIsTheMiddle(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{5, 5, 1, 5, 100}, 5},
	} {
		given := slices.Clone(c.values)
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", given, got, c.want)
		}
		if !slices.Equal(given, c.values) {
			t.Errorf("median reordered %v: it is the order of rounds", given)
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing is %v, want NaN", got)
	}
}

func TestAPercentileIsOneOfTheValues(t *testing.T) {
	var hundred []time.Duration
	for i := 100; i >= 1; i-- {
		hundred = append(hundred, time.Duration(i))
	}
	for _, c := range []struct {
		durations []time.Duration
		p         float64
		want      time.Duration
	}{
		{hundred, 0.50, 50},
		{hundred, 0.99, 99},
		{hundred, 0.07, 7},
		{hundred, 1, 100},
		{hundred, 0, 1},
		{[]time.Duration{3, 1, 2}, 0.99, 3},
		{[]time.Duration{8}, 0.5, 8},
		{nil, 0.5, 0},
	} {
		if got := percentile(slices.Clone(c.durations), c.p); got != c.want {
			t.Errorf("percentile %v of %d values is %d, want %d", c.p, len(c.durations), got, c.want)
		}
	}
}

func TestARatioComparesWhatWasMeasuredInTheSameRound(t *testing.T) {
	// The machine was twice as slow in the second round, for both.
	got := ratios([]float64{30, 15, 36}, []float64{10, 5, 12})
	if want := []float64{3, 3, 3}; !slices.Equal(got, want) {
		t.Errorf("ratios are %v, want %v", got, want)
	}
}

func TestRatesCountWhatCompletedPerSecond(t *testing.T) {
	took := []time.Duration{time.Millisecond, 3 * time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond}
	got := rates(took, 2*time.Second)
	for name, want := range map[string]float64{perSecond: 2, p50: 2, p99: 4} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}
