package main

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestContestantsChangePlacesFromRoundToRound(t *testing.T) {
	var order []string
	rate := map[string]float64{"a": 10, "b": 20, "c": 5}
	w := workload{id: "W", metrics: rateMetrics("ops/s")}
	c := benchCase{name: "case", workers: 1, baseline: "a"}
	for _, name := range []string{"a", "b", "c"} {
		c.contestants = append(c.contestants, contestant{name, func(context.Context) (sample, error) {
			order = append(order, name)
			return sample{perSecond: rate[name]}, nil
		}})
	}
	w.cases = []benchCase{c}
	r, err := run(t.Context(), w, 4, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(order, ""), "abc"+"cba"+"bca"+"acb"; got != want {
		t.Errorf("they ran in the order %s, want %s", got, want)
	}
	for _, res := range r.Results {
		if want := rate[res.Contestant] / rate["a"]; res.Ratio != want {
			t.Errorf("the ratio of %s is %v, want %v", res.Contestant, res.Ratio, want)
		}
		if n := len(res.Metrics[perSecond].Rounds); n != 4 {
			t.Errorf("%s has %d rounds, want 4", res.Contestant, n)
		}
		if _, ok := res.Metrics[p50]; ok {
			t.Errorf("%s has a latency that it didn't measure", res.Contestant)
		}
	}
}

func TestAContestantThatFailsEndsTheRun(t *testing.T) {
	broken := errors.New("broken")
	w := workload{id: "W", metrics: rateMetrics("ops/s"), cases: []benchCase{{
		name: "case", baseline: "a",
		contestants: []contestant{{"a", func(context.Context) (sample, error) { return nil, broken }}},
	}}}
	if _, err := run(t.Context(), w, 2, io.Discard); !errors.Is(err, broken) {
		t.Errorf("the error is %v, want %v", err, broken)
	}
}

func TestWorkloadsAreSelectedInTheirOwnOrder(t *testing.T) {
	got, err := selection("w4, W1")
	if err != nil || !slices.Equal(got, []string{"W1", "W4"}) {
		t.Errorf("the selection is %v, %v", got, err)
	}
	if _, err := selection("W1,W99"); err == nil {
		t.Error("an unknown workload was accepted")
	}
	all, err := selection("")
	if err != nil || len(all) != len(workloads()) {
		t.Errorf("without a selection %v are run, %v", all, err)
	}
}

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
