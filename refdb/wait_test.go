package refdb

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAWaiterPollsUntilTheLockIsFree(t *testing.T) {
	f := &fake{acquire: func(n int, _ AcquireRequest) (Acquired, error) {
		if n < 50 {
			return Acquired{}, held(0)
		}
		return Acquired{Token: 8}, nil
	}}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		l, err := db.Lock(t.Context(), "p", testRef)
		if err != nil || l.Token() != 8 {
			t.Fatal(l, err)
		}
		for i, c := range f.acquires[1:] {
			if pause := c.at - f.acquires[i].at; pause < pollFirst/2 || pause > pollLast*3/2 {
				t.Errorf("poll %d came after %s", i+1, pause)
			}
			if c.arg.Waiter != (Waiter{}) {
				t.Error("a driver without notifications was asked to note who waits")
			}
		}
	})
}

func TestAWaiterAsksAgainWhenTheHolderWouldBecomeStale(t *testing.T) {
	f := &fake{acquire: func(n int, _ AcquireRequest) (Acquired, error) {
		if n == 1 {
			return Acquired{}, held(DefaultStaleAfter - 2*time.Millisecond)
		}
		return Acquired{Token: 8}, nil
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
	f := &fake{acquire: func(int, AcquireRequest) (Acquired, error) {
		if free {
			return Acquired{Token: 8}, nil
		}
		return Acquired{}, held(0)
	}}
	released := make(chan struct{})
	d := &hintingFake{fake: f}
	d.listen = func(ctx context.Context, started func(), wake func(Wakeup)) error {
		started()
		select {
		case <-released:
			wake(Wakeup{Project: "p", Ref: testRef, Queue: Queue{otherWaiter}}) // of the same channel: not ours
			wake(Wakeup{Project: "p", Ref: testRef, Queue: Queue{f.acquires[1].arg.Waiter}})
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
			if (c.arg.Waiter == db.waiter) != (i > 0) {
				t.Errorf("request %d: waiter %v; all are noted once notifications arrive", i, c.arg.Waiter)
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

func TestWithoutNotificationsWaitersPollOnAndSayNothing(t *testing.T) {
	f := &fake{acquire: func(n int, _ AcquireRequest) (Acquired, error) {
		if n < 20 {
			return Acquired{}, held(0)
		}
		return Acquired{}, nil
	}}
	listens := 0
	d := &hintingFake{fake: f, listen: func(context.Context, func(), func(Wakeup)) error {
		listens++
		return fmt.Errorf("behind a pooler: %w", errors.ErrUnsupported)
	}}
	inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
		if _, err := db.Lock(t.Context(), "p", testRef); err != nil {
			t.Fatal(err)
		}
		if listens != 1 || f.acquires[19].arg.Waiter != (Waiter{}) {
			t.Errorf("listened %d times, the last request noted: %v", listens, f.acquires[19].arg.Waiter)
		}
	})
}

// A slowToList takes ten seconds to say who holds locks, or until ctx ends.
type slowToList struct{ *fake }

func (f slowToList) Locks(ctx context.Context, _ LockQuery) (LockPage, error) {
	sleep(ctx, 10*time.Second)
	return LockPage{}, ctx.Err()
}

func TestWaitingEnds(t *testing.T) {
	refuse := func(int, AcquireRequest) (Acquired, error) { return Acquired{}, held(0) }
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
		f.acquire = func(int, AcquireRequest) (Acquired, error) {
			if time.Since(f.start) > 2*time.Second {
				return Acquired{Token: 9}, nil
			}
			return Acquired{}, held(0)
		}
		inBubble(t, Options{}, f, slowToList{f}, func(t *testing.T, db *DB) {
			var waiters sync.WaitGroup
			for _, limit := range []time.Duration{2 * time.Second, time.Second} { // the first asks, the second is behind it
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
	t.Run("in the middle of a request, and still names who was seen", func(t *testing.T) {
		f := &fake{acquire: func(n int, _ AcquireRequest) (Acquired, error) {
			if n == 1 {
				return Acquired{}, held(0)
			}
			time.Sleep(10 * time.Second)
			return Acquired{}, context.DeadlineExceeded
		}}
		inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := db.Lock(ctx, "p", testRef)
			wantIs(t, err, context.DeadlineExceeded, ErrLocked)
		})
	})
	t.Run("at once if the database can't be reached to begin with", func(t *testing.T) {
		f := &fake{acquire: func(int, AcquireRequest) (Acquired, error) { return Acquired{}, ErrUnavailable }}
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
	t.Run("but a short outage is sat out by who waits already", func(t *testing.T) {
		f := &fake{}
		f.acquire = func(n int, _ AcquireRequest) (Acquired, error) {
			switch at := time.Since(f.start); {
			case at < time.Second:
				return Acquired{}, held(0)
			case at < 20*time.Second:
				return Acquired{}, ErrUnavailable
			default:
				return Acquired{Token: 9}, nil
			}
		}
		inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
			if _, err := db.Lock(t.Context(), "p", testRef); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("and a long one is not", func(t *testing.T) {
		f := &fake{}
		f.acquire = func(n int, _ AcquireRequest) (Acquired, error) {
			if n == 1 {
				return Acquired{}, held(0)
			}
			return Acquired{}, ErrUnavailable
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
	f.acquire = func(n int, _ AcquireRequest) (Acquired, error) {
		if n > 1 && len(f.releases) == 0 {
			return Acquired{}, held(0)
		}
		return Acquired{Token: Token(n)}, nil
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

func TestALockIsHandedOverPastTheNotifications(t *testing.T) {
	f := &fake{}
	f.acquire = func(n int, _ AcquireRequest) (Acquired, error) {
		if n > 1 && len(f.releases)+len(f.updates) == 0 {
			return Acquired{}, held(0)
		}
		return Acquired{Token: Token(n)}, nil
	}
	d := &hintingFake{fake: f}
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
				next := Handoff{Next: db.waiter}
				if len(f.releases) > 0 && f.releases[0].arg.Handoff != next || len(f.updates) > 0 && *f.updates[0].arg.Fence.Release != next {
					t.Error("the driver was not told")
				}
			})
		})
	}
}

// A process that had a lock several times in a row goes back behind the others,
// and does not ask for it before it is woken, or that is overdue.
func TestAProcessThatHadItsTurnWaitsToBeWoken(t *testing.T) {
	for name, want := range map[string]time.Duration{"woken": 30 * time.Millisecond, "forgotten": othersTurn, "given up": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			granted := 0
			f.acquire = func(_ int, r AcquireRequest) (Acquired, error) {
				if granted > len(f.releases) {
					return Acquired{}, &LockedError{Holders: []LockInfo{{Project: "p", Ref: testRef, Owner: r.Owner, StaleAfter: DefaultStaleAfter}}}
				}
				granted++
				return Acquired{Token: Token(granted)}, nil
			}
			d := &hintingFake{fake: f}
			inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
				holder := mustLock(t, db, testRef)
				for n := range handOvers + 1 {
					ctx, cancel := context.WithCancel(t.Context())
					next := make(chan *Lock)
					go func() {
						l, _ := db.Lock(ctx, "p", testRef)
						next <- l
					}()
					time.Sleep(time.Second) // it is refused, and waits
					synctest.Wait()
					if err := holder.Release(t.Context()); err != nil {
						t.Fatal(err)
					}
					want := Handoff{Next: db.waiter}
					if n == handOvers {
						want = Handoff{Last: db.waiter}
						cancel()
					}
					if h := f.releases[n].arg.Handoff; h != want {
						t.Errorf("release %d: %+v, want %+v", n, h, want)
					}
					holder = <-next
					cancel()
				}

				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				asked, before := len(f.acquires), time.Now()
				time.AfterFunc(want, func() {
					switch name {
					case "woken":
						d.hint(db, testRef)
					case "given up":
						cancel()
					}
				})
				_, err := db.Lock(ctx, "p", testRef)
				if took := time.Since(before); took != want || (err == nil) == (name == "given up") {
					t.Errorf("%v after %s, want %s", err, took, want)
				}
				if n := len(f.acquires) - asked; n > 1 {
					t.Errorf("asked %d times", n)
				}
			})
		})
	}
}

// What wakes a process is not kept from the others, if nobody waits there any more.
func TestAWakeUpForNobodyIsPassedOn(t *testing.T) {
	f := &fake{acquire: func(int, AcquireRequest) (Acquired, error) { return Acquired{}, held(0) }}
	d := &hintingFake{fake: f}
	inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
		want := func(when string, refs ...string) {
			t.Helper()
			synctest.Wait()
			var all []Wakeup
			for _, ref := range refs {
				all = append(all, Wakeup{Project: "p", Ref: ref, Queue: Queue{otherWaiter}})
			}
			if !reflect.DeepEqual(d.passed, all) {
				t.Errorf("%s: passed on are %v, want %v", when, d.passed, all)
			}
			d.passed = nil
		}
		waiting := func(ctx context.Context) (ended chan error) {
			ended = make(chan error)
			go func() {
				_, err := db.Lock(ctx, "p", testRef)
				ended <- err
			}()
			time.Sleep(2 * time.Second) // it is refused, and waits
			return ended
		}
		first, giveUp := context.WithCancel(t.Context())
		second, giveUpToo := context.WithCancel(t.Context())
		one, other := waiting(first), waiting(second)
		synctest.Wait()
		d.hint(db, testRef)
		want("two wait")
		giveUp()
		<-one
		want("one waits")
		d.hint(db, testRef)
		giveUpToo()
		<-other
		want("the last gives up when it is woken", testRef)
		d.hint(db, testRef)
		want("nobody waits", testRef)

		f.acquire = func(int, AcquireRequest) (Acquired, error) { return Acquired{Token: 8}, nil }
		l, err := db.Lock(t.Context(), "p", testRef)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		want("it has the lock, and releases it")
	})
}

// The one that a release made way for may have given up before it was done.
func TestALockThatIsHandedOverToNobodyIsPassedOn(t *testing.T) {
	f := &fake{}
	f.acquire = func(n int, _ AcquireRequest) (Acquired, error) {
		if n > 1 {
			return Acquired{}, held(0)
		}
		return Acquired{Token: Token(n)}, nil
	}
	d := &hintingFake{fake: f}
	inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
		holder := mustLock(t, db, testRef)
		ctx, giveUp := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := db.Lock(ctx, "p", testRef)
			ended <- err
		}()
		time.Sleep(2 * time.Second) // it is refused, and waits
		f.release = func(int, ReleaseRequest) (Released, error) {
			giveUp()
			<-ended
			return Released{Queues: []Queue{{otherWaiter}}}, nil
		}
		if err := holder.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := []Wakeup{{Project: "p", Ref: testRef, Queue: Queue{otherWaiter}}}; f.releases[0].arg.Handoff.Next != db.waiter || !reflect.DeepEqual(d.passed, want) {
			t.Errorf("passed on are %v, want %v", d.passed, want)
		}
	})
}

