package refdbtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

// waitLimit is long enough for one refusal, without which Lock can't name a holder.
const waitLimit = 3 * time.Second

// A lockCall is a call of DB.Lock in a goroutine of its own.
type lockCall struct {
	e    *env
	lock *refdb.Lock
	err  error
	done chan struct{}
}

// wait starts a db.Lock, which ends after patience at the latest.
func (e *env) wait(ctx context.Context, db *refdb.DB, refs ...string) *lockCall {
	w := &lockCall{e: e, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		w.lock, w.err = db.Lock(ctx, e.project, refs...)
	}()
	return w
}

// waitFirst is wait for locks that are held. It returns when the call has been refused and tries
// again: the call is then the first in its process's queue, and knows the holder.
func (e *env) waitFirst(ctx context.Context, db *refdb.DB, t *faultyDriver, refs ...string) *lockCall {
	e.Helper()
	asked := t.count("Acquire")
	w := e.wait(ctx, db, refs...)
	e.eventually("a waiter that asks again", func() bool { return t.count("Acquire") > asked+1 })
	return w
}

// granted waits for the lock.
func (w *lockCall) granted() *refdb.Lock {
	w.e.Helper()
	receive(w.e, w.done, "the lock is got")
	w.e.must(w.err)
	return w.lock
}

// gaveUp waits for the call's error.
func (w *lockCall) gaveUp() error {
	w.e.Helper()
	receive(w.e, w.done, "the waiter gives up")
	if w.lock != nil || w.err == nil {
		w.e.Fatalf("got %v, %v", w.lock, w.err)
	}
	return w.err
}

// grantedAll returns the locks of calls that wait for the same refs. Each lock is released when it
// is granted, in any order.
func (e *env) grantedAll(all []*lockCall) []*refdb.Lock {
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
	e.must(errors.Join(errs...))
	return locks
}

