package heartbeat_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
)

func TestAConfigThatBreaksTheGuaranteesIsRefused(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name                         string
		interval, staleAfter, margin time.Duration
		refused                      string // part of the error, or "" if accepted
	}{
		{"Gerrit's settings", 2 * s, 30 * s, 0, ""},
		{"an interval of a third", 10 * s, 30 * s, 0, ""},
		{"an interval of more than a third", 10*s + 1, 30 * s, 0, "more than a third"},
		{"no interval", 0, 30 * s, 0, "must be positive"},
		{"a negative interval", -s, 30 * s, 0, "must be positive"},
		{"no stale-after", s, 0, 0, "must be positive"},
		{"a margin of a fifth", 2 * s, 30 * s, 6 * s, ""},
		{"a margin of less than a fifth", 2 * s, 30 * s, 6*s - 1, "less than a fifth"},
		{"a negative margin", 2 * s, 30 * s, -s, "less than a fifth"},
		{"a margin that leaves two intervals", 2 * s, 30 * s, 26 * s, ""},
		{"a margin that leaves less than two intervals", 2 * s, 30 * s, 26*s + 2, "less than two intervals"},
		{"a margin of more than everything", 2 * s, 30 * s, 40 * s, "less than two intervals"},
		{"the shortest that there are", 1, 3, 0, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := heartbeat.Config{Interval: test.interval, StaleAfter: test.staleAfter, Margin: test.margin}
			k, err := heartbeat.New(c, func(context.Context, []int) ([]heartbeat.Result, error) { return nil, nil }, nil)
			if err == nil {
				k.Close()
			}
			if (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("New: %v, want %q", err, test.refused)
			}
		})
	}
}

func TestTheDefaultClockRunsForward(t *testing.T) {
	k, err := heartbeat.New(heartbeat.Config{Interval: interval, StaleAfter: staleAfter},
		func(context.Context, []int) ([]heartbeat.Result, error) { return nil, nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	first := k.Now()
	start, last := time.Now(), first
	for time.Since(start) < 10*time.Millisecond {
		now := k.Now()
		if now < last {
			t.Fatalf("the clock went from %d to %d", last, now)
		}
		last = now
	}
	elapsed := time.Since(start) // lies within what the keeper's clock measures, if the machine stands still in between
	if got := time.Duration(k.Now() - first); got < elapsed/2 || got > elapsed+time.Minute {
		t.Errorf("%s by the keeper's clock, %s by Go's", got, elapsed)
	}
}

// Real time and many goroutines, for the race detector.
func TestManyGoroutinesMayUseOneKeeper(t *testing.T) {
	var underWay atomic.Int32
	k, err := heartbeat.New(heartbeat.Config{Interval: time.Millisecond, StaleAfter: time.Hour},
		func(ctx context.Context, items []int) ([]heartbeat.Result, error) {
			if underWay.Add(1) != 1 {
				t.Error("two beats at once")
			}
			defer underWay.Add(-1)
			if rand.IntN(4) == 0 {
				return nil, errDown
			}
			results := make([]heartbeat.Result, len(items))
			for i, item := range items {
				results[i] = heartbeat.Renewed
				switch {
				case item%10 == 0:
					results[i] = heartbeat.Lost
				case rand.IntN(10) == 0:
					results[i] = heartbeat.Unknown
				}
			}
			return results, nil
		}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var users sync.WaitGroup
	for g := range 16 {
		users.Go(func() {
			for i := range 200 {
				id := g*200 + i
				l := k.Keep(id, k.Now())
				l.Suspend()
				l.Resume()
				switch {
				case id%10 == 0 && id%200 < 50:
					<-l.Done() // it will be lost
					if err := l.Err(); err != heartbeat.ErrLost {
						t.Errorf("lease %d: %v", id, err)
					}
				case i%100 != 99:
					l.Stop()
					<-l.Done()
				case l.Err() != nil && id%10 != 0:
					t.Errorf("lease %d: %v", id, l.Err())
				}
				if l.Deadline() <= k.Now() {
					t.Errorf("lease %d: deadline passed", id)
				}
			}
		})
	}
	users.Wait()
	users.Go(k.Close)
	users.Go(k.Close)
	users.Go(func() { <-k.Keep(1, k.Now()).Done() })
	users.Wait()
}

func BenchmarkKeepStopAmongManyLeases(b *testing.B) {
	k, err := heartbeat.New(heartbeat.Config{Interval: interval, StaleAfter: staleAfter},
		func(_ context.Context, items []int) ([]heartbeat.Result, error) {
			return slices.Repeat([]heartbeat.Result{heartbeat.Renewed}, len(items)), nil
		}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer k.Close()
	for i := range 100_000 {
		k.Keep(i, k.Now())
	}
	b.ReportAllocs()
	for b.Loop() {
		k.Keep(0, k.Now()).Stop()
	}
}

// A tick of 100,000 leases: from its beat to the next one's.
func BenchmarkTickOfManyLeases(b *testing.B) {
	beats := make(chan struct{})
	k, err := heartbeat.New(heartbeat.Config{Interval: 1, StaleAfter: time.Hour},
		func(ctx context.Context, items []int) ([]heartbeat.Result, error) {
			select {
			case beats <- struct{}{}:
			case <-ctx.Done():
			}
			return slices.Repeat([]heartbeat.Result{heartbeat.Renewed}, len(items)), nil
		}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer k.Close()
	for i := range 100_000 {
		k.Keep(i, k.Now())
	}
	<-beats
	for b.Loop() {
		<-beats
	}
}
