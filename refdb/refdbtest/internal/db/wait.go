package db

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
	"github.com/globalrefdb/globalrefdb/refdb/driver"
	"github.com/globalrefdb/globalrefdb/refdb/refdbtest/internal/suite"
)

// A lockCall is a call of DB.Lock in a goroutine of its own.
type lockCall struct {
	e    *env
	lock *refdb.Lock
	err  error
	done chan struct{}
}

// wait starts a db.Lock, which ends when patience is over at the latest.
func wait(e *env, ctx context.Context, db *refdb.DB, refs ...string) *lockCall {
	w := &lockCall{e: e, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		ctx, cancel := context.WithTimeout(ctx, e.Patience())
		defer cancel()
		w.lock, w.err = db.Lock(ctx, e.Project, refs...)
	}()
	return w
}

// waitFirst is wait for locks that are held. It returns when the call has been refused and tries
// again: the call is then the first in its process's queue, and knows the holder.
func waitFirst(e *env, ctx context.Context, db *refdb.DB, t *suite.FaultyDriver, refs ...string) *lockCall {
	e.Helper()
	asked := t.Count("Acquire")
	w := wait(e, ctx, db, refs...)
	e.Eventually("a waiter that asks again", func() bool { return t.Count("Acquire") > asked+1 })
	return w
}

// granted waits for the lock.
func (w *lockCall) granted() *refdb.Lock {
	w.e.Helper()
	suite.Receive(w.e, w.done, "the lock is got")
	w.e.Must(w.err)
	return w.lock
}

// gaveUp waits for the call's error.
func (w *lockCall) gaveUp() error {
	w.e.Helper()
	suite.Receive(w.e, w.done, "the waiter gives up")
	if w.lock != nil || w.err == nil {
		w.e.Fatalf("got %v, %v", w.lock, w.err)
	}
	return w.err
}

// grantedAll returns the locks of calls that wait for the same refs. Each lock is released when it
// is granted, in any order.
func grantedAll(e *env, all []*lockCall) []*refdb.Lock {
	e.Helper()
	errs := make([]error, len(all))
	locks := make([]*refdb.Lock, len(all))
	var released sync.WaitGroup
	for i, w := range all {
		released.Go(func() {
			<-w.done
			if locks[i], errs[i] = w.lock, w.err; w.err == nil {
				errs[i] = w.lock.Release(e.Context())
			}
		})
	}
	released.Wait()
	e.Must(errors.Join(errs...))
	return locks
}