// The queue that came with a wake-up goes back to the database with the request
// that follows it, behind this process.
func TestTheQueueOfAWakeUpGoesWithTheNextRequest(t *testing.T) {
	other := "refs/heads/other"
	wokenFor := func(w Waiter) []Queue { return []Queue{{w, otherWaiter}} }
	for name, row := range map[string]struct {
		answer func(n int) error // to the n-th request after the wake-up
		refs   []string
		asked  func(self Waiter) [][]Queue
		passed []Wakeup
	}{
		"and is in the database then": {
			answer: func(int) error { return nil },
			refs:   []string{testRef},
			asked:  func(self Waiter) [][]Queue { return [][]Queue{wokenFor(self)} },
		},
		"and stays in it where the lock is refused": {
			answer: func(n int) error { return []error{held(0), nil}[n-1] },
			refs:   []string{testRef},
			asked:  func(self Waiter) [][]Queue { return [][]Queue{wokenFor(self), nil} },
		},
		"and with the one after it if the first failed": {
			answer: func(n int) error {
				return []error{ErrUnavailable, ErrUnavailable, ErrUnavailable, ErrUnavailable, nil}[n-1]
			},
			refs: []string{testRef},
			asked: func(self Waiter) [][]Queue {
				return [][]Queue{wokenFor(self), wokenFor(self), wokenFor(self), wokenFor(self), wokenFor(self)}
			},
		},
		"and has its turn where another lock is in the way": {
			answer: func(n int) error {
				return []error{&LockedError{Holders: []LockInfo{{Project: "p", Ref: other, StaleAfter: DefaultStaleAfter}}}, nil}[n-1]
			},
			refs:   []string{testRef, other},
			asked:  func(self Waiter) [][]Queue { return [][]Queue{{{self, otherWaiter}, nil}, nil} },
			passed: []Wakeup{{Project: "p", Ref: testRef, Queue: Queue{otherWaiter}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			woken := 0 // how many requests came before
			f.acquire = func(n int, _ AcquireRequest) (Acquired, error) {
				if woken == 0 {
					return Acquired{}, held(0)
				}
				return Acquired{Token: 8}, row.answer(n - woken)
			}
			d := &hintingFake{fake: f}
			inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
				done := make(chan error)
				go func() {
					_, err := db.Lock(t.Context(), "p", row.refs...)
					done <- err
				}()
				time.Sleep(2 * time.Second) // it is refused, and waits
				synctest.Wait()
				woken = len(f.acquires)
				d.hint(db, testRef)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				var asked [][]Queue
				for _, c := range f.acquires[woken:] {
					asked = append(asked, c.arg.Queues)
				}
				if want := row.asked(db.waiter); !reflect.DeepEqual(asked, want) {
					t.Errorf("asked with %v, want %v", asked, want)
				}
				if !reflect.DeepEqual(d.passed, row.passed) {
					t.Errorf("passed on are %v, want %v", d.passed, row.passed)
				}
			})
		})
	}
}

