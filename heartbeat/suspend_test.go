package heartbeat_test

import (
	"slices"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
)

func TestLostIsIgnoredWhileSuspended(t *testing.T) {
	type lease = *heartbeat.Lease[int]
	type event struct {
		at time.Duration
		do func(lease)
	}
	const s = time.Second
	suspend, resume := lease.Suspend, lease.Resume
	// Beats are sent at 2 s, 4 s and so on, and answered half a second later.
	tests := []struct {
		name   string
		events []event
		lost   time.Duration // when the lease is, or 0 for not within 5.5 s
	}{
		{"never suspended", nil, 2500 * time.Millisecond},
		{"suspended before the beat was sent", []event{{1 * s, suspend}}, 0},
		{"suspended while the beat was under way", []event{{2200 * time.Millisecond, suspend}}, 0},
		{"suspended when the beat was sent, resumed when it is answered", []event{{1 * s, suspend}, {2200 * time.Millisecond, resume}}, 4500 * time.Millisecond},
		{"suspended and resumed while the beat was under way", []event{{2200 * time.Millisecond, suspend}, {2300 * time.Millisecond, resume}}, 4500 * time.Millisecond},
		{"suspended and resumed before the beat was sent", []event{{1 * s, suspend}, {1500 * time.Millisecond, resume}}, 2500 * time.Millisecond},
		{"suspended and resumed again between two beats", []event{{1 * s, suspend}, {3 * s, resume}, {3200 * time.Millisecond, suspend}, {3400 * time.Millisecond, resume}}, 4500 * time.Millisecond},
		{"suspended twice, resumed once", []event{{1 * s, suspend}, {1 * s, suspend}, {1500 * time.Millisecond, resume}}, 0},
		{"suspended twice, resumed twice", []event{{1 * s, suspend}, {1 * s, suspend}, {1500 * time.Millisecond, resume}, {1600 * time.Millisecond, resume}}, 2500 * time.Millisecond},
		{"resumed without suspend", []event{{1 * s, resume}, {1500 * time.Millisecond, suspend}}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, answer(all(heartbeat.Lost)).after(s/2), func(t *testing.T, w *fixture) {
				l := w.keep(1)
				for _, e := range test.events {
					w.at(e.at)
					w.wantStanding(l)
					e.do(l)
				}
				if test.lost == 0 {
					w.at(5500 * time.Millisecond)
					w.wantStanding(l)
					return
				}
				w.at(test.lost - 1)
				w.wantStanding(l)
				w.at(test.lost)
				w.wantEnded(l, heartbeat.ErrLost)
			})
		})
	}
}

func TestASuspendedLeaseIsStillBeaten(t *testing.T) {
	inBubble(t, all(heartbeat.Renewed), func(t *testing.T, w *fixture) {
		l := w.keep(1)
		l.Suspend()
		w.at(2 * window)
		w.wantStanding(l)
	})
}

func TestASuspendedLeaseStillExpires(t *testing.T) {
	for name, a := range map[string]answer{"unanswered": hangs, "answered lost": all(heartbeat.Lost)} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, a, func(t *testing.T, w *fixture) {
				l := w.keep(1)
				l.Suspend()
				w.at(window - 1)
				w.wantStanding(l)
				w.at(window)
				w.wantEnded(l, heartbeat.ErrExpired)
			})
		})
	}
}

func TestNoResultChangesAStoppedLease(t *testing.T) {
	tests := map[string]answer{"beaten": all(heartbeat.Renewed), "lost": all(heartbeat.Lost), "unknown": all(heartbeat.Unknown), "failure": fails}
	for name, a := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, a.after(interval/2), func(t *testing.T, w *fixture) {
				l := w.keep(1)
				w.at(interval + interval/4)
				deadline := l.Deadline()
				l.Stop()
				w.wantEnded(l, heartbeat.ErrStopped)
				w.at(2 * window)
				l.Stop()
				l.Suspend()
				l.Resume()
				w.wantEnded(l, heartbeat.ErrStopped)
				if l.Deadline() != deadline {
					t.Error("the deadline moved")
				}
				if got := w.carried(1); !slices.Equal(got, []int{1}) {
					t.Errorf("beaten in %v, want only before it was stopped", got)
				}
			})
		})
	}
}

func TestALeaseEndsForTheReasonThatWasFirst(t *testing.T) {
	tests := []struct {
		name   string
		answer answer
		end    func(*fixture, *heartbeat.Lease[int])
		want   error
	}{
		{"lost, then stopped", all(heartbeat.Lost), func(_ *fixture, l *heartbeat.Lease[int]) { l.Stop() }, heartbeat.ErrLost},
		{"stopped, then closed", hangs, func(w *fixture, l *heartbeat.Lease[int]) { l.Stop(); w.Close() }, heartbeat.ErrStopped},
		{"expired unnoticed, then stopped", hangs, func(w *fixture, l *heartbeat.Lease[int]) { w.skew.Store(int64(window)); l.Stop() }, heartbeat.ErrExpired},
		{"expired unnoticed, then closed", hangs, func(w *fixture, l *heartbeat.Lease[int]) { w.skew.Store(int64(window)); w.Close() }, heartbeat.ErrExpired},
		{"stopped, then past its deadline", hangs, func(w *fixture, l *heartbeat.Lease[int]) { l.Stop(); w.skew.Store(int64(window)) }, heartbeat.ErrStopped},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, test.answer, func(t *testing.T, w *fixture) {
				l := w.keep(1)
				w.at(interval)
				test.end(w, l)
				w.wantEnded(l, test.want)
			})
		})
	}
}
