package heartbeat_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
)

func TestALeaseExpiresExactlyAtItsDeadline(t *testing.T) {
	tests := []struct {
		name   string
		answer answer
		want   time.Duration
	}{
		{"when every beat fails", fails, window},
		{"when every beat hangs", hangs, window},
		{"when a beat hangs and heeds no context", answer(all(heartbeat.Renewed)).after(time.Hour), window},
		{"when its row stays locked by another", item(1, heartbeat.Unknown), window},
		{"counted from the last successful beat, when later ones fail", inTurn(all(heartbeat.Renewed), all(heartbeat.Renewed), fails), 2*interval + window},
		{"counted from when that beat was sent, not answered", inTurn(answer(all(heartbeat.Renewed)).after(5*time.Second), fails), interval + window},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, test.answer, func(t *testing.T, w *fixture) {
				began := w.Now()
				l := w.keep(1)
				w.at(test.want - 1)
				w.wantStanding(l)
				if got, want := l.Deadline(), began+heartbeat.Instant(test.want); got != want {
					t.Errorf("Deadline() = %s after the start, want %s", time.Duration(got-began), test.want)
				}
				w.at(test.want)
				w.wantEnded(l, heartbeat.ErrExpired)
			})
		})
	}
}

func TestALossIsReportedOnceAndAStopIsNot(t *testing.T) {
	inBubble(t, inTurn(item(1, heartbeat.Lost), fails), func(t *testing.T, w *fixture) {
		w.keep(1)
		w.keep(2)
		stopped := w.keep(3)
		w.at(interval)
		stopped.Stop()
		w.at(window + interval)
		w.keep(4)
		w.Close()
		if len(w.lost) != 2 ||
			w.lost[0].item != 1 || !errors.Is(w.lost[0].err, heartbeat.ErrLost) ||
			w.lost[1].item != 2 || !errors.Is(w.lost[1].err, heartbeat.ErrExpired) {
			t.Errorf("told of %v, want 1 lost and 2 expired", w.lost)
		}
	})
}

func TestEachLeaseHasItsOwnDeadline(t *testing.T) {
	inBubble(t, fails, func(t *testing.T, w *fixture) {
		var leases []*heartbeat.Lease[int]
		deadline := func(i int) time.Duration { return window - time.Duration(i*37%100)*time.Millisecond }
		for i := range 100 { // in no order
			leases = append(leases, w.Keep(i, w.Now()-heartbeat.Instant(window-deadline(i))))
		}
		for at := window - 100*time.Millisecond; at <= window; at += time.Millisecond {
			w.at(at)
			for i, l := range leases {
				if ended(l) != (deadline(i) <= at) {
					t.Fatalf("at %s, lease %d of deadline %s: Done closed: %t", at, i, deadline(i), ended(l))
				}
			}
		}
	})
}

func TestALeaseExpiresOnTimeAmongManyThatDoNot(t *testing.T) {
	inBubble(t, item(57, heartbeat.Unknown), func(t *testing.T, w *fixture) {
		leases := []*heartbeat.Lease[int]{w.keep(0)}
		const later = interval / 3 // so that no tick comes at the deadline
		w.at(later)
		for i := 1; i < 100; i++ {
			leases = append(leases, w.keep(i))
		}
		w.at(later + window - 1)
		w.wantStanding(leases[57])
		w.at(later + window)
		w.wantEnded(leases[57], heartbeat.ErrExpired)
		w.wantStanding(leases[0])
		w.wantStanding(leases[99])
	})
}

func TestAnAcquisitionThatTookTooLongIsAnExpiredLease(t *testing.T) {
	inBubble(t, all(heartbeat.Renewed), func(t *testing.T, w *fixture) {
		w.wantEnded(w.Keep(1, w.Now()-heartbeat.Instant(window)), heartbeat.ErrExpired)
	})
}

func TestAnAcquisitionInTheFutureCountsFromNow(t *testing.T) {
	inBubble(t, hangs, func(t *testing.T, w *fixture) {
		l := w.Keep(1, w.Now()+heartbeat.Instant(time.Hour))
		w.at(window)
		w.wantEnded(l, heartbeat.ErrExpired)
	})
}

// A frozen process runs no timers and receives no results. When it goes on, only the
// clock has moved.
func TestAProcessThatWasFrozenSeesTheLossBeforeAnyTimerFires(t *testing.T) {
	inBubble(t, all(heartbeat.Renewed), func(t *testing.T, w *fixture) {
		l := w.keep(1)
		w.at(interval + interval/2)
		w.wantStanding(l)
		w.skew.Store(int64(window - interval/2 - 1))
		w.wantStanding(l)
		w.skew.Store(int64(window - interval/2))
		if err := l.Err(); err != heartbeat.ErrExpired {
			t.Fatalf("Err() = %v", err)
		}
		if !ended(l) {
			t.Error("Err reported the loss with Done still open")
		}
		w.at(10 * interval)
		w.wantEnded(l, heartbeat.ErrExpired)
		if n := len(w.beats()); n != 1 {
			t.Errorf("an expired lease was beaten %d times", n-1)
		}
	})
}

func TestDoneFollowsASuspendedMachineWithinAnInterval(t *testing.T) {
	inBubble(t, inTurn(all(heartbeat.Renewed), hangs), func(t *testing.T, w *fixture) {
		l := w.keep(1)
		w.at(2*interval + interval/2) // the second beat hangs: nothing is due for long
		w.skew.Store(int64(time.Hour))
		w.at(3*interval + interval/2)
		w.wantEnded(l, heartbeat.ErrExpired)
	})
}

func TestALateSuccessDoesNotRevive(t *testing.T) {
	beaten := answer(all(heartbeat.Renewed))
	tests := []struct {
		name     string
		answered time.Duration // the beat sent at the first tick
		err      error
	}{
		{"answered just in time, it moves the deadline", window - 1, nil},
		{"answered at the deadline, it is too late", window, heartbeat.ErrExpired},
		{"answered after the deadline, it is too late", window + interval/2, heartbeat.ErrExpired},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, inTurn(beaten.after(test.answered-interval), beaten), func(t *testing.T, w *fixture) {
				l := w.keep(1)
				w.at(window - 1)
				w.wantStanding(l)
				w.at(window + interval)
				if test.err != nil {
					w.wantEnded(l, test.err)
				} else {
					w.wantStanding(l)
				}
			})
		})
	}
}

// When the process goes on, it sees the result of the beat first.
func TestASuccessProcessedAfterAFreezeDoesNotRevive(t *testing.T) {
	for _, result := range []heartbeat.Result{heartbeat.Renewed, heartbeat.Lost} {
		var goOn chan struct{}
		inBubble(t, func(ctx context.Context, n int, items []int) ([]heartbeat.Result, error) {
			<-goOn
			return all(result)(ctx, n, items)
		}, func(t *testing.T, w *fixture) {
			goOn = make(chan struct{})
			l := w.keep(1)
			w.at(interval)
			w.skew.Store(int64(window - interval))
			close(goOn)
			w.at(interval)
			w.wantEnded(l, heartbeat.ErrExpired)
		})
	}
}
