package refdb

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

// A request may hang, for example behind a lock on the whole table.
func TestLockReturnsAtItsLimitWhateverTheDatabaseDoes(t *testing.T) {
	const limit = time.Second
	for name, row := range map[string]struct {
		options Options
		ctx     func(context.Context) (context.Context, context.CancelFunc)
		refused bool // before a request hangs
		want    []error
		says    string
	}{
		"the wait limit": {
			options: Options{MaxWait: limit}, want: []error{errMaxWait, ErrUnavailable}, says: "not answered",
		},
		"the wait limit, after a refusal": {
			options: Options{MaxWait: limit}, refused: true, want: []error{errMaxWait, ErrLocked}, says: "other/1",
		},
		"the context's end": {
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, limit)
			},
			want: []error{context.DeadlineExceeded, ErrUnavailable}, says: "not answered",
		},
		"the context's end, after a refusal": {
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, limit)
			},
			refused: true, want: []error{context.DeadlineExceeded, ErrLocked}, says: "other/1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			f.acquire = func(n int, r driver.AcquireRequest) (driver.Acquired, error) {
				if row.refused && time.Since(f.start) < limit/2 {
					return driver.Acquired{}, held(0)
				}
				time.Sleep(10 * time.Second) // whatever its context does
				return driver.Acquired{Token: 8}, nil
			}
			inBubble(t, row.options, f, f, func(t *testing.T, db *DB) {
				ctx := t.Context()
				if row.ctx != nil {
					limited, cancel := row.ctx(ctx)
					defer cancel()
					ctx = limited
				}
				l, err := db.Lock(ctx, "p", testRef)
				if took := time.Since(f.start); took != limit || l != nil {
					t.Errorf("%v after %s", l, took)
				}
				wantIs(t, err, row.want...)
				if row.ctx == nil && errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, but the context goes on", err)
				}
				if err == nil || !strings.Contains(err.Error(), row.says) || ClassOf(err) != Retryable {
					t.Errorf("%v (%s), want one that says %q", err, ClassOf(err), row.says)
				}
				time.Sleep(20 * time.Second)
				synctest.Wait()
				if len(f.releases) != 1 || f.releases[0].arg.Token != 8 {
					t.Errorf("the lock that came too late was released: %v", f.releases)
				}
				if n := db.queues.entries(); n != 0 {
					t.Errorf("%d entries are left in the queues", n)
				}
			})
		})
	}
}

// The second waiter gets the lock that came too late for the first.
func TestALockThatCameTooLateGoesToTheNextWaiter(t *testing.T) {
	f := &fake{}
	f.acquire = func(n int, _ driver.AcquireRequest) (driver.Acquired, error) {
		switch {
		case n == 1:
			time.Sleep(2 * time.Second)
		case len(f.releases) == 0:
			return driver.Acquired{}, held(0)
		}
		return driver.Acquired{Token: Token(n)}, nil
	}
	inBubble(t, Options{}, f, f, func(t *testing.T, db *DB) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := make(chan error, 1)
		go func() {
			_, err := db.Lock(ctx, "p", testRef)
			first <- err
		}()
		synctest.Wait()
		patient, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		l, err := db.Lock(patient, "p", testRef)
		if took := time.Since(f.start); err != nil || took != 2*time.Second {
			t.Errorf("%v, %v after %s", l, err, took)
		}
		wantIs(t, <-first, context.DeadlineExceeded)
	})
}

func TestAWaiterIsWithdrawnAfterTheRequestThatOutlivedIt(t *testing.T) {
	f := &fake{acquire: func(int, driver.AcquireRequest) (driver.Acquired, error) { return driver.Acquired{}, held(0) }}
	d := &notifyingFake{fake: f}
	inBubble(t, Options{}, f, d, func(t *testing.T, db *DB) {
		ctx, giveUp := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := db.Lock(ctx, "p", testRef)
			ended <- err
		}()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		f.acquire = func(int, driver.AcquireRequest) (driver.Acquired, error) {
			time.Sleep(2 * time.Second)
			return driver.Acquired{}, ErrUnavailable
		}
		d.notifyLast(testRef)
		synctest.Wait() // its request is under way
		giveUp()
		wantIs(t, <-ended, context.Canceled, ErrLocked)
		time.Sleep(time.Minute)
		synctest.Wait()
		last := f.abandons[len(f.abandons)-1]
		if asked := f.acquires[len(f.acquires)-1]; last.arg.Waiter != asked.arg.Waiter.ID || last.at < asked.at+2*time.Second {
			t.Errorf("withdrawn: %+v", last)
		}
		if n := db.queues.entries(); n != 0 {
			t.Errorf("%d entries are left in the queues", n)
		}
	})
}

func TestCloseWaitsForWhatALockThatGaveUpLeftBehind(t *testing.T) {
	f := &fake{acquire: func(int, driver.AcquireRequest) (driver.Acquired, error) {
		time.Sleep(3 * time.Second)
		return driver.Acquired{Token: 8}, nil
	}}
	inBubble(t, Options{MaxWait: time.Second}, f, f, func(t *testing.T, db *DB) {
		_, err := db.Lock(t.Context(), "p", testRef)
		wantIs(t, err, errMaxWait)
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(f.start); took != 3*time.Second || len(f.abandons) != 1 {
			t.Errorf("closed after %s, %d abandoned", took, len(f.abandons))
		}
	})
}

// The error names the holder that refused the waiters ahead.
func TestGivingUpInTheQueueMakesNoRequest(t *testing.T) {
	for name, row := range map[string]struct {
		first func(n int, r driver.AcquireRequest) (driver.Acquired, error)
		says  []string
	}{
		"behind one that was refused": {
			first: func(int, driver.AcquireRequest) (driver.Acquired, error) { return driver.Acquired{}, held(0) },
			says:  []string{"other/1", "of this process"},
		},
		"behind one that has no answer": {
			first: func(int, driver.AcquireRequest) (driver.Acquired, error) {
				time.Sleep(10 * time.Second)
				return driver.Acquired{}, ErrUnavailable
			},
			says: []string{"of this process"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{acquire: row.first}
			inBubble(t, Options{}, f, slowToList{f}, func(t *testing.T, db *DB) {
				first, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); db.Lock(first, "p", testRef) }()
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := db.Lock(ctx, "p", testRef)
				if took := time.Since(f.start); took != time.Second {
					t.Errorf("after %s", took)
				}
				wantIs(t, err, context.DeadlineExceeded, ErrLocked)
				for _, s := range row.says {
					if err == nil || !strings.Contains(err.Error(), s) {
						t.Errorf("%v, want one that says %q", err, s)
					}
				}
				stop()
				<-done
			})
		})
	}
}
