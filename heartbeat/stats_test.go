package heartbeat_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
)

func TestStatsCountLeasesAndTheTimeLeft(t *testing.T) {
	var down atomic.Bool
	inBubble(t, func(ctx context.Context, n int, items []int) ([]heartbeat.Result, error) {
		if down.Load() {
			return nil, errDown
		}
		return all(heartbeat.Renewed)(ctx, n, items)
	}, func(t *testing.T, w *fixture) {
		is := func(leases int, left time.Duration) {
			t.Helper()
			if s := w.Stats(); s.Leases != leases || s.Left != left {
				t.Errorf("%+v, want %d leases and %s left", s, leases, left)
			}
		}
		is(0, 0)
		l := w.keep(1)
		w.at(time.Second)
		w.keep(2)
		is(2, window-time.Second)
		w.at(interval + time.Second)
		is(2, window-time.Second) // since the beat
		down.Store(true)
		w.at(interval + 11*time.Second)
		is(2, window-11*time.Second)
		l.Stop()
		is(1, window-11*time.Second)
		w.at(time.Hour)
		is(0, 0)
	})
}

func TestStatsReportHowLateABeatWas(t *testing.T) {
	inBubble(t, func(ctx context.Context, n int, items []int) ([]heartbeat.Result, error) {
		if n == 2 {
			time.Sleep(interval + 300*time.Millisecond) // so the third is late
		}
		return all(heartbeat.Renewed)(ctx, n, items)
	}, func(t *testing.T, w *fixture) {
		w.keep(1)
		w.at(2*interval + time.Second)
		if s := w.Stats(); s.Late != 0 {
			t.Errorf("a beat on time was %s late", s.Late)
		}
		w.at(3*interval + time.Second)
		if s := w.Stats(); s.Late != 300*time.Millisecond {
			t.Errorf("a beat that waited 300 ms for the one before it was %s late", s.Late)
		}
		w.at(4*interval + time.Second)
		if s := w.Stats(); s.Late != 0 {
			t.Errorf("the next one was %s late", s.Late)
		}
		w.skew.Store(int64(5 * time.Second)) // the machine was suspended
		w.at(5*interval + time.Second)
		synctest.Wait()
		if s := w.Stats(); s.Late < 3*time.Second {
			t.Errorf("the first beat after a suspend of 5 s was %s late", s.Late)
		}
	})
}
