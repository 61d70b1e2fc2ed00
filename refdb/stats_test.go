package refdb

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A meteringFake is a fake with counters of connections.
type meteringFake struct{ *fake }

func (m meteringFake) Stats() driver.DriverStats {
	return driver.DriverStats{Pools: []driver.Pool{{Name: "requests", Max: 4}}}
}

func TestStatsCountLocksAndWaiters(t *testing.T) {
	f := &fake{acquire: func(_ int, r driver.AcquireRequest) (driver.Acquired, error) {
		if r.Refs[0] == testRef {
			return driver.Acquired{}, held(0)
		}
		return driver.Acquired{Token: 8}, nil
	}}
	inBubble(t, Options{}, f, meteringFake{f}, func(t *testing.T, db *DB) {
		is := func(want Stats) {
			t.Helper()
			synctest.Wait()
			want.Driver = meteringFake{}.Stats()
			if s := db.Stats(); !reflect.DeepEqual(s, want) {
				t.Errorf("%+v, want %+v", s, want)
			}
		}
		is(Stats{})
		const left = DefaultStaleAfter * 4 / 5
		l := mustLock(t, db, "refs/heads/a")
		is(Stats{Locks: 1, Left: left})
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan struct{})
		go func() {
			_, _ = db.Lock(ctx, "p", testRef)
			close(gaveUp)
		}()
		time.Sleep(time.Second)
		is(Stats{Locks: 1, Left: left - time.Second, Waiting: 1})
		cancel()
		<-gaveUp
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		is(Stats{})
	})
}

func TestADriverThatIsNoMeterHasNoStats(t *testing.T) {
	f := &fake{}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		if s := db.Stats(); !reflect.DeepEqual(s, Stats{}) {
			t.Errorf("%+v", s)
		}
	})
}

func TestBatchesAreCountedByTheirSize(t *testing.T) {
	var b driver.Batches
	for _, n := range []int{1, 2, 3, 4, 5, 256, 257, 10_000} {
		b.Count(n)
	}
	if want := [10]uint64{1, 1, 2, 1, 0, 0, 0, 0, 1, 2}; b.Sizes != want || b.Requests != 10_528 {
		t.Errorf("%+v", b)
	}
}

func TestAnEventSaysHowLongALockWasWaitedForAndHandedOver(t *testing.T) {
	const trip = 30 * time.Millisecond
	asked := make(chan struct{}, 100)
	f := &fake{acquire: func(n int, _ driver.AcquireRequest) (driver.Acquired, error) {
		time.Sleep(trip)
		asked <- struct{}{}
		if n == 1 {
			return driver.Acquired{}, held(0)
		}
		return driver.Acquired{Token: 8}, nil
	}}
	woken := make(chan driver.Wakeup)
	d := &notifyingFake{fake: f}
	d.listen = func(ctx context.Context, started func(), wake func(driver.Wakeup)) error {
		<-woken
		wake(driver.Wakeup{Project: "p", Ref: testRef, Waiter: f.acquires[0].arg.Waiter.ID})
		<-ctx.Done()
		return ctx.Err()
	}
	var e Event
	inBubble(t, Options{Observe: func(told Event) { e = told }}, f, d, func(t *testing.T, db *DB) {
		woken, asked = make(chan driver.Wakeup), make(chan struct{}, 100)
		done := make(chan error)
		go func() {
			_, err := db.Lock(t.Context(), "p", testRef)
			done <- err
		}()
		<-asked
		time.Sleep(time.Millisecond)
		woken <- driver.Wakeup{}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if e.Op != driver.OpLock || e.Waited != trip+time.Millisecond || e.HandOver != trip || e.Attempts != 2 {
			t.Errorf("%+v", e)
		}
	})
}

func TestAnEventOfALockThatIsFreeHasNoWait(t *testing.T) {
	var e Event
	f := &fake{}
	inBubble(t, Options{Observe: func(told Event) { e = told }}, f, f, func(t *testing.T, db *DB) {
		if _, err := db.Lock(t.Context(), "p", testRef); err != nil || e.Op != driver.OpLock || e.Waited != 0 || e.HandOver != 0 {
			t.Errorf("%+v, %v", e, err)
		}
	})
}

func TestAnEventSaysHowLateABeatWas(t *testing.T) {
	var late []time.Duration
	f := &fake{}
	f.beat = func(n int, locks []driver.LockID) ([]driver.BeatResult, error) {
		if n == 1 {
			time.Sleep(DefaultHeartbeat + time.Second) // so the second is late
		}
		return []driver.BeatResult{driver.BeatRenewed}, nil
	}
	inBubble(t, Options{Observe: func(e Event) {
		if e.Op == driver.OpBeat {
			late = append(late, e.Late)
		}
	}}, f, f, func(t *testing.T, db *DB) {
		mustLock(t, db, testRef)
		time.Sleep(2*DefaultHeartbeat + 1500*time.Millisecond)
		synctest.Wait()
		if len(late) != 2 || late[0] != 0 || late[1] != time.Second {
			t.Errorf("beats were %v late", late)
		}
	})
}

func TestALossThatTheReleaseFindsIsReportedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		beat func(int, []driver.LockID) ([]driver.BeatResult, error)
		hold time.Duration
		want []string
	}{
		"first": {nil, time.Second, []string{"trylock ok", "lost lost", "release lost"}},
		"after a beat": {
			func(int, []driver.LockID) ([]driver.BeatResult, error) {
				return []driver.BeatResult{driver.BeatLost}, nil
			},
			3 * time.Second, []string{"trylock ok", "beat ok", "lost lost", "release lost"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{beat: c.beat, release: func(int, driver.ReleaseRequest) (driver.Released, error) {
				return driver.Released{Missing: []string{testRef}}, nil
			}}
			var mu sync.Mutex
			var told []string
			inBubble(t, Options{Observe: func(e Event) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, e.Op+" "+e.Outcome)
			}}, f, f, func(t *testing.T, db *DB) {
				l := mustLock(t, db, testRef)
				time.Sleep(c.hold)
				synctest.Wait()
				wantIs(t, l.Release(t.Context()), ErrLockLost)
				wantIs(t, l.Release(t.Context()), ErrLockLost)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(told, c.want) {
					t.Errorf("told of %q, want %q", told, c.want)
				}
			})
		})
	}
}
