package main

import (
	"testing"
	"time"
)

func TestAllWorkersSeeTheSameBoard(t *testing.T) {
	one, err := createBoard(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer one.remove()
	other, err := openBoard(one.path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()

	_, first, err := one.acquired()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.acquired(); err == nil {
		t.Error("two held the lock at once, and it was not noticed")
	}
	other.holders.Add(-1)
	before := monotonic()
	one.releasing()
	released, second, err := other.acquired()
	if err != nil {
		t.Fatal(err)
	}
	if released < before || released > monotonic() {
		t.Errorf("the release is noted at %s, not between %s and now", released, before)
	}
	if second <= first || one.turn() != second {
		t.Errorf("turn %d came after turn %d, and the other sees turn %d", second, first, one.turn())
	}
}

func TestHandOffsOfAllProcessesAreAddedUp(t *testing.T) {
	got := summarizeHandOffs([]handOffCount{
		{Acquired: []int{4, 4}, Latencies: []time.Duration{time.Millisecond, 2 * time.Millisecond}, Longest: time.Second, Attempts: 30, Granted: 10},
		{Acquired: []int{6, 2}, Latencies: []time.Duration{3 * time.Millisecond}, Longest: 2 * time.Second, Attempts: 10, Granted: 10},
	}, 2*time.Second)
	for name, want := range map[string]float64{
		perSecond: 8, p50: 2, p99: 3, longest: 2000, attempts: 2,
		fairness: 0.5, // 2 of an equal share of 4
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}