func dbWaitRows() []row {
	return []row{
		{"a lock that is free is got at once", func(e *env) {
			l := e.wait(e.Context(), e.open(refdb.Options{}), refA).granted()
			e.wantHeld(l)
		}},
		{"one that waits gets the lock when it is released, long before it would be stale, and the new value", func(e *env) {
			db := e.open(refdb.Options{})
			holder := e.hold(e.open(refdb.Options{}), refA)
			waiting, driver := e.openFaulty(refdb.Options{})
			w := e.waitFirst(e.Context(), waiting, driver, refA)
			e.must(holder.Update(e.Context(), []refdb.Update{move(refA, "", v1)}))
			e.must(holder.Release(e.Context()))
			l := w.granted()
			e.wantLocked(l, refA, v1)
			e.wantMismatches(l.Update(e.Context(), []refdb.Update{move(refA, "", v2)}), refdb.Mismatch{Ref: refA, Have: v1})
			_, err := db.TryLock(e.Context(), e.project, refA)
			e.wantHolders(err, refA)
		}},
		{"one that waits is served through notifications as well", func(e *env) {
			holder := e.open(refdb.Options{})
			waiting := e.open(refdb.Options{}) // without a faultyDriver, which hides that its driver notifies
			for range 5 {
				l := e.hold(holder, refA)
				w := e.wait(e.Context(), waiting, refA)
				e.must(l.UpdateAndRelease(e.Context(), []refdb.Update{move(refA, "", refdb.Deleted)}))
				e.must(w.granted().Release(e.Context()))
			}
		}},
		{"who waits first within a process is served first", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			holder := e.acquire(e.a, refA)
			first := e.waitFirst(e.Context(), db, driver, refA)
			var others []*lockCall
			for range 5 {
				others = append(others, e.wait(e.Context(), db, refA))
			}
			e.release(e.a, holder)
			token := first.granted().Token()
			e.must(first.lock.Release(e.Context()))
			for _, l := range e.grantedAll(others) {
				if l.Token() <= token {
					e.Errorf("token %d was granted before %d", l.Token(), token)
				}
			}
		}},
		{"of a process's waiters only one at a time asks the database", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			var asking atomic.Int32
			var crowded atomic.Bool
			driver.inject(func(c call) error {
				if c.method == "Acquire" {
					if asking.Add(1) > 1 {
						crowded.Store(true)
					}
					defer asking.Add(-1)
				}
				return c.do()
			})
			holder := e.acquire(e.a, refA)
			var all []*lockCall
			for range 8 {
				all = append(all, e.wait(e.Context(), db, refA))
			}
			e.eventually("several attempts", func() bool { return driver.count("Acquire") >= 3 })
			e.release(e.a, holder)
			e.grantedAll(all)
			if crowded.Load() {
				e.Error("two asked at once")
			}
		}},
		{"waiters for overlapping sets, in any order and process, all get their turn", func(e *env) {
			sets := [][]string{{refA, refB}, {refC, refB}, {refC, refA}, {refB}, {refA, refB, refC}}
			dbs := []*refdb.DB{e.open(refdb.Options{}), e.open(refdb.Options{})}
			sections := map[string]*criticalSection{refA: {}, refB: {}, refC: {}}
			errs := make([]error, 2*len(sets))
			var working sync.WaitGroup
			for i := range errs {
				working.Go(func() {
					for range 3 {
						if errs[i] = e.turn(dbs[i%2], sections, sets[i/2]...); errs[i] != nil {
							return
						}
					}
				})
			}
			working.Wait()
			e.must(errors.Join(errs...))
			e.wantFree(refA, refB, refC)
		}},
		{"P13 nobody is passed by many who come later, for one ref", func(e *env) {
			d := unhurried{e.faulty()}
			e.wantPassedByFew(d, d.notified(), []string{refA}, refA, refA)
		}},
		{"P13 nor for several refs, while others have each of them", func(e *env) {
			d := unhurried{e.faulty()}
			e.wantPassedByFew(d, d.notified(), []string{refA, refB}, refA, refB)
		}},
		{"P13 nor one that polls among those who are woken, for one ref", func(e *env) {
			d := unhurried{e.faulty()}
			e.wantPassedByFew(d, d, []string{refA}, refA, refA)
		}},
		{"P13 nor one that polls, for several", func(e *env) {
			d := unhurried{e.faulty()}
			e.wantPassedByFew(d, d, []string{refA, refB}, refA, refB)
		}},
		{"one that stops waiting says why, leaves nothing, and the next moves up", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			holder := e.acquire(e.a, refA)
			ctx, cancel := context.WithCancel(e.Context())
			first := e.waitFirst(ctx, db, driver, refA, refB)
			next := e.wait(e.Context(), db, refA)
			cancel()
			err := first.gaveUp()
			if !errors.Is(err, context.Canceled) {
				e.Errorf("got %v", err)
			}
			e.wantClass(err, refdb.ErrLocked, refdb.Retryable)
			e.wantHolders(err, refA)
			e.wantFree(refB)
			e.release(e.a, holder)
			e.must(next.granted().Release(e.Context()))
		}},
		{"one that waits behind another can stop too", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			holder := e.acquire(e.a, refA)
			first := e.waitFirst(e.Context(), db, driver, refA)
			ctx, cancel := context.WithTimeout(e.Context(), 20*time.Millisecond)
			defer cancel()
			second := e.wait(ctx, db, refA)
			third := e.wait(e.Context(), db, refA)
			if err := second.gaveUp(); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, refdb.ErrLocked) {
				e.Errorf("got %v", err)
			}
			e.release(e.a, holder)
			e.must(first.granted().Release(e.Context()))
			e.must(third.granted().Release(e.Context()))
		}},
		{"a wait limit ends it, with the holder's name", func(e *env) {
			db := e.open(refdb.Options{MaxWait: waitLimit})
			holder := e.acquire(e.a, refA)
			start := time.Now()
			err := e.wait(e.Context(), db, refA).gaveUp()
			if waited := time.Since(start); waited < waitLimit {
				e.Errorf("it waited %v only", waited)
			}
			if h := e.wantHolders(err, refA); h[0].Owner != holder.Owner || h[0].Token != holder.Token {
				e.Errorf("the holders are %+v", h)
			}
			e.wantClass(err, refdb.ErrLocked, refdb.Retryable)
			e.release(e.a, holder)
			e.must(e.wait(e.Context(), db, refA).granted().Release(e.Context()))
		}},
		{"P3 a lock that has been dead for long is got at once", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			e.age(e.acquire(e.a, refA), stale)
			e.db.InsertLock(e, refdb.LockInfo{Project: e.project, Ref: refB, Owner: gerrit, Age: time.Hour})
			l := e.wait(e.Context(), db, refA, refB).granted()
			if n := driver.count("Acquire"); n != 1 {
				e.Errorf("it took %d attempts", n)
			}
			e.wantHeld(l)
		}},
		{"P3 the lock of a holder that died is got when it is stale, and no sooner", func(e *env) {
			const staleAfter = time.Second
			r := e.acquireRequest(e.a, refA)
			r.StaleAfter = staleAfter
			_, err := e.sendAcquire(e.a, r)
			e.must(err)
			last := e.row(refA).Heartbeat
			e.wait(e.Context(), e.open(refdb.Options{}), refA).granted()
			now := e.now(e.b)
			if age := e.row(refA).Heartbeat.Sub(last); age <= staleAfter || now.Sub(last) > 10*staleAfter {
				e.Errorf("it was got at an age of %v, known after %v", age, now.Sub(last))
			}
		}},
		{"one that waits sits a short outage of the database out", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			holder := e.acquire(e.a, refA)
			w := e.waitFirst(e.Context(), db, driver, refA)
			var failed atomic.Int32
			driver.inject(func(c call) error {
				if c.method == "Acquire" && failed.Add(1) <= 6 { // more than the retries of one attempt
					return errDown
				}
				return c.do()
			})
			e.eventually("the outage", func() bool { return failed.Load() > 6 })
			e.release(e.a, holder)
			e.wantHeld(w.granted())
		}},
		{"P7 one that waits and loses a reply gets its lock once", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{})
			holder := e.acquire(e.a, refA)
			w := e.waitFirst(e.Context(), db, driver, refA)
			driver.inject(onFirst("Acquire", func(c call) error {
				e.release(e.a, holder)
				return errors.Join(errLost, c.do())
			}))
			l := w.granted()
			e.wantHeld(l)
			e.must(l.Release(e.Context()))
			e.wantFree(refA)
		}},
		{"P1 sections under a lock that is waited for never overlap", func(e *env) {
			dbs := []*refdb.DB{e.open(refdb.Options{}), e.open(refdb.Options{})}
			sections := map[string]*criticalSection{refA: {}}
			e.must(e.update(e.a, move(refA, "", "0")))
			const workers, turns = 6, 5
			errs := make([]error, workers)
			var working sync.WaitGroup
			for i := range workers {
				working.Go(func() {
					for range turns {
						if errs[i] = e.turn(dbs[i%2], sections, refA); errs[i] != nil {
							return
						}
					}
				})
			}
			working.Wait()
			e.must(errors.Join(errs...))
			if got, want := e.getOne(refA).Value, refdb.Value(fmt.Sprint(workers*turns)); got != want {
				e.Errorf("counted to %q, want %q", got, want)
			}
		}},
	}
}

