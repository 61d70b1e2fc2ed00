package heartbeat_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/heartbeat"
)

func TestOneBeatPerTickCarriesEveryLease(t *testing.T) {
	inBubble(t, all(heartbeat.Renewed), func(t *testing.T, w *fixture) {
		const leases, ticks = 1_000, 10
		for i := range leases {
			w.keep(i)
		}
		w.at(ticks*interval + interval/2)
		beats := w.beats()
		if len(beats) != ticks {
			t.Fatalf("%d beats in %d ticks: %v", len(beats), ticks, w.instants())
		}
		for i, b := range beats {
			if want := time.Duration(i+1) * interval; b.at != want || len(b.items) != leases {
				t.Errorf("beat %d at %s of %d items, want %s and %d", i+1, b.at, len(b.items), want, leases)
			}
		}
	})
}

func TestNothingRunsWithoutLeases(t *testing.T) {
	inBubble(t, all(heartbeat.Renewed), func(t *testing.T, w *fixture) {
		idle := func() {
			t.Helper()
			w.at(time.Since(w.start) + interval) // a timer may be left over
			beats, readings := len(w.beats()), w.readings.Load()
			w.at(time.Since(w.start) + time.Hour)
			if len(w.beats()) != beats || w.readings.Load() != readings {
				t.Errorf("%d beats and %d looks at the clock in an hour without leases", len(w.beats())-beats, w.readings.Load()-readings)
			}
		}
		idle()
		l := w.keep(1)
		w.at(time.Since(w.start) + 3*interval)
		if n := len(w.beats()); n != 3 {
			t.Fatalf("%d beats in 3 intervals", n)
		}
		l.Stop()
		idle()
	})
}

// Waking the loop costs more than everything else that a short lease does.
func TestShortLeasesWakeTheLoopOnceAnInterval(t *testing.T) {
	inBubble(t, all(heartbeat.Renewed), func(t *testing.T, w *fixture) {
		const leases = 100
		synctest.Wait()
		before := w.readings.Load()
		for i := range leases {
			l := w.keep(i)
			l.Stop() // before the loop has looked
			synctest.Wait()
		}
		const each = 3 // looks at the clock by the test, Keep and Stop
		if n := w.readings.Load() - before - leases*each; n > 1 {
			t.Errorf("the loop looked %d times, want once", n)
		}
		w.keep(leases)
		w.at(3 * interval)
		if n := len(w.beats()); n != 3 {
			t.Errorf("%d beats in 3 intervals of a lease that stands", n)
		}
	})
}

func TestANewLeaseIsBeatenWithinAnInterval(t *testing.T) {
	inBubble(t, all(heartbeat.Renewed), func(t *testing.T, w *fixture) {
		kept := map[int]time.Duration{}
		for i := range 50 {
			w.at(time.Duration(i) * 730 * time.Millisecond)
			l := w.keep(i)
			kept[i] = time.Since(w.start)
			if i%3 == 0 { // so that the keeper is without leases in between
				w.at(time.Since(w.start) + 700*time.Millisecond)
				l.Stop()
				delete(kept, i)
			}
		}
		w.at(time.Since(w.start) + interval)
		for i, since := range kept {
			beats := w.carried(i)
			if len(beats) == 0 {
				t.Fatalf("item %d, kept at %s, was never beaten", i, since)
			}
			if first := w.beats()[beats[0]-1].at; first-since > interval {
				t.Errorf("item %d, kept at %s, was first beaten at %s", i, since, first)
			}
		}
	})
}

func TestALeaseWhoseAcquisitionWasSlowIsBeatenAtOnce(t *testing.T) {
	inBubble(t, all(heartbeat.Renewed), func(t *testing.T, w *fixture) {
		other := w.keep(1)
		w.at(interval / 2)
		slow := w.Keep(2, w.Now()-heartbeat.Instant(window-time.Second/2))
		w.at(interval / 2)
		if got := w.beats(); len(got) != 1 || !slices.Equal(got[0].items, []int{2}) {
			t.Fatalf("beats: %v, want one of item 2", got)
		}
		w.at(10 * interval)
		w.wantStanding(slow)
		w.wantStanding(other)
	})
}

func TestASlowAcquisitionDoesNotWaitForTheRetryOfOthersEither(t *testing.T) {
	inBubble(t, inTurn(answer(fails).after(3*time.Second/2), all(heartbeat.Renewed)), func(t *testing.T, w *fixture) {
		w.keep(1)
		w.at(5 * time.Second / 2) // of the beat under way, a second is to go
		slow := w.Keep(2, w.Now()-heartbeat.Instant(window-1001*time.Millisecond))
		w.at(10 * interval)
		w.wantStanding(slow)
	})
}