func waitRows() []row {
	return []row{
		{"a free lock is acquired at once", func(e *env) {
			l := wait(e, e.Context(), e.Open(refdb.Options{}), refA).granted()
			e.WantHeld(l)
		}},
		{"a waiter gets the lock and the new value at the release, long before the lock would be stale", func(e *env) {
			db := e.Open(refdb.Options{})
			holder := e.Hold(e.Open(refdb.Options{}), refA)
			waiting, faulty := e.OpenFaulty(refdb.Options{})
			w := waitFirst(e, e.Context(), waiting, faulty, refA)
			e.Must(holder.Update(e.Context(), []driver.Update{suite.Move(refA, "", v1)}))
			e.Must(holder.Release(e.Context()))
			l := w.granted()
			e.WantLocked(l, refA, v1)
			e.WantMismatches(l.Update(e.Context(), []driver.Update{suite.Move(refA, "", v2)}), driver.Mismatch{Ref: refA, Have: v1})
			_, err := db.TryLock(e.Context(), e.Project, refA)
			e.WantHolders(err, refA)
		}},
		{"a waiter is also served through notifications", func(e *env) {
			holder := e.Open(refdb.Options{})
			waiting := e.Open(refdb.Options{}) // without a FaultyDriver, which hides that its driver notifies
			for range 5 {
				l := e.Hold(holder, refA)
				w := wait(e, e.Context(), waiting, refA)
				e.Must(l.UpdateAndRelease(e.Context(), []driver.Update{suite.Move(refA, "", driver.Deleted)}))
				e.Must(w.granted().Release(e.Context()))
			}
		}},
		{"waiters within a process are served in order", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			holder := e.Acquire(e.A, refA)
			first := waitFirst(e, e.Context(), db, faulty, refA)
			var others []*lockCall
			for range 5 {
				others = append(others, wait(e, e.Context(), db, refA))
			}
			e.Release(e.A, holder)
			token := first.granted().Token()
			e.Must(first.lock.Release(e.Context()))
			for _, l := range grantedAll(e, others) {
				if l.Token() <= token {
					e.Errorf("token %d was granted before %d", l.Token(), token)
				}
			}
		}},
		{"only one waiter of a process at a time asks the database", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			var asking atomic.Int32
			var crowded atomic.Bool
			faulty.Inject(func(c suite.Call) error {
				if c.Method == "Acquire" {
					if asking.Add(1) > 1 {
						crowded.Store(true)
					}
					defer asking.Add(-1)
				}
				return c.Do()
			})
			holder := e.Acquire(e.A, refA)
			var all []*lockCall
			for range 8 {
				all = append(all, wait(e, e.Context(), db, refA))
			}
			e.Eventually("several attempts", func() bool { return faulty.Count("Acquire") >= 3 })
			e.Release(e.A, holder)
			grantedAll(e, all)
			if crowded.Load() {
				e.Error("two asked at once")
			}
		}},
		{"waiters for overlapping sets, in any order and process, all get their turn", func(e *env) {
			sets := [][]string{{refA, refB}, {refC, refB}, {refC, refA}, {refB}, {refA, refB, refC}}
			dbs := []*refdb.DB{e.Open(refdb.Options{}), e.Open(refdb.Options{})}
			sections := map[string]*suite.CriticalSection{refA: {}, refB: {}, refC: {}}
			errs := make([]error, 2*len(sets))
			var working sync.WaitGroup
			for i := range errs {
				working.Go(func() {
					for range 3 {
						if errs[i] = turn(e, dbs[i%2], sections, sets[i/2]...); errs[i] != nil {
							return
						}
					}
				})
			}
			working.Wait()
			e.Must(errors.Join(errs...))
			e.WantFree(refA, refB, refC)
		}},
		{"P13 no waiter is passed by many later ones, for one ref", func(e *env) {
			d := unhurried{e.Faulty()}
			wantPassedByFew(e, d, d.notified(), []string{refA}, refA, refA)
		}},
		{"P13 no waiter for several refs is passed by many holders of single refs", suite.Long(func(e *env) {
			d := unhurried{e.Faulty()}
			wantPassedByFew(e, d, d.notified(), []string{refA, refB}, refA, refB)
		})},
		{"P13 no polling waiter is passed by many woken ones, for one ref", func(e *env) {
			d := unhurried{e.Faulty()}
			wantPassedByFew(e, d, d, []string{refA}, refA, refA)
		}},
		{"P13 no polling waiter is passed by many woken ones, for several refs", suite.Long(func(e *env) {
			d := unhurried{e.Faulty()}
			wantPassedByFew(e, d, d, []string{refA, refB}, refA, refB)
		})},
		{"P13 no polling waiter is passed by many updates without a lock", func(e *env) {
			holder := e.Hold(e.Open(refdb.Options{}), refA)
			d := unhurried{e.Faulty()}
			refused, again := make(chan struct{}), make(chan struct{})
			hasPlace := sync.OnceFunc(func() { close(refused) })
			d.Inject(func(c suite.Call) error {
				if c.Method != "Acquire" {
					return c.Do()
				}
				select {
				case <-refused: // it does not ask again before all others had their chance
					suite.Receive(e, again, "the waiter's next request")
				default:
				}
				err := c.Do()
				if errors.Is(err, driver.ErrLocked) {
					hasPlace()
				}
				return err
			})
			waiter := wait(e, e.Context(), e.OpenOn(d, refdb.Options{}), refA)
			suite.Receive(e, refused, "the waiter's first refusal")
			e.Must(holder.Release(e.Context()))

			others, passed := e.Open(refdb.Options{}), 0
			for have := driver.Unknown; passed <= 3*driver.MaxPassed; passed++ {
				want := driver.Value(fmt.Sprint(passed))
				err := others.Update(e.Context(), e.Project, []driver.Update{suite.Move(refA, have, want)})
				if err == nil {
					have = want
					var l *refdb.Lock
					if l, err = others.TryLock(e.Context(), e.Project, refA); err == nil {
						err = l.Release(e.Context())
					}
				}
				if errors.Is(err, driver.ErrLocked) {
					break // it is the waiter's turn
				}
				e.Must(err)
			}
			if passed > driver.MaxPassed {
				e.Errorf("%d passed it, want at most %d", passed, driver.MaxPassed)
			}
			close(again)
			e.Must(waiter.granted().Release(e.Context()))
		}},
		{"a waiter that stops gives the reason, leaves nothing, and the next one moves up", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			holder := e.Acquire(e.A, refA)
			ctx, cancel := context.WithCancel(e.Context())
			first := waitFirst(e, ctx, db, faulty, refA, refB)
			next := wait(e, e.Context(), db, refA)
			cancel()
			err := first.gaveUp()
			if !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
			e.WantClass(err, driver.ErrLocked, driver.Retryable)
			e.WantHolders(err, refA)
			e.WantFree(refB)
			e.Release(e.A, holder)
			e.Must(next.granted().Release(e.Context()))
		}},
		{"a waiter behind another one can stop too", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			holder := e.Acquire(e.A, refA)
			first := waitFirst(e, e.Context(), db, faulty, refA)
			ctx, cancel := context.WithCancel(e.Context())
			second := wait(e, ctx, db, refA)
			e.Eventually("the second waits", func() bool { return db.Stats().Waiting == 2 })
			third := wait(e, e.Context(), db, refA)
			cancel()
			if err := second.gaveUp(); !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrLocked) {
				e.Errorf("got %v", err)
			}
			e.Release(e.A, holder)
			e.Must(first.granted().Release(e.Context()))
			e.Must(third.granted().Release(e.Context()))
		}},
		{"a wait limit ends the wait, with the holder's name", func(e *env) {
			holder := e.Acquire(e.A, refA)
			var err error
			// A slow database may take longer than the limit to say who holds the lock.
			for limit := 250 * time.Millisecond; ; limit *= 2 {
				db := e.Open(refdb.Options{MaxWait: limit})
				start := time.Now()
				err = wait(e, e.Context(), db, refA).gaveUp()
				if waited := time.Since(start); waited < limit {
					e.Errorf("of %v it waited %v only", limit, waited)
				}
				if errors.Is(err, driver.ErrLocked) || limit > e.Patience()/4 {
					break
				}
				e.WantClass(err, driver.ErrUnavailable, driver.Retryable)
			}
			if h := e.WantHolders(err, refA); h[0].Owner != holder.Owner || h[0].Token != holder.Token {
				e.Errorf("the holders are %+v", h)
			}
			e.WantClass(err, driver.ErrLocked, driver.Retryable)
			e.Release(e.A, holder)
			db := e.Open(refdb.Options{MaxWait: e.Patience()})
			e.Must(wait(e, e.Context(), db, refA).granted().Release(e.Context()))
		}},
		{"P3 a lock that has been stale for long is acquired at once", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			e.Age(e.Acquire(e.A, refA), stale)
			e.DB.InsertLock(e, driver.LockInfo{Project: e.Project, Ref: refB, Owner: gerrit, Age: time.Hour})
			l := wait(e, e.Context(), db, refA, refB).granted()
			if n := faulty.Count("Acquire"); n != 1 {
				e.Errorf("it took %d attempts", n)
			}
			e.WantHeld(l)
		}},
		{"P3 the lock of a dead holder is acquired when it is stale, and not before", func(e *env) {
			const staleAfter = 300 * time.Millisecond
			r := e.AcquireRequest(e.A, refA)
			r.StaleAfter = staleAfter
			_, err := e.SendAcquire(e.A, r)
			e.Must(err)
			last := e.Row(refA).Heartbeat
			wait(e, e.Context(), e.Open(refdb.Options{}), refA).granted()
			if age := e.Row(refA).Heartbeat.Sub(last); age <= staleAfter {
				e.Errorf("it was got at an age of %v", age)
			}
		}},
		{"a waiter survives a short outage of the database", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			holder := e.Acquire(e.A, refA)
			w := waitFirst(e, e.Context(), db, faulty, refA)
			var failed atomic.Int32
			faulty.Inject(func(c suite.Call) error {
				if c.Method == "Acquire" && failed.Add(1) <= 6 { // more than the retries of one attempt
					return suite.ErrDown
				}
				return c.Do()
			})
			e.Eventually("the outage", func() bool { return failed.Load() > 6 })
			e.Release(e.A, holder)
			e.WantHeld(w.granted())
		}},
		{"P7 a waiter that loses a reply gets its lock once", func(e *env) {
			db, faulty := e.OpenFaulty(refdb.Options{})
			holder := e.Acquire(e.A, refA)
			w := waitFirst(e, e.Context(), db, faulty, refA)
			faulty.Inject(suite.OnFirst("Acquire", func(c suite.Call) error {
				e.Release(e.A, holder)
				return errors.Join(suite.ErrLost, c.Do())
			}))
			l := w.granted()
			e.WantHeld(l)
			e.Must(l.Release(e.Context()))
			e.WantFree(refA)
		}},
		{"P1 critical sections under an awaited lock never overlap", func(e *env) {
			dbs := []*refdb.DB{e.Open(refdb.Options{}), e.Open(refdb.Options{})}
			sections := map[string]*suite.CriticalSection{refA: {}}
			e.Must(e.Update(e.A, suite.Move(refA, "", "0")))
			const workers, turns = 6, 5
			errs := make([]error, workers)
			var working sync.WaitGroup
			for i := range workers {
				working.Go(func() {
					for range turns {
						if errs[i] = turn(e, dbs[i%2], sections, refA); errs[i] != nil {
							return
						}
					}
				})
			}
			working.Wait()
			e.Must(errors.Join(errs...))
			if got, want := e.GetOne(refA).Value, driver.Value(fmt.Sprint(workers*turns)); got != want {
				e.Errorf("counted to %q, want %q", got, want)
			}
		}},
	}
}