// An unhurried driver keeps what is reserved for its waiters for the longest turn that there is, so that they are
// not late for it on a busy machine.
type unhurried struct{ *faultyDriver }

func (d unhurried) Acquire(ctx context.Context, r refdb.AcquireRequest) (refdb.Acquired, error) {
	r.Waiter.Turn = 20 * time.Second
	return d.faultyDriver.Acquire(ctx, r)
}

// notified makes d a Notifier if the real driver is one.
func (d unhurried) notified() refdb.Driver {
	n, ok := d.Driver.(refdb.Notifier)
	if !ok {
		return d
	}
	return struct {
		unhurried
		refdb.Notifier
	}{d, n}
}

// wantPassedByFew has a DB on driver, which is d or made of it, wait for refs several times, while other goroutines keep
// taking the locks on busy. It counts those that are asked for after the DB was refused for the first time, and granted
// before its own: at most MaxPassed. For several refs there is no such number, since any number may take one while the DB
// waits in the queue of another; but one that is starved would be passed for as long as the others go on.
func (e *env) wantPassedByFew(d unhurried, driver refdb.Driver, refs []string, busy ...string) {
	e.Helper()
	db := e.openOn(driver, refdb.Options{})
	var waits, passed atomic.Int64 // waits is odd while db has a place in a queue
	d.inject(func(c call) error {
		err := c.do()
		if c.method == "Acquire" && errors.Is(err, refdb.ErrLocked) && waits.Load()%2 == 0 {
			waits.Add(1)
		}
		return err
	})
	ctx, cancel := context.WithCancel(e.Context())
	var others sync.WaitGroup
	for _, ref := range busy {
		db := e.open(refdb.Options{})
		for range 3 {
			others.Go(func() {
				for ctx.Err() == nil {
					came := waits.Load()
					l, err := db.Lock(ctx, e.project, ref)
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
		l := e.wait(e.Context(), db, refs...).granted()
		if waits.Load()%2 == 1 {
			waits.Add(1)
		}
		e.must(l.Release(e.Context()))
		few := int64(refdb.MaxPassed)
		if len(refs) > 1 {
			few *= 20
		}
		if n := passed.Load(); n > few {
			e.Errorf("%d passed it, want at most %d", n, few)
		}
	}
}

// turn waits for locks and, while it holds them, adds 1 to the number in the first ref.
func (e *env) turn(db *refdb.DB, sections map[string]*criticalSection, refs ...string) error {
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	l, err := db.Lock(ctx, e.project, refs...)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		if err := sections[ref].enter(l.Token()); err != nil {
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
		sections[ref].inside.Store(false)
	}
	return l.UpdateAndRelease(e.Context(), []refdb.Update{move(refs[0], have, refdb.Value(fmt.Sprint(n+1)))})
}