func TestALostLeaseEndsAtOnceAndNoOtherDoes(t *testing.T) {
	inBubble(t, item(2, heartbeat.Lost), func(t *testing.T, w *fixture) {
		kept, lost := w.keep(1), w.keep(2)
		w.at(interval - 1)
		w.wantStanding(lost)
		w.at(interval)
		w.wantEnded(lost, heartbeat.ErrLost)
		w.at(20 * interval)
		w.wantStanding(kept)
		w.wantEnded(lost, heartbeat.ErrLost)
		if got := w.carried(2); !slices.Equal(got, []int{1}) {
			t.Errorf("the lost item was in beats %v, want only the first", got)
		}
	})
}

func TestUnknownIsRetriedSoonerAndIsNotALoss(t *testing.T) {
	tests := []struct {
		name  string
		first answer // to the first beat; later ones succeed
		items []int  // that the second beat carries
	}{
		{"a beat that failed, for all leases", fails, []int{1, 2}},
		{"a beat that answered for too few, for all leases", func(context.Context, int, []int) ([]heartbeat.Result, error) {
			return []heartbeat.Result{heartbeat.Lost}, nil
		}, []int{1, 2}},
		{"a beat that failed and claims losses, for all leases", func(context.Context, int, []int) ([]heartbeat.Result, error) {
			return []heartbeat.Result{heartbeat.Lost, heartbeat.Lost}, errDown
		}, []int{1, 2}},
		{"one row that somebody keeps locked, for that lease only", item(2, heartbeat.Unknown), []int{2}},
		{"a result from the future, for that lease only", item(2, heartbeat.Result(7)), []int{2}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, inTurn(test.first, all(heartbeat.Renewed)), func(t *testing.T, w *fixture) {
				one, two := w.keep(1), w.keep(2)
				w.at(interval)
				w.wantStanding(one)
				w.wantStanding(two)
				w.at(interval + interval/4)
				beats := w.beats()
				if len(beats) != 2 || !slices.Equal(beats[1].items, test.items) {
					t.Fatalf("beats %v, want a second of %v", beats, test.items)
				}
				w.at(20*interval + interval/4) // and then it is as if nothing had happened
				w.wantStanding(one)
				w.wantStanding(two)
				if n := len(w.beats()); n != 21 {
					t.Errorf("%d beats in 20 intervals, want one more: %v", n, w.instants())
				}
			})
		})
	}
}

func TestRetriesBackOffButNeverBeyondATick(t *testing.T) {
	for name, a := range map[string]answer{"all unknown": fails, "one unknown": item(1, heartbeat.Unknown)} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, a, func(t *testing.T, w *fixture) {
				w.keep(1)
				w.at(window)
				sent := w.instants()
				var gaps []time.Duration
				for i := range sent[1:] {
					gaps = append(gaps, sent[i+1]-sent[i])
				}
				if n := len(gaps); n < 12 || n > 60 {
					t.Fatalf("%d retries in %s", n, window-interval)
				}
				if slices.Max(gaps) > interval {
					t.Errorf("beats at %v: a retry waited longer than a tick", sent)
				}
				if gaps[0] > interval/4 {
					t.Errorf("first retry after %s, want it soon", gaps[0])
				}
				slices.Sort(gaps)
				if median := gaps[len(gaps)/2]; median < interval/8 {
					t.Errorf("half of the retries came within %s", median)
				}
				if len(slices.Compact(gaps)) < len(gaps)/2 {
					t.Errorf("retries come without jitter: %v", gaps)
				}
			})
		})
	}
}

func TestASlowFailureIsNotRetriedAtOnce(t *testing.T) {
	inBubble(t, answer(fails).after(interval+interval/2), func(t *testing.T, w *fixture) {
		w.keep(1)
		w.at(window)
		sent := w.instants()
		for i := range sent[1:] {
			if gap := sent[i+1] - sent[i] - (interval + interval/2); gap < interval/16 {
				t.Errorf("beats at %v: one came %s after the failure of the one before", sent, gap)
			}
		}
	})
}

func TestRetriesStartOverAfterASuccess(t *testing.T) {
	beaten := answer(all(heartbeat.Renewed))
	inBubble(t, inTurn(fails, fails, fails, fails, fails, beaten, fails, beaten), func(t *testing.T, w *fixture) {
		w.keep(1)
		w.at(window)
		if sent := w.instants(); sent[7]-sent[6] > interval/4 {
			t.Errorf("beats at %v, the second outage's first retry should come soon", sent)
		}
	})
}

