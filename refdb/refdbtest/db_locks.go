package refdbtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb"
)

func dbLockRows() []row {
	return []row{
		{"a lock has its refs' values, its owner and its token", func(e *env) {
			db := e.open(refdb.Options{Site: "eu"})
			e.must(e.update(e.a, move(refA, "", v1), move(refB, "", refdb.Deleted)))
			l := e.hold(db, refC, refA, refB)
			if l.Project() != e.project || !slices.Equal(l.Refs(), []string{refA, refB, refC}) || l.Owner() != db.Owner() || l.Token() <= 0 {
				e.Errorf("got %q %q, owner %q, token %d", l.Project(), l.Refs(), l.Owner(), l.Token())
			}
			e.wantLocked(l, refA, v1)
			e.wantLocked(l, refB, refdb.Deleted)
			e.wantLocked(l, refC, refdb.Unknown)
			e.wantHeld(l)
		}},
		{"an owner is the site's name and what makes the process unique", func(e *env) {
			x, y := e.open(refdb.Options{Site: "eu"}), e.open(refdb.Options{Site: "eu"})
			if x.Owner() == y.Owner() || !strings.HasPrefix(x.Owner(), "eu/") || !strings.HasPrefix(y.Owner(), "eu/") {
				e.Errorf("the owners are %q and %q", x.Owner(), y.Owner())
			}
		}},
		{"a lock that is held refuses others, naming its holder", func(e *env) {
			x, y := e.open(refdb.Options{}), e.open(refdb.Options{})
			l := e.hold(x, refB)
			for _, db := range []*refdb.DB{x, y} {
				got, err := db.TryLock(e.Context(), e.project, refA, refB)
				if got != nil {
					e.Error("it was granted")
				}
				if h := e.wantHolders(err, refB); h[0].Owner != x.Owner() || h[0].Token != l.Token() || h[0].StaleAfter != refdb.DefaultStaleAfter {
					e.Errorf("the holders are %+v", h)
				}
				e.wantClass(err, refdb.ErrLocked, refdb.Retryable)
			}
			e.wantFree(refA)
			e.wantHeld(l)
		}},
		{"a stale lock is taken over, by what its holder relies on", func(e *env) {
			db := e.open(refdb.Options{})
			r := e.acquireRequest(e.a, refA)
			r.StaleAfter = 2 * time.Hour
			old, err := e.sendAcquire(e.a, r)
			e.must(err)
			e.age(old, time.Hour)
			_, err = db.TryLock(e.Context(), e.project, refA)
			e.wantHolders(err, refA)
			e.age(old, 90*time.Minute)
			if l := e.hold(db, refA); l.Token() <= old.Token {
				e.Errorf("token %d follows %d", l.Token(), old.Token)
			}
		}},
		{"locks are mandatory, even in the holder's own process, but for updates through them", func(e *env) {
			x, y := e.open(refdb.Options{}), e.open(refdb.Options{})
			l := e.hold(x, refA)
			for _, db := range []*refdb.DB{x, y} {
				e.wantClass(db.Update(e.Context(), e.project, []refdb.Update{move(refA, "", v1)}), refdb.ErrLocked, refdb.Retryable)
			}
			e.wantRefs(nil)
			e.must(l.Update(e.Context(), []refdb.Update{move(refA, "", v1)}))
			e.must(l.Update(e.Context(), []refdb.Update{move(refA, v1, v2)}))
			e.must(y.Update(e.Context(), e.project, []refdb.Update{move(refA, v2, v3)}, refdb.Advisory()))
			e.wantRefs(map[string]refdb.Value{refA: v3})
			e.wantHeld(l)
		}},
		{"an update through a lock that mismatches leaves the lock held", func(e *env) {
			l := e.hold(e.open(refdb.Options{}), refA)
			for _, update := range []func(context.Context, []refdb.Update, ...refdb.UpdateOption) error{l.Update, l.UpdateAndRelease} {
				e.wantMismatches(update(e.Context(), []refdb.Update{move(refA, v1, v2)}), refdb.Mismatch{Ref: refA, Want: v1})
				e.wantHeld(l)
			}
			e.must(l.Release(e.Context()))
			e.wantFree(refA)
		}},
		{"a release frees the lock, ends its context, and can be repeated", func(e *env) {
			db := e.open(refdb.Options{})
			l := e.hold(db, refA, refB)
			ctx := l.Context()
			e.must(ctx.Err())
			e.must(l.Release(e.Context()))
			e.wantFree(refA, refB)
			e.wantEnd(l, refdb.ErrReleased)
			e.wantCause(ctx, refdb.ErrReleased)
			next := e.hold(db, refA)
			e.must(l.Release(e.Context()))
			e.wantHeld(next)
		}},
		{"a lock lets some of its refs go, and keeps the others", func(e *env) {
			db := e.open(refdb.Options{})
			l := e.hold(db, refA, refB, refC)
			e.must(l.ReleaseRefs(e.Context(), refA, refC))
			e.wantFree(refA)
			e.wantFree(refC)
			if got := l.Refs(); !slices.Equal(got, []string{refB}) {
				e.Errorf("it is on %q", got)
			}
			e.must(l.Update(e.Context(), []refdb.Update{move(refB, "", v1)}))
			e.wantHeld(l)
			e.must(l.Release(e.Context()))
			e.wantFree(refB)
		}},
		{"P2 a lock that finds one of the refs that it lets go to be another's is lost", func(e *env) {
			db := e.open(refdb.Options{})
			l := e.hold(db, refA, refB)
			e.db.Age(e, e.project, refA, stale)
			successor := e.acquire(e.b, refA)
			e.wantClass(l.ReleaseRefs(e.Context(), refA), refdb.ErrLockLost, refdb.StaleOwner)
			e.wantClass(l.Update(e.Context(), []refdb.Update{move(refB, "", v1)}), refdb.ErrLockLost, refdb.StaleOwner)
			e.wantLock(successor)
		}},
		{"an update through a lock moves other refs if it says so, while the lock stands", func(e *env) {
			db := e.open(refdb.Options{})
			l := e.hold(db, refA)
			e.must(l.Update(e.Context(), []refdb.Update{move(refB, "", v1), move(refC, "", v1)}, refdb.AnyRef()))
			foreign := e.acquire(e.b, refB)
			e.wantHolders(l.Update(e.Context(), []refdb.Update{move(refB, v1, v2)}, refdb.AnyRef()), refB)
			e.must(l.Release(e.Context()))
			err := db.Update(e.Context(), e.project, []refdb.Update{move(refC, v1, v2)}, refdb.Under(l.Owner(), l.Token(), refA), refdb.AnyRef())
			e.wantClass(err, refdb.ErrLockLost, refdb.StaleOwner)
			e.wantRefs(map[string]refdb.Value{refB: v1, refC: v1})
			e.wantLock(foreign)
		}},
		{"what was released writes nothing any more", func(e *env) {
			db := e.open(refdb.Options{})
			l := e.hold(db, refA)
			e.must(l.Release(e.Context()))
			e.hold(db, refA)
			e.wantClass(l.Update(e.Context(), []refdb.Update{move(refA, "", v1)}), refdb.ErrReleased, refdb.StaleOwner)
			e.wantClass(l.UpdateAndRelease(e.Context(), []refdb.Update{move(refA, "", v1)}), refdb.ErrReleased, refdb.StaleOwner)
			e.wantRefs(nil)
		}},
		{"an update that releases writes, frees and ends the lock at once", func(e *env) {
			db := e.open(fastHeartbeat())
			l := e.hold(db, refA, refB)
			e.must(l.UpdateAndRelease(e.Context(), []refdb.Update{move(refA, "", v1)}))
			e.wantRefs(map[string]refdb.Value{refA: v1})
			e.wantFree(refA, refB)
			e.wantEnd(l, refdb.ErrReleased)
			e.must(l.Release(e.Context()))
			e.wantLocked(e.hold(e.open(refdb.Options{}), refA), refA, v1)
		}},
		{"a release frees the lock even if the caller's context has ended", func(e *env) {
			l := e.hold(e.open(refdb.Options{}), refA)
			ctx, cancel := context.WithCancel(e.Context())
			cancel()
			e.must(l.Release(ctx))
			e.wantFree(refA)
		}},
		{"a lock's context carries the values of the caller's, and outlives it", func(e *env) {
			type name struct{}
			ctx, cancel := context.WithCancel(context.WithValue(e.Context(), name{}, "value"))
			l, err := e.open(refdb.Options{}).TryLock(ctx, e.project, refA)
			e.must(err)
			cancel()
			if got := l.Context(); got.Err() != nil || got.Value(name{}) != "value" {
				e.Errorf("it is %v, its value %v", got.Err(), got.Value(name{}))
			}
			e.must(l.Update(l.Context(), []refdb.Update{move(refA, "", v1)}))
		}},
		{"the heartbeat runs while a lock is held, and a reclaimed one's too", func(e *env) {
			l := e.hold(e.open(fastHeartbeat()), refA, refB)
			e.wantBeats(refA)
			e.wantBeats(refB)
			e.wantHeld(l)

			e.age(e.acquire(e.a, refC), stale)
			next := e.hold(e.open(fastHeartbeat()), refC)
			e.wantBeats(refC)
			e.wantHeld(next)
		}},
		{"the heartbeat ends with the DB, and leaves the rows to grow stale", func(e *env) {
			db, driver := e.openFaulty(fastHeartbeat())
			l, released := e.hold(db, refA), e.hold(db, refB)
			ctx := l.Context()
			e.wantBeats(refA)
			e.must(released.Release(e.Context()))
			e.must(db.Close())
			e.wantEnd(l, refdb.ErrClosed)
			e.wantEnd(released, refdb.ErrReleased)
			e.wantCause(ctx, refdb.ErrClosed)
			beats := driver.count("Beat")
			e.wantLock(lockOf(l))
			e.wantFree(refB)
			e.must(db.Close())
			if n := driver.count("Beat"); n != beats {
				e.Errorf("%d beats after Close", n-beats)
			}
		}},
		{"the heartbeat ends with the release", func(e *env) {
			db, driver := e.openFaulty(fastHeartbeat())
			l := e.hold(db, refA)
			e.wantBeats(refA)
			e.must(l.Release(e.Context()))
			keeper := e.hold(db, refB) // the only lock to be beaten from now on
			beaten := make(chan []refdb.LockID, 100)
			driver.inject(func(c call) error {
				if c.method == "Beat" {
					select {
					case beaten <- c.arg.([]refdb.LockID):
					default:
					}
				}
				return c.do()
			})
			receive(e, beaten, "a beat") // this beat may have begun before the release
			for range 3 {
				if ids := receive(e, beaten, "a beat"); len(ids) != 1 || ids[0].Ref != refB {
					e.Errorf("beaten was %+v", ids)
				}
			}
			e.wantHeld(keeper)
		}},
		{"a closed DB grants no locks", func(e *env) {
			db := e.open(refdb.Options{})
			e.must(db.Close())
			for name, lock := range map[string]func(context.Context, string, ...string) (*refdb.Lock, error){"TryLock": db.TryLock, "Lock": db.Lock} {
				if _, err := lock(e.Context(), e.project, refA); !errors.Is(err, refdb.ErrClosed) {
					e.Errorf("%s: %v", name, err)
				}
			}
			e.wantFree(refA)
		}},
	}
}

