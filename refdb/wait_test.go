package refdb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/internal/engine"
)

func TestAWaiterPollsUntilTheLockIsFree(t *testing.T) {
	f := &fake{acquire: func(n int, _ driver.AcquireRequest) (driver.Acquired, error) {
		if n < 50 {
			return driver.Acquired{}, held(0)
		}
		return driver.Acquired{Token: 8}, nil
	}}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l, err := db.Lock(t.Context(), "p", testRef)
		if err != nil || l.Token() != 8 {
			t.Fatal(l, err)
		}
		for i, c := range f.acquires[1:] {
			if pause := c.at - f.acquires[i].at; pause < pollMin/2 || pause > pollMax*3/2 {
				t.Errorf("poll %d came after %s", i+1, pause)
			}
			if w := c.arg.Waiter; w.ID != f.acquires[0].arg.Waiter.ID || w.ID == "" || w.Channel != "" || w.Turn < pollMax*3/2 {
				t.Errorf("poll %d of %+v", i+1, w)
			}
		}
	})
}

func TestAWaiterPollsWhenTheHolderWouldBecomeStale(t *testing.T) {
	f := &fake{acquire: func(n int, _ driver.AcquireRequest) (driver.Acquired, error) {
		if n == 1 {
			return driver.Acquired{}, held(DefaultStaleAfter - 2*time.Millisecond)
		}
		return driver.Acquired{Token: 8}, nil
	}}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		if _, err := db.Lock(t.Context(), "p", testRef); err != nil {
			t.Fatal(err)
		}
		if at := f.acquires[1].at; at != 3*time.Millisecond {
			t.Errorf("asked again after %s", at)
		}
	})
}

func TestAWaiterIsWokenByANotificationAndPollsRarelyUntilThen(t *testing.T) {
	free := false
	f := &fake{acquire: func(int, driver.AcquireRequest) (driver.Acquired, error) {
		if free {
			return driver.Acquired{Token: 8}, nil
		}
		return driver.Acquired{}, held(0)
	}}
	released := make(chan struct{})
	d := &notifyingFake{fake: f}
	d.listen = func(ctx context.Context, started func(), wake func(driver.Wakeup)) error {
		started()
		select {
		case <-released:
			wake(driver.Wakeup{Project: "p", Ref: testRef, Waiter: f.acquires[1].arg.Waiter.ID})
			<-ctx.Done()
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
		released = make(chan struct{})
		done := make(chan error)
		go func() {
			_, err := db.Lock(t.Context(), "p", testRef)
			done <- err
		}()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := len(f.acquires); n < 20/2 || n > 20*2+2 {
			t.Errorf("%d requests within 20 s, want about one a second", n)
		}
		for i, c := range f.acquires {
			if (c.arg.Waiter.Channel == db.channel) != (i > 0) {
				t.Errorf("request %d: waiter %v; all have a channel once notifications arrive", i, c.arg.Waiter)
			}
		}
		before := time.Now()
		free = true
		close(released)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if d := time.Since(before); d != 0 {
			t.Errorf("woken after %s", d)
		}
	})
}

func TestWithoutNotificationsWaitersPoll(t *testing.T) {
	f := &fake{acquire: func(n int, _ driver.AcquireRequest) (driver.Acquired, error) {
		if n < 20 {
			return driver.Acquired{}, held(0)
		}
		return driver.Acquired{}, nil
	}}
	listens := 0
	d := &notifyingFake{fake: f, listen: func(context.Context, func(), func(driver.Wakeup)) error {
		listens++
		return fmt.Errorf("behind a pooler: %w", errors.ErrUnsupported)
	}}
	inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
		if _, err := db.Lock(t.Context(), "p", testRef); err != nil {
			t.Fatal(err)
		}
		if listens != 1 || f.acquires[19].arg.Waiter.Channel != "" {
			t.Errorf("listened %d times, the last request has a channel: %v", listens, f.acquires[19].arg.Waiter)
		}
	})
}

// A slowToList takes ten seconds to list locks, unless ctx ends before.
type slowToList struct{ *fake }

func (f slowToList) Locks(ctx context.Context, _ driver.LockQuery) (driver.LockPage, error) {
	engine.Sleep(ctx, 10*time.Second)
	return driver.LockPage{}, ctx.Err()
}