// An unhurried driver keeps what is reserved for its waiters for the longest turn that there is, so
// that they are not late for it on a busy machine.
type unhurried struct{ *suite.FaultyDriver }

func (d unhurried) Acquire(ctx context.Context, r driver.AcquireRequest) (driver.Acquired, error) {
	r.Waiter.Turn = 20 * time.Second
	return d.FaultyDriver.Acquire(ctx, r)
}

// notified makes d a Notifier if the real driver is one.
func (d unhurried) notified() driver.Driver {
	n, ok := d.Driver.(driver.Notifier)
	if !ok {
		return d
	}
	return struct {
		unhurried
		driver.Notifier
	}{d, n}
}

// wantPassedByFew has a DB on driver, which is d or made of it, wait for refs several times, while
// other goroutines keep taking the locks on busy. It counts those that are asked for after the DB
// was refused for the first time, and granted before its own: at most MaxPassed. For several refs
// there is no such number, since any number may take one while the DB waits in the queue of
// another; but one that is starved would be passed for as long as the others go on.
func wantPassedByFew(e *env, d unhurried, faulty driver.Driver, refs []string, busy ...string) {
	e.Helper()
	db := e.OpenOn(faulty, refdb.Options{})
	var waits, passed atomic.Int64 // waits is odd while db has a place in a queue
	d.Inject(func(c suite.Call) error {
		err := c.Do()
		if c.Method == "Acquire" && errors.Is(err, driver.ErrLocked) && waits.Load()%2 == 0 {
			waits.Add(1)
		}
		return err
	})
	ctx, cancel := context.WithCancel(e.Context())
	var others sync.WaitGroup
	for _, ref := range busy {
		db := e.Open(refdb.Options{})
		for range 3 {
			others.Go(func() {
				for ctx.Err() == nil {
					came := waits.Load()
					l, err := db.Lock(ctx, e.Project, ref)
					if err != nil {
						continue
					}
					if came%2 == 1 && came == waits.Load() {
						passed.Add(1)
					}
					time.Sleep(time.Millisecond) // the time for which it holds the lock
					_ = l.Release(context.WithoutCancel(ctx))
				}
			})
		}
	}
	defer others.Wait()
	defer cancel()
	for waits.Load() < 10 {
		passed.Store(0)
		l := wait(e, e.Context(), db, refs...).granted()
		if waits.Load()%2 == 1 {
			waits.Add(1)
		}
		e.Must(l.Release(e.Context()))
		few := int64(driver.MaxPassed)
		if len(refs) > 1 {
			few *= 20
		}
		if n := passed.Load(); n > few {
			e.Errorf("%d passed it, want at most %d", n, few)
		}
	}
}

// turn waits for locks and, while it holds them, adds 1 to the number in the first ref.
func turn(e *env, db *refdb.DB, sections map[string]*suite.CriticalSection, refs ...string) error {
	ctx, cancel := context.WithTimeout(e.Context(), e.Patience())
	defer cancel()
	l, err := db.Lock(ctx, e.Project, refs...)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		if err := sections[ref].Enter(l.Token()); err != nil {
			return fmt.Errorf("%s: %w", ref, err)
		}
	}
	have, err := l.Value(refs[0])
	if err != nil {
		return err
	}
	n := 0
	fmt.Sscan(string(have), &n)
	for _, ref := range refs {
		sections[ref].Leave()
	}
	return l.UpdateAndRelease(e.Context(), []driver.Update{suite.Move(refs[0], have, driver.Value(fmt.Sprint(n+1)))})
}