func TestATurnJoinsTheOneThatAProcessHasAlready(t *testing.T) {
	var q queues
	a, b, self := Waiter{"a", "1"}, Waiter{"b", "1"}, Waiter{"self", "1"}
	q.giveTurn("p", testRef, Queue{a})
	q.giveTurn("p", testRef, Queue{b, a})
	if got := q.takeTurns("p", []string{"refs/heads/other"}, self); got != nil {
		t.Errorf("it is no turn for another ref: %v", got)
	}
	if got, want := q.takeTurns("p", []string{"refs/heads/other", testRef}, self), []Queue{nil, {self, a, b}}; !reflect.DeepEqual(got, want) {
		t.Errorf("the queues are %v, want %v", got, want)
	}
	if got := q.takeTurn("p", testRef); got != nil {
		t.Errorf("a turn is taken once: %v", got)
	}
	q.giveTurn("p", testRef, Queue{a})
	if got, want := q.takeTurns("p", []string{testRef}, Waiter{}), []Queue{{a}}; !reflect.DeepEqual(got, want) {
		t.Errorf("whoever only tries goes into no queue: %v, want %v", got, want)
	}
}

// The first waiter for a ref may be behind somebody for another one, and can't ask yet.
func TestAWakeUpForAWaiterThatIsNotFirstElsewhereIsPassedOn(t *testing.T) {
	other := "refs/heads/other"
	f := &fake{acquire: func(int, AcquireRequest) (Acquired, error) { return Acquired{}, held(0) }}
	d := &hintingFake{fake: f}
	inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
		ctx, giveUp := context.WithCancel(t.Context())
		ended := make(chan error)
		for _, refs := range [][]string{{other}, {testRef, other}} {
			go func() {
				_, err := db.Lock(ctx, "p", refs...)
				ended <- err
			}()
			time.Sleep(2 * time.Second) // it is refused, and waits, or is behind the other
		}
		synctest.Wait()
		d.hint(db, testRef)
		if want := []Wakeup{{Project: "p", Ref: testRef, Queue: Queue{otherWaiter}}}; !reflect.DeepEqual(d.passed, want) {
			t.Errorf("passed on are %v, want %v", d.passed, want)
		}
		giveUp()
		<-ended
		<-ended
	})
}

// A waiter may get the lock by a poll while a wake-up for it is on its way.
func TestAWakeUpForAWaiterThatHasTheLockIsPassedOn(t *testing.T) {
	f := &fake{}
	d := &hintingFake{fake: f}
	inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
		f.acquire = func(n int, _ AcquireRequest) (Acquired, error) {
			if n < 5 {
				return Acquired{}, held(0)
			}
			synctest.Wait() // until it listens
			d.hint(db, testRef)
			return Acquired{Token: 8}, nil
		}
		if _, err := db.Lock(t.Context(), "p", testRef); err != nil {
			t.Fatal(err)
		}
		if want := []Wakeup{{Project: "p", Ref: testRef, Queue: Queue{otherWaiter}}}; !reflect.DeepEqual(d.passed, want) {
			t.Errorf("passed on are %v, want %v", d.passed, want)
		}
	})
}
