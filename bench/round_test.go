package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
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
	for _, res := range r.results {
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

func TestNumbersHaveTheirThousandsApart(t *testing.T) {
	for want, got := range map[string]string{
		"0":            number(0, 0),
		"999":          number(999, 0),
		"1,000":        number(1000, 0),
		"12,345,678":   number(12345678, 0),
		"1,234.50":     number(1234.5, 2),
		"0.41":         number(0.41, 2),
		"100.0":        number(100, 1),
		"1,000,000.00": number(1e6, 2),
	} {
		if got != want {
			t.Errorf("%s is printed instead of %s", got, want)
		}
	}
}

func TestWorkloadsAreSelectedInTheirOwnOrder(t *testing.T) {
	got, err := selection("w4, W1")
	if err != nil || !slices.Equal(got, []string{"W1", "W4"}) {
		t.Errorf("the selection is %v, %v", got, err)
	}
	if _, err := selection("W1,W9"); err == nil {
		t.Error("an unknown workload was accepted")
	}
	all, err := selection("")
	if err != nil || len(all) != len(workloads()) {
		t.Errorf("without a selection %v are run, %v", all, err)
	}
}
