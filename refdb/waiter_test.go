package refdb

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// startWaiting calls Lock in a goroutine, which ends when it has the locks or giveUp is called.
func startWaiting(t *testing.T, db *DB, refs ...string) (giveUp func(), ended chan error) {
	ctx, giveUp := context.WithCancel(t.Context())
	ended = make(chan error, 1)
	go func() {
		_, err := db.Lock(ctx, "p", refs...)
		ended <- err
	}()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	return giveUp, ended
}

func TestEachRequestOfAWaiterCarriesItsPlace(t *testing.T) {
	place := func(n int) driver.Place { return driver.Place{Ticket: time.UnixMicro(7), Passed: n, Ahead: 1} }
	f := &fake{acquire: func(n int, r driver.AcquireRequest) (driver.Acquired, error) {
		if n < 5 {
			return driver.Acquired{Place: place(n)}, held(0)
		}
		return driver.Acquired{Token: 8}, nil
	}}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		if _, err := db.Lock(t.Context(), "p", testRef); err != nil {
			t.Fatal(err)
		}
		for i, c := range f.acquires[1:] {
			if c.arg.Waiter.Place != place(i+1) {
				t.Errorf("request %d came with %+v", i+2, c.arg.Waiter.Place)
			}
		}
		if len(f.abandons) != 0 {
			t.Errorf("a waiter that has its locks withdrew: %+v", f.abandons)
		}
	})
}

func TestTheFirstInTheQueuePollsMoreOften(t *testing.T) {
	pauses := map[int]time.Duration{}
	for _, ahead := range []int{0, 1} {
		f := &fake{acquire: func(n int, r driver.AcquireRequest) (driver.Acquired, error) {
			if n < 100 {
				return driver.Acquired{Place: driver.Place{Ticket: time.UnixMicro(7), Ahead: ahead}}, held(0)
			}
			return driver.Acquired{Token: 8}, nil
		}}
		inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
			if _, err := db.Lock(t.Context(), "p", testRef); err != nil {
				t.Fatal(err)
			}
			for i, c := range f.acquires[1:] {
				pauses[ahead] = max(pauses[ahead], c.at-f.acquires[i].at)
			}
		})
	}
	if first, second := pauses[0], pauses[1]; first > pollNext*3/2 || second < pollMax || second > pollMax*3/2 {
		t.Errorf("the longest pause of the first is %s, of the second %s", first, second)
	}
}

// A turn is long enough for a waiter that polls, and for one far from the database.
func TestATurnLastsForAPauseAndTwoRoundTrips(t *testing.T) {
	const trip = 80 * time.Millisecond // the last one counts
	f := &fake{acquire: func(n int, r driver.AcquireRequest) (driver.Acquired, error) {
		time.Sleep(trip)
		if n < 5 {
			return driver.Acquired{}, held(0)
		}
		return driver.Acquired{Token: 8}, nil
	}}
	d := &notifyingFake{fake: f}
	inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
		if _, err := db.Lock(t.Context(), "p", testRef); err != nil {
			t.Fatal(err)
		}
		if first, then := f.acquires[0].arg.Waiter, f.acquires[4].arg.Waiter; first.Turn != turnPolled || then.Turn != turnNotified+2*trip {
			t.Errorf("a turn lasts %s, and then %s", first.Turn, then.Turn)
		}
	})
}

// The reservations of a waiter for several refs stay only while it makes requests.
func TestAWaiterForSeveralRefsPollsWithinItsTurn(t *testing.T) {
	for name, refs := range map[string][]string{"one ref": {testRef}, "two refs": {testRef, "refs/heads/other"}} {
		t.Run(name, func(t *testing.T) {
			f := &fake{acquire: func(n int, r driver.AcquireRequest) (driver.Acquired, error) {
				if n < 20 {
					return driver.Acquired{Place: driver.Place{Ticket: time.UnixMicro(7), Passed: driver.MaxPassed, Ahead: 3}}, held(0)
				}
				return driver.Acquired{Token: 8}, nil
			}}
			d := &notifyingFake{fake: f}
			inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
				if _, err := db.Lock(t.Context(), "p", refs...); err != nil {
					t.Fatal(err)
				}
				var longest time.Duration
				for i, c := range f.acquires[2:] {
					longest = max(longest, c.at-f.acquires[i+1].at)
				}
				if kept := longest < turnNotified; kept != (len(refs) > 1) {
					t.Errorf("it paused for %s", longest)
				}
			})
		})
	}
}

func TestAWaiterThatGivesUpLeavesItsQueues(t *testing.T) {
	var broken atomic.Bool
	f := &fake{acquire: func(int, driver.AcquireRequest) (driver.Acquired, error) {
		if broken.Load() {
			return driver.Acquired{}, ErrSchema
		}
		return driver.Acquired{}, held(0)
	}}
	d := &notifyingFake{fake: f}
	refs := []string{testRef, "refs/heads/other"}
	inBubble(t, Options{MaxWait: 10 * time.Second}, f, d, func(t *testing.T, db *DB) {
		giveUp, ended := startWaiting(t, db, refs...)
		giveUp()
		wantIs(t, <-ended, context.Canceled, ErrLocked)
		_, ended = startWaiting(t, db, refs...)
		wantIs(t, <-ended, errMaxWait, ErrLocked)
		_, ended = startWaiting(t, db, refs...)
		broken.Store(true)
		wantIs(t, <-ended, ErrSchema)
		synctest.Wait()
		if len(f.abandons) != 3 {
			t.Fatalf("%d withdrew", len(f.abandons))
		}
		for i, c := range f.abandons {
			if !slices.Equal(c.arg.Refs, refs) || c.arg.Nonce != "" || c.arg.Owner != db.Owner() || c.arg.Waiter == "" || i > 0 && c.arg.Waiter == f.abandons[i-1].arg.Waiter {
				t.Errorf("withdrawn: %+v", c.arg)
			}
		}
	})
}