func TestWaitingEnds(t *testing.T) {
	refuse := func(int, driver.AcquireRequest) (driver.Acquired, error) { return driver.Acquired{}, held(0) }
	t.Run("with the context, whose error it carries beside the holders", func(t *testing.T) {
		f := &fake{acquire: refuse}
		inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := db.Lock(ctx, "p", testRef)
			wantIs(t, err, context.DeadlineExceeded, ErrLocked)
			var locked *LockedError
			if !errors.As(err, &locked) || locked.Holders[0].Owner != "other/1" {
				t.Errorf("%v does not name the holder", err)
			}
			if d := time.Since(f.start); d != 5*time.Second {
				t.Errorf("after %s", d)
			}
		})
	})
	t.Run("with the wait limit", func(t *testing.T) {
		f := &fake{acquire: refuse}
		inBubble(t, Options{MaxWait: 3 * time.Second}, f, f, func(t *testing.T, db *DB) {
			_, err := db.Lock(t.Context(), "p", testRef)
			wantIs(t, err, ErrLocked)
			if errors.Is(err, context.DeadlineExceeded) || time.Since(f.start) != 3*time.Second {
				t.Errorf("%v after %s", err, time.Since(f.start))
			}
		})
	})
	t.Run("in the queue of this process too", func(t *testing.T) {
		f := &fake{acquire: refuse}
		inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
			first, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); db.Lock(first, "p", testRef) }()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := db.Lock(ctx, "p", testRef)
			wantIs(t, err, context.DeadlineExceeded, ErrLocked)
			stop()
			<-done
		})
	})
	t.Run("in the middle of the queue, without a wait for those behind", func(t *testing.T) {
		f := &fake{}
		f.acquire = func(int, driver.AcquireRequest) (driver.Acquired, error) {
			if time.Since(f.start) > 2*time.Second {
				return driver.Acquired{Token: 9}, nil
			}
			return driver.Acquired{}, held(0)
		}
		inBubble(t, Options{}, f, slowToList{f}, func(t *testing.T, db *DB) {
			var waiters sync.WaitGroup
			for _, limit := range []time.Duration{2 * time.Second, time.Second} { // the first polls, the second is behind it
				waiters.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					if _, err := db.Lock(ctx, "p", testRef); !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			if _, err := db.Lock(t.Context(), "p", testRef); err != nil {
				t.Error(err)
			}
			if d := time.Since(f.start); d > 3*time.Second {
				t.Errorf("the third has it after %s", d)
			}
			waiters.Wait()
		})
	})
	t.Run("in the middle of a request, and still names the holder seen before", func(t *testing.T) {
		f := &fake{acquire: func(n int, _ driver.AcquireRequest) (driver.Acquired, error) {
			if n == 1 {
				return driver.Acquired{}, held(0)
			}
			time.Sleep(10 * time.Second)
			return driver.Acquired{}, context.DeadlineExceeded
		}}
		inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := db.Lock(ctx, "p", testRef)
			wantIs(t, err, context.DeadlineExceeded, ErrLocked)
		})
	})
}

func TestAnOutageWhileWaiting(t *testing.T) {
	t.Run("ends the wait at once if there was no answer before", func(t *testing.T) {
		f := &fake{acquire: func(int, driver.AcquireRequest) (driver.Acquired, error) { return driver.Acquired{}, ErrUnavailable }}
		inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
			_, err := db.Lock(t.Context(), "p", testRef)
			wantIs(t, err, ErrUnavailable)
			if strings.Contains(err.Error(), "%!") {
				t.Error(err)
			}
			if d := time.Since(f.start); d > 2*time.Second {
				t.Errorf("after %s", d)
			}
		})
	})
	t.Run("does not end it if it is short", func(t *testing.T) {
		f := &fake{}
		f.acquire = func(n int, _ driver.AcquireRequest) (driver.Acquired, error) {
			switch at := time.Since(f.start); {
			case at < time.Second:
				return driver.Acquired{}, held(0)
			case at < 20*time.Second:
				return driver.Acquired{}, ErrUnavailable
			default:
				return driver.Acquired{Token: 9}, nil
			}
		}
		inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
			if _, err := db.Lock(t.Context(), "p", testRef); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("ends it if it is long", func(t *testing.T) {
		f := &fake{}
		f.acquire = func(n int, _ driver.AcquireRequest) (driver.Acquired, error) {
			if n == 1 {
				return driver.Acquired{}, held(0)
			}
			return driver.Acquired{}, ErrUnavailable
		}
		inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
			_, err := db.Lock(t.Context(), "p", testRef)
			wantIs(t, err, ErrUnavailable)
			if d := time.Since(f.start); d < DefaultStaleAfter || d > DefaultStaleAfter+5*time.Second {
				t.Errorf("after %s", d)
			}
		})
	})
}

func TestAReleaseHandsOverWithinTheProcessAtOnce(t *testing.T) {
	var holder *Lock
	f := &fake{}
	f.acquire = func(n int, _ driver.AcquireRequest) (driver.Acquired, error) {
		if n > 1 && len(f.releases) == 0 {
			return driver.Acquired{}, held(0)
		}
		return driver.Acquired{Token: Token(n)}, nil
	}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		holder = mustLock(t, db, testRef)
		done := make(chan error)
		go func() {
			_, err := db.Lock(t.Context(), "p", testRef)
			done <- err
		}()
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		before := time.Now()
		if err := holder.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || time.Since(before) != 0 {
			t.Errorf("%v after %s", err, time.Since(before))
		}
	})
}

func TestAReleaseNamesTheNextWaiterToTheDriver(t *testing.T) {
	f := &fake{}
	f.acquire = func(n int, _ driver.AcquireRequest) (driver.Acquired, error) {
		if n > 1 && len(f.releases)+len(f.updates) == 0 {
			return driver.Acquired{}, held(0)
		}
		return driver.Acquired{Token: Token(n)}, nil
	}
	d := &notifyingFake{fake: f}
	for name, end := range map[string]func(*Lock, *testing.T) error{
		"by a release": func(l *Lock, t *testing.T) error { return l.Release(t.Context()) },
		"by an update's release": func(l *Lock, t *testing.T) error {
			return l.UpdateAndRelease(t.Context(), []Update{{Ref: testRef, New: "a"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f.acquires, f.releases, f.updates = nil, nil, nil
			inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
				holder := mustLock(t, db, testRef)
				done := make(chan error)
				go func() {
					_, err := db.Lock(t.Context(), "p", testRef)
					done <- err
				}()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				before := time.Now()
				if err := end(holder, t); err != nil {
					t.Fatal(err)
				}
				if err := <-done; err != nil || time.Since(before) != 0 {
					t.Errorf("%v after %s", err, time.Since(before))
				}
				want := f.acquires[1].arg.Waiter
				want.Channel, want.Turn = db.channel, turnNotified
				if len(f.releases) > 0 && f.releases[0].arg.Next != want || len(f.updates) > 0 && f.updates[0].arg.Fence.Next != want {
					t.Errorf("the driver was told: %+v, %+v; want %+v", f.releases, f.updates, want)
				}
			})
		})
	}
}
