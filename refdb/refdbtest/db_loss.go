package refdbtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func dbLossRows() []row {
	return []row{
		{"P2 a lock that another took is lost with the next beat, and of no use any more", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			l := e.hold(e.open(quick()), refA, refB)
			ctx := l.Context()
			successor := e.seize(l, refA)
			e.wantEnd(l, refdb.ErrLockLost)
			e.wantLost(l.Err(), refA)
			e.wantCause(ctx, refdb.ErrLockLost)
			e.wantClass(l.Update(e.Context(), []refdb.Update{move(refA, v1, v2)}), refdb.ErrLockLost, refdb.StaleOwner)
			e.wantClass(l.UpdateAndRelease(e.Context(), []refdb.Update{move(refA, v1, v2)}), refdb.ErrLockLost, refdb.StaleOwner)
			e.wantClass(l.Release(e.Context()), refdb.ErrLockLost, refdb.StaleOwner)
			e.wantClass(l.Release(e.Context()), refdb.ErrLockLost, refdb.StaleOwner)
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantLock(successor)
			e.wantFree(refB)
		}},
		{"a lock that was purged is lost with the next beat", func(e *env) {
			l := e.hold(e.open(quick()), refA, refB)
			if got := e.purge(e.b, standing(lockOf(l).ids()[1])...); !got[0] {
				e.Fatal("it was not purged")
			}
			e.wantEnd(l, refdb.ErrLockLost)
			e.wantLost(l.Err(), refB)
		}},
		{"a lock whose update that releases failed can still be lost, and be told of it", func(e *env) {
			l := e.hold(e.open(quick()), refA)
			e.wantMismatches(l.UpdateAndRelease(e.Context(), []refdb.Update{move(refA, v1, v2)}), refdb.Mismatch{Ref: refA, Want: v1})
			e.seize(l, refA)
			e.wantEnd(l, refdb.ErrLockLost)
		}},
		{"losing one lock leaves the process's others held", func(e *env) {
			db := e.open(quick())
			lost, kept := e.hold(db, refA), e.hold(db, refB)
			e.seize(lost, refA)
			e.wantEnd(lost, refdb.ErrLockLost)
			e.wantBeats(refB)
			e.wantHeld(kept)
		}},
		{"P2 a fenced update that finds its lock lost says so at once, before any beat", func(e *env) {
			db, tap := e.openTapped(refdb.Options{StaleAfter: time.Hour, Heartbeat: 10 * time.Minute})
			l := e.hold(db, refA)
			successor := e.seize(l, refA)
			e.must(l.Err())
			err := l.Update(e.Context(), []refdb.Update{move(refA, "", v1)})
			e.wantClass(err, refdb.ErrLockLost, refdb.StaleOwner)
			e.wantLost(err, refA)
			e.wantEnd(l, refdb.ErrLockLost)
			if n := tap.count("Beat"); n != 0 {
				e.Errorf("%d beats", n)
			}
			e.wantRefs(nil)
			e.wantLock(successor)
		}},
		{"P2 a release that finds its lock lost says so, and leaves the successor's", func(e *env) {
			l := e.hold(e.open(refdb.Options{StaleAfter: time.Hour, Heartbeat: 10 * time.Minute}), refA, refB)
			successor := e.seize(l, refA)
			err := l.Release(e.Context())
			e.wantClass(err, refdb.ErrLockLost, refdb.StaleOwner)
			e.wantLost(err, refA)
			e.wantLock(successor)
			e.wantFree(refB)
		}},
		{"P7 beats that fail for a while lose nothing", func(e *env) {
			db, tap := e.openTapped(refdb.Options{StaleAfter: 10 * time.Second, Heartbeat: 20 * time.Millisecond})
			l := e.hold(db, refA)
			for _, failure := range []error{errDown, errLost, errors.New("a test's error of no known kind"), context.DeadlineExceeded} {
				failed := make(chan struct{})
				var n int
				tap.do(func(c call) error { // beats come one at a time
					if c.method != "Beat" {
						return c.do()
					}
					if n++; n == 3 {
						close(failed)
					}
					return failure
				})
				receive(e, failed, "three beats")
				tap.do(nil)
				e.wantBeats(refA)
				e.wantHeld(l)
			}
			e.must(l.Update(e.Context(), []refdb.Update{move(refA, "", v1)}))
		}},
		{"P4 a holder that can't reach the database knows that it lost before anybody can take the lock", func(e *env) {
			e.losesInTime(time.Second, 0, func(c call) error { return errDown })
		}},
		{"P4 one whose requests hang knows it too", func(e *env) {
			e.losesInTime(time.Second, 0, func(c call) error {
				<-c.ctx.Done()
				return c.ctx.Err()
			})
		}},
		{"P4 one whose beats arrive, but no reply to them, knows it too", func(e *env) {
			e.losesInTime(time.Second, 0, func(c call) error { return errors.Join(errLost, c.do()) })
		}},
		{"P4 one whose replies took long, until none came, counts from when it asked", func(e *env) {
			e.losesInTime(2*time.Second, 500*time.Millisecond, func(c call) error { return errDown })
		}},
		{"an answer that is unknown for one lock is so for that lock only", func(e *env) {
			d := &unsure{tap: e.tapped(), ref: refA}
			db := e.openOn(d, refdb.Options{StaleAfter: time.Second})
			doubtful, sure := e.hold(db, refA, refB), e.hold(db, refC)
			e.wantEnd(doubtful, refdb.ErrLockLost)
			e.wantHeld(sure)
		}},
	}
}