// A lock may be reserved for a waiter that has given up meanwhile.
func TestAWakeUpForAWaiterThatIsGoneWithdrawsIt(t *testing.T) {
	f := &fake{acquire: func(int, driver.AcquireRequest) (driver.Acquired, error) { return driver.Acquired{}, held(0) }}
	d := &notifyingFake{fake: f}
	inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
		giveUp, ended := startWaiting(t, db, testRef)
		defer giveUp()
		d.wakeUp(driver.Wakeup{Project: "p", Ref: testRef, Waiter: "gone", After: time.Second})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(f.abandons) != 0 {
			t.Errorf("it was not its turn: %+v", f.abandons)
		}
		d.wakeUp(driver.Wakeup{Project: "p", Ref: testRef, Waiter: "gone"})
		synctest.Wait()
		if len(f.abandons) != 1 || f.abandons[0].arg.Waiter != "gone" || !slices.Equal(f.abandons[0].arg.Refs, []string{testRef}) {
			t.Errorf("withdrawn: %+v", f.abandons)
		}
		select {
		case err := <-ended:
			t.Errorf("the other ended: %v", err)
		default:
		}
	})
}

func TestAWaiterToldOfAnothersTurnMakesItsRequestWhenThatIsOver(t *testing.T) {
	var turn atomic.Int64 // when it is over, since f.start; 0 before it has begun
	f := &fake{}
	f.acquire = func(int, driver.AcquireRequest) (driver.Acquired, error) {
		if over := turn.Load(); over > 0 && time.Since(f.start) >= time.Duration(over) {
			return driver.Acquired{Token: 8}, nil
		}
		return driver.Acquired{}, held(0)
	}
	d := &notifyingFake{fake: f}
	inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
		_, ended := startWaiting(t, db, testRef)
		over := time.Since(f.start) + turnNotified
		turn.Store(int64(over))
		d.wakeUp(driver.Wakeup{Project: "p", Ref: testRef, Waiter: f.acquireCalls()[0].arg.Waiter.ID, After: turnNotified})
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if at := time.Since(f.start); at != over {
			t.Errorf("it asked %s after the turn was over", at-over)
		}
	})
}

// A waiter that a release puts into the queue makes no request before its turn, and leaves if it
// gives up.
func TestTheNextOfAReleaseWaitsWithoutPolling(t *testing.T) {
	for name, gives := range map[string]bool{"to its turn": false, "and gives up": true} {
		t.Run(name, func(t *testing.T) {
			var free atomic.Bool
			f := &fake{acquire: func(n int, _ driver.AcquireRequest) (driver.Acquired, error) {
				if n > 1 && !free.Load() {
					return driver.Acquired{}, held(0)
				}
				return driver.Acquired{Token: Token(n)}, nil
			}}
			d := &notifyingFake{fake: f, queues: true}
			inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
				holder := mustLock(t, db, testRef)
				giveUp, ended := startWaiting(t, db, testRef)
				asked := len(f.acquireCalls())
				if err := holder.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if n := len(f.acquireCalls()); n != asked {
					t.Errorf("it asked %d times", n-asked)
				}
				next := f.releases[0].arg.Next.ID
				if gives {
					giveUp()
				} else {
					free.Store(true)
					d.wakeUp(driver.Wakeup{Project: "p", Ref: testRef, Waiter: next})
				}
				if err := <-ended; gives != errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				synctest.Wait()
				if left := len(f.abandons) > 0 && f.abandons[0].arg.Waiter == next; left != gives {
					t.Errorf("withdrawn are %+v", f.abandons)
				}
			})
		})
	}
}

// A waiter for a lock of its own process knows the holder without a request.
func TestGivingUpOnALockOfTheSameProcess(t *testing.T) {
	f := &fake{}
	d := &notifyingFake{fake: f, queues: true}
	inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
		holder := mustLock(t, db, testRef)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := db.Lock(ctx, "p", testRef)
		wantIs(t, err, context.DeadlineExceeded)
		var locked *LockedError
		if !errors.As(err, &locked) || len(locked.Holders) != 1 || locked.Holders[0].ID() != (driver.LockID{Project: "p", Ref: testRef, Owner: db.Owner(), Token: holder.Token()}) || locked.Holders[0].Stale() {
			t.Errorf("%v, %+v", err, locked)
		}
		synctest.Wait()
		if n := len(f.acquireCalls()); n != 1 || len(f.abandons) != 1 {
			t.Errorf("%d requests, withdrawn are %+v", n, f.abandons)
		}
	})
}

// The Next of a release may give up before the release is done.
func TestANextThatGivesUpDuringTheReleaseIsWithdrawn(t *testing.T) {
	f := &fake{}
	f.acquire = func(n int, _ driver.AcquireRequest) (driver.Acquired, error) {
		if n > 1 {
			return driver.Acquired{}, held(0)
		}
		return driver.Acquired{Token: 1}, nil
	}
	d := &notifyingFake{fake: f}
	inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
		holder := mustLock(t, db, testRef)
		giveUp, ended := startWaiting(t, db, testRef)
		f.release = func(int, driver.ReleaseRequest) (driver.Released, error) {
			giveUp()
			<-ended
			time.Sleep(time.Second)
			return driver.Released{}, nil
		}
		if err := holder.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(f.abandons); n == 0 || f.abandons[n-1].arg.Waiter != f.releases[0].arg.Next.ID || f.abandons[n-1].at < f.releases[0].at+time.Second {
			t.Errorf("withdrawn are %+v, the release was %+v", f.abandons, f.releases[0])
		}
	})
}