func TestALeaseThatRecoveredIsNotRetriedWithOthers(t *testing.T) {
	two, beaten, one := item(2, heartbeat.Unknown), answer(all(heartbeat.Renewed)), item(1, heartbeat.Unknown)
	inBubble(t, inTurn(two, beaten, one, beaten), func(t *testing.T, w *fixture) {
		w.keep(1)
		w.keep(2)
		w.at(2*interval + interval/2)
		var got [][]int
		for _, b := range w.beats() {
			got = append(got, b.items)
		}
		if want := [][]int{{1, 2}, {2}, {1, 2}, {1}}; !reflect.DeepEqual(got, want) {
			t.Errorf("beats of %v, want %v", got, want)
		}
	})
}

func TestBeatsNeverOverlapNorDrift(t *testing.T) {
	s := func(seconds ...float64) []time.Duration {
		var all []time.Duration
		for _, f := range seconds {
			all = append(all, time.Duration(f*float64(time.Second)))
		}
		return all
	}
	beaten := answer(all(heartbeat.Renewed))
	tests := []struct {
		name string
		answer
		want []time.Duration
	}{
		{"a beat of half a second leaves the ticks where they were", beaten.after(time.Second / 2), s(2, 4, 6, 8, 10, 12, 14)},
		{"after a beat that took longer than the interval the next starts right away", beaten.after(5 * time.Second), s(2, 7, 12)},
		{"a beat that starts late does not put off the next", inTurn(beaten.after(5*time.Second/2), beaten), s(2, 4.5, 6, 8, 10, 12, 14)},
		{"ticks missed are not made up for", inTurn(beaten.after(7*time.Second), beaten), s(2, 9, 11, 13, 15)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, test.answer, func(t *testing.T, w *fixture) {
				w.keep(1)
				w.at(15 * time.Second)
				if got := w.instants(); !reflect.DeepEqual(got, test.want) {
					t.Errorf("beats at %v, want %v", got, test.want)
				}
			})
		})
	}
}

func TestAHangingBeatIsCancelledInTimeForTwoMore(t *testing.T) {
	inBubble(t, inTurn(hangs, hangs, all(heartbeat.Renewed)), func(t *testing.T, w *fixture) {
		l := w.keep(1)
		w.at(2 * window)
		w.wantStanding(l)
	})
}

func TestALeaseKeptDuringABeatIsNotChangedByIt(t *testing.T) {
	slowLost := answer(all(heartbeat.Lost)).after(interval / 2)
	inBubble(t, inTurn(slowLost, all(heartbeat.Renewed)), func(t *testing.T, w *fixture) {
		before := w.keep(1)
		w.at(interval + interval/4)
		during := w.keep(1) // the same item
		w.at(interval + interval/2)
		w.wantEnded(before, heartbeat.ErrLost)
		w.wantStanding(during)
		w.at(10 * interval)
		w.wantStanding(during)
	})
}

func TestExpiryNamesTheErrorOfTheLastBeat(t *testing.T) {
	inBubble(t, fails, func(t *testing.T, w *fixture) {
		l := w.keep(1)
		w.at(window)
		err := l.Err()
		if !errors.Is(err, heartbeat.ErrExpired) || !strings.Contains(err.Error(), errDown.Error()) {
			t.Errorf("Err() = %v, want it to name %q", err, errDown)
		}
		if errors.Is(err, errDown) {
			t.Error("the end of a lease must not be taken for the error of a beat")
		}
	})
	inBubble(t, inTurn(fails, all(heartbeat.Renewed)), func(t *testing.T, w *fixture) {
		l := w.keep(1)
		w.at(2 * interval)
		w.skew.Store(int64(window))
		if err := l.Err(); err != heartbeat.ErrExpired {
			t.Errorf("Err() = %v, though the last beat succeeded", err)
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	inBubble(t, hangs, func(t *testing.T, w *fixture) {
		l, stopped := w.keep(1), w.keep(2)
		stopped.Stop()
		w.at(interval + interval/2) // a beat hangs
		w.Close()
		if now := time.Since(w.start); now != interval+interval/2 {
			t.Errorf("Close returned at %s: it did not cancel the beat", now)
		}
		w.wantEnded(l, heartbeat.ErrClosed)
		w.wantEnded(stopped, heartbeat.ErrStopped)
		w.wantEnded(w.keep(3), heartbeat.ErrClosed)
		w.at(10 * interval)
		if n := len(w.beats()); n != 1 {
			t.Errorf("%d beats after Close", n-1)
		}
		w.Close()
	})
}

func TestCloseWaitsForTheBeatInFlight(t *testing.T) {
	inBubble(t, answer(all(heartbeat.Renewed)).after(interval/2), func(t *testing.T, w *fixture) {
		w.keep(1)
		w.at(interval + interval/4)
		for range 2 { // concurrent calls, too
			go func() {
				w.Close()
				if now := time.Since(w.start); now != interval+interval/2 {
					t.Errorf("Close returned at %s, while a beat was under way", now)
				}
			}()
		}
		w.at(interval + interval/2)
	})
}