// losesInTime cuts a holder off, whose replies took some time before, and has a
// contender try to take its lock again and again: when it succeeds the holder
// must know.
func (e *env) losesInTime(staleAfter, latency time.Duration, cut func(call) error) {
	db, tap := e.openTapped(refdb.Options{StaleAfter: staleAfter, Heartbeat: 50 * time.Millisecond})
	var mu sync.Mutex
	sent := time.Now() // the latest request that renewed the lock began no later
	renew := func(c call) error {
		start := time.Now()
		err := c.do()
		if err == nil {
			mu.Lock()
			sent = start
			mu.Unlock()
		}
		select {
		case <-time.After(latency):
		case <-c.ctx.Done():
		}
		return err
	}
	tap.do(renew)
	l := e.hold(db, refA)
	ctx := l.Context()
	e.wantBeats(refA)
	tap.do(cut)
	for deadline := time.Now().Add(patience); ; {
		if time.Now().After(deadline) {
			e.Fatal("nobody could take the lock of a holder that is cut off")
		}
		took, err := e.tryAcquire(e.b, refA)
		if !e.refusal(err) {
			if err := l.Err(); !errors.Is(err, refdb.ErrLockLost) {
				e.Errorf("another has the lock, and its holder believes: %v", err)
			}
			e.wantEnd(l, refdb.ErrLockLost)
			e.wantCause(ctx, refdb.ErrLockLost)
			e.wantLock(took)
			break
		}
		known := l.Err()
		mu.Lock()
		age := time.Since(sent)
		mu.Unlock()
		if known != nil && age < staleAfter/2 {
			e.Fatalf("it took the lock for lost %v after a beat, of %v", age, staleAfter)
		}
	}
	tap.do(nil)
	e.wantClass(l.Update(e.Context(), []refdb.Update{move(refA, "", v1)}), refdb.ErrLockLost, refdb.StaleOwner)
	e.wantRefs(nil)
}

// unsure is a driver that doesn't know what became of the beats of one ref.
type unsure struct {
	*tap
	ref string
}

func (d *unsure) Beat(ctx context.Context, locks []refdb.LockID) ([]refdb.BeatResult, error) {
	known := slices.DeleteFunc(slices.Clone(locks), func(l refdb.LockID) bool { return l.Ref == d.ref })
	answers, err := d.tap.Beat(ctx, known)
	if err != nil {
		return nil, err
	}
	results := make([]refdb.BeatResult, len(locks))
	for i, l := range locks {
		if l.Ref != d.ref {
			results[i], answers = answers[0], answers[1:]
		}
	}
	return results, nil
}
