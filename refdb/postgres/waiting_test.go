package postgres_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/test/dbtest"
)

// Whatever the outcome of a request whose context ends, the connection's next request is
// unaffected.
func TestRequestsWhoseContextsEndDoNotAffectOthers(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, with(t, db.URL(), "pool_max_conns", "4"))
	a := acquire(t, d, mainRef)
	done := make(chan struct{})
	var impatient, work sync.WaitGroup

	// The row of the lock is locked most of the time, but never for long.
	c := session(t, db.URL())
	impatient.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			exec(t, c, `BEGIN`)
			exec(t, c, `SELECT FROM locks WHERE project = $1 AND ref = $2 FOR UPDATE`, project, mainRef)
			time.Sleep(rand.N(5 * time.Millisecond))
			exec(t, c, `COMMIT`)
		}
	})
	for range 4 {
		impatient.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(10*time.Millisecond))
				_, err := d.Acquire(ctx, request(mainRef, otherRef))
				cancel()
				if !errors.Is(err, driver.ErrLocked) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a request whose context may end: %v", err)
				}
			}
		})
	}
	for range 2 {
		work.Go(func() {
			for range 300 {
				r := update(mainRef, otherRef)
				r.Adopt, r.Fence = true, fence(a.Token, mainRef)
				if err := try(t.Context(), d, r); err != nil && !errors.Is(err, driver.ErrMismatch) {
					t.Errorf("a request whose context does not end: %v", err)
				}
			}
		})
	}
	work.Wait()
	close(done)
	impatient.Wait()
}

// The server ends each wait after lock_timeout; the request is repeated until its context ends.
func TestARequestWaitsForALockUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	d := open(t, db.URL())
	acquire(t, d, mainRef)
	b := block(t, db, mainRef)
	done := make(chan error, 1)
	go func() {
		_, err := d.Acquire(t.Context(), request(mainRef, otherRef))
		done <- err
	}()
	waits := make(map[time.Time]bool)
	eventually(t, "it waits for the third time", func() bool {
		// The server does not read all columns of a session at the same moment: a session that
		// waited may no longer have a transaction.
		for _, began := range query[time.Time](t, b.look, `SELECT xact_start FROM pg_stat_activity WHERE xact_start IS NOT NULL AND `+isBlocked) {
			waits[began] = true
		}
		return len(waits) >= 3
	})
	if len(done) > 0 {
		t.Fatal(<-done)
	}
	b.end()
	if err := <-done; !errors.Is(err, driver.ErrLocked) {
		t.Error(err)
	}
}

// The client of such a request is gone, so its effects must not appear later.
func TestTheServerSoonForgetsARequestThatWaitsForALockAndLostItsClient(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	w := newWire(t, db.URL())
	d := open(t, w.url)
	a := acquire(t, d, mainRef)
	b := block(t, db, mainRef)
	untilInTime(t, func() (late bool) {
		done := make(chan error, 1)
		go func() {
			_, err := d.Release(t.Context(), ending(a.Token, mainRef, otherRef))
			done <- err
		}()
		b.wait()
		w.cut()
		err := <-done
		if errors.Is(err, driver.ErrOutcomeUnknown) {
			return false
		}
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("the reply was lost: %v", err)
		}
		if err := w.proxy.Restore(); err != nil { // the cut came between two waits
			t.Fatal(err)
		}
		return true
	})
	eventually(t, "the server has ended the request", func() bool {
		return query[int64](t, b.look, `SELECT count(*) FROM pg_stat_activity WHERE `+isBlocked)[0] == 0
	})
	b.end()
	if _, ok := db.RowLock(t, project, mainRef); !ok {
		t.Error("the request was carried out")
	}
}

func TestClosingEndsBlockedRequests(t *testing.T) {
	t.Parallel()
	db := dbtest.Postgres(t)
	for name, call := range map[string]func(d driver.Driver) error{
		"a write":                          func(d driver.Driver) error { return try(t.Context(), d, update(mainRef, otherRef)) },
		"a write that shares a round trip": func(d driver.Driver) error { return try(t.Context(), d, update(mainRef)) },
		"a read":                           func(d driver.Driver) error { _, err := d.Get(t.Context(), project, []string{mainRef}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, db.URL())
			connected(t, d)
			stuck := session(t, db.URL())
			exec(t, stuck, `BEGIN`)
			exec(t, stuck, `LOCK TABLE refs`)
			look := session(t, db.URL())
			done := make(chan error, 1)
			go func() { done <- call(d) }()
			eventually(t, "the request is stuck", func() bool {
				return query[int64](t, look, `SELECT count(*) FROM pg_stat_activity WHERE `+isBlocked)[0] > 0
			})
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			err := <-done
			if !errors.Is(err, driver.ErrClosed) {
				t.Errorf("got %v, want ErrClosed", err)
			}
			if errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v: the caller did not cancel it", err)
			}
			exec(t, stuck, `ROLLBACK`)
		})
	}
}