// wantBeats waits for two beats of a lock.
func (e *env) wantBeats(ref string) {
	e.Helper()
	for range 2 {
		was := e.row(ref).Heartbeat
		e.eventually("a beat of "+ref, func() bool { return e.row(ref).Heartbeat.After(was) })
	}
}

func dbLossRows() []row {
	return []row{
		{"P2 a lock that another took is lost with the next beat, and of no use any more", func(e *env) {
			e.must(e.update(e.a, move(refA, "", v1)))
			l := e.hold(e.open(fastHeartbeat()), refA, refB)
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
			l := e.hold(e.open(fastHeartbeat()), refA, refB)
			if got := e.purge(e.b, standing(lockOf(l).ids()[1])...); !got[0] {
				e.Fatal("it was not purged")
			}
			e.wantEnd(l, refdb.ErrLockLost)
			e.wantLost(l.Err(), refB)
		}},
		{"a lock whose update that releases failed can still be lost, and be told of it", func(e *env) {
			l := e.hold(e.open(fastHeartbeat()), refA)
			e.wantMismatches(l.UpdateAndRelease(e.Context(), []refdb.Update{move(refA, v1, v2)}), refdb.Mismatch{Ref: refA, Want: v1})
			e.seize(l, refA)
			e.wantEnd(l, refdb.ErrLockLost)
		}},
		{"losing one lock leaves the process's others held", func(e *env) {
			db := e.open(fastHeartbeat())
			lost, kept := e.hold(db, refA), e.hold(db, refB)
			e.seize(lost, refA)
			e.wantEnd(lost, refdb.ErrLockLost)
			e.wantBeats(refB)
			e.wantHeld(kept)
		}},
		{"P2 a fenced update that finds its lock lost says so at once, before any beat", func(e *env) {
			db, driver := e.openFaulty(refdb.Options{StaleAfter: time.Hour, Heartbeat: 10 * time.Minute})
			l := e.hold(db, refA)
			successor := e.seize(l, refA)
			e.must(l.Err())
			err := l.Update(e.Context(), []refdb.Update{move(refA, "", v1)})
			e.wantClass(err, refdb.ErrLockLost, refdb.StaleOwner)
			e.wantLost(err, refA)
			e.wantEnd(l, refdb.ErrLockLost)
			if n := driver.count("Beat"); n != 0 {
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
			db, driver := e.openFaulty(refdb.Options{StaleAfter: 10 * time.Second, Heartbeat: 20 * time.Millisecond})
			l := e.hold(db, refA)
			for _, failure := range []error{errDown, errLost, errors.New("a test's error of no known kind"), context.DeadlineExceeded} {
				failed := make(chan struct{})
				var n int
				driver.inject(func(c call) error { // beats are sent one at a time
					if c.method != "Beat" {
						return c.do()
					}
					if n++; n == 3 {
						close(failed)
					}
					return failure
				})
				receive(e, failed, "three beats")
				driver.inject(nil)
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
			d := &unsure{faultyDriver: e.faulty(), ref: refA}
			db := e.openOn(d, refdb.Options{StaleAfter: time.Second})
			doubtful, sure := e.hold(db, refA, refB), e.hold(db, refC)
			e.wantEnd(doubtful, refdb.ErrLockLost)
			e.wantHeld(sure)
		}},
	}
}

// losesInTime cuts a holder off from the database while a contender keeps trying to take its lock.
// When the contender succeeds, the holder must already know that it lost the lock. Until it is cut
// off, the holder's replies take latency.
func (e *env) losesInTime(staleAfter, latency time.Duration, cut func(call) error) {
	db, driver := e.openFaulty(refdb.Options{StaleAfter: staleAfter, Heartbeat: 50 * time.Millisecond})
	var mu sync.Mutex
	sent := time.Now() // when the last successful request began, or earlier
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
	driver.inject(renew)
	l := e.hold(db, refA)
	ctx := l.Context()
	e.wantBeats(refA)
	driver.inject(cut)
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
		if age < staleAfter*3/4 {
			time.Sleep(time.Millisecond) // from then on it must not miss the moment
		}
	}
	driver.inject(nil)
	e.wantClass(l.Update(e.Context(), []refdb.Update{move(refA, "", v1)}), refdb.ErrLockLost, refdb.StaleOwner)
	e.wantRefs(nil)
}

// unsure is a driver whose beats of one ref have an unknown result.
type unsure struct {
	*faultyDriver
	ref string
}

func (d *unsure) Beat(ctx context.Context, locks []refdb.LockID) ([]refdb.BeatResult, error) {
	known := slices.DeleteFunc(slices.Clone(locks), func(l refdb.LockID) bool { return l.Ref == d.ref })
	answers, err := d.faultyDriver.Beat(ctx, known)
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
